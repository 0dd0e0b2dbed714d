#include "io/file_writer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <random>

#include "io/element_stream.h"
#include "io/report.h"
#include "qkv/error.h"

namespace qkv::io {
namespace {

namespace fs = std::filesystem;

// What the last of a chain of symbolic links names; it need not exist. Only the last component is
// looked at: links among the directories are the kernel's business.
fs::path follow_links(fs::path path, const std::string& name) {
  constexpr int kMostLinks = 40;  // as Linux
  for (int i = 0; i < kMostLinks; ++i) {
    std::error_code error;
    const fs::path next = fs::read_symlink(path, error);
    if (error) return path;  // no link, or not there
    path = path.parent_path() / next;
  }
  fail(name, "open", "a file that can be written", ELOOP);
}

bool same_file(const fs::path& path, const struct stat& other) noexcept {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && status.st_dev == other.st_dev &&
         status.st_ino == other.st_ino;
}

fs::path temporary_next_to(const fs::path& target) {
  std::random_device random;  // unpredictable: nobody can have put something in its place
  const std::uint64_t number = (std::uint64_t{random()} << 32) ^ random();
  return target.parent_path() / fmt::format(".qkv-{:016x}.tmp", number);
}

}  // namespace

FileWriter::FileWriter(const fs::path& path) : name_(path.string()) {
  if (path.native().find('\0') != std::string::npos) {
    refuse(in_quotes(name_), "file name", "no NUL in it", "one");
  }
  if (!path.has_filename()) {
    fail(name_, "open", "a file that can be written", path.empty() ? ENOENT : EISDIR);
  }
  struct stat status;
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) fail(name_, "open", "a file that can be written", errno);
  if (exists && S_ISDIR(status.st_mode)) fail(name_, "open", "a file that can be written", EISDIR);

  target_ = follow_links(path, name_);
  // The second case is a link of /proc to a file that has no name any more.
  if (exists && (!S_ISREG(status.st_mode) || !same_file(target_, status))) {
    fd_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd_.is_open()) fail(name_, "open", "a file that can be written", errno);
    return;
  }
  // A rename would also replace a file that may not be written to.
  if (exists && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) {
    fail(name_, "open", "a file that can be written", errno);
  }
  open_temporary(exists ? &status : nullptr);
}

void FileWriter::open_temporary(const struct stat* replaced) {
  constexpr int kAttempts = 100;
  // A new file gets 0666 less the umask. A replaced one may be private: nobody else reads the
  // temporary before it has the mode of the old file.
  const mode_t mode = replaced ? 0600 : 0666;
  for (int i = 0; i < kAttempts && !fd_.is_open(); ++i) {
    const fs::path candidate = temporary_next_to(target_);
    record_.emplace(candidate.c_str());
    fd_ = Descriptor(
        ::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    if (fd_.is_open()) {
      temporary_ = candidate;
    } else if (errno != EEXIST) {
      fail(name_, "open", "to create a temporary file in the same directory", errno);
    }
  }
  if (!fd_.is_open()) fail(name_, "open", "a free name for a temporary file", EEXIST);
  if (!replaced) return;
  mode_t kept = replaced->st_mode & 0777;
  // Without the old group, its permissions would go to another one.
  if (::fchown(fd_.get(), replaced->st_uid, replaced->st_gid) != 0) kept &= 0707;
  ::fchmod(fd_.get(), kept);  // where modes do not exist, there is none to keep
}

FileWriter::~FileWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void FileWriter::write(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(name_, "write", "to write the whole file", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    position_ += static_cast<std::uint64_t>(count);
  }
}

void FileWriter::write(const TensorView& elements) {
  ElementStream stream(elements);
  for (Bytes piece = stream.next(); !piece.empty(); piece = stream.next()) write(piece);
}

void FileWriter::seek(std::uint64_t offset) {
  if (offset == position_) return;
  if (::lseek(fd_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) {
    fail(name_, "seek", "a file in which one can go back", errno);
  }
  position_ = offset;
}

void FileWriter::flush() {
  while (::fsync(fd_.get()) != 0) {
    if (errno == EINTR) continue;
    // A pipe or a terminal has nothing to flush to.
    if (temporary_.empty() && (errno == EINVAL || errno == ENOTSUP || errno == EROFS)) break;
    fail(name_, "fsync", "to flush the file to the disk", errno);
  }
  if (::close(fd_.release()) != 0 && errno != EINTR) {
    fail(name_, "close", "to write the whole file", errno);
  }
}

void FileWriter::commit() {
  flush();
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail(name_, "rename", "to replace the file", errno);
  }
  temporary_.clear();
  record_.reset();
  // The new name is on the disk when the directory is. The file is whole either way, hence no
  // error from here.
  const fs::path parent = target_.parent_path();
  const Descriptor directory(
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.is_open()) ::fsync(directory.get());
}

}  // namespace qkv::io
