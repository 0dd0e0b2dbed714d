#include "io/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <new>

#include "io/descriptor.h"
#include "io/report.h"
#include "qkv/error.h"

namespace qkv::io {
namespace {

const char* kind_of(mode_t mode) noexcept {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

void read_all(int fd, std::byte* to, std::size_t size, const std::string& name) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(fd, to + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(name, "read", "to read the file", errno);
    if (count == 0) {
      throw Error(ErrorKind::io, name, "read", fmt::format("{} bytes", size),
                  fmt::format("{}: the file got shorter meanwhile", done));
    }
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace

std::shared_ptr<const InputFile> InputFile::open(const std::filesystem::path& path,
                                                 FileAccess access) {
  const std::shared_ptr<InputFile> file(new InputFile(path));
  if (path.native().find('\0') != std::string::npos) {
    refuse(in_quotes(file->name_), "file name", "no NUL in it", "one");
  }
  // O_NONBLOCK: opening a FIFO without a writer would wait for one. It changes nothing for the
  // regular files that pass.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.is_open()) fail(file->name_, "open", "a file that can be read", errno);
  file->load(fd.get(), access);
  return file;
}

void InputFile::load(int fd, FileAccess access) {
  struct stat status;
  if (::fstat(fd, &status) != 0) fail(name_, "open", "the status of the file", errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorKind::io, name_, "open", "a regular file", kind_of(status.st_mode));
  }
  if (status.st_size == 0) return;  // nothing to map, and no format accepts it
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max())) {
    throw std::bad_alloc();
  }
  if (access == FileAccess::map) {
    void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) fail(name_, "map", "a file that can be mapped", errno);
    data_ = static_cast<std::byte*>(at);
    mapped_ = true;
  } else {
    data_ = static_cast<std::byte*>(std::malloc(size));
    if (data_ == nullptr) throw std::bad_alloc();
    read_all(fd, data_, size, name_);
  }
  size_ = size;
}

InputFile::~InputFile() {
  if (mapped_) {
    ::munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

}  // namespace qkv::io
