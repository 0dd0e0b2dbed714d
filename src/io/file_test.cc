// What all formats share: which files are read, and how files are written.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/file_writer.h"
#include "io/report.h"
#include "io/test_files.h"
#include "qkv/npy.h"
#include "qkv/npz.h"
#include "qkv/safetensors.h"

namespace qkv::io {
namespace {

namespace fs = std::filesystem;

struct Format {
  const char* name;
  std::function<void(const fs::path&)> load;
  std::function<void(const fs::path&, const TensorView&)> save;
};

// For all formats: in a build without libzip, two of them.
std::vector<Format> formats() {
  std::vector<Format> all = {
      {"npy", [](const fs::path& path) { load_npy(path); },
       [](const fs::path& path, const TensorView& view) { save_npy(path, view); }},
      {"safetensors", [](const fs::path& path) { SafetensorsFile{path}; },
       [](const fs::path& path, const TensorView& view) {
         save_safetensors(path, {{"x", view}});
       }}};
  if (npz_supported()) {
    all.push_back({"npz", [](const fs::path& path) { load_npz(path); },
                   [](const fs::path& path, const TensorView& view) {
                     save_npz(path, {{"x", view}}, false);
                   }});
  }
  return all;
}

class AnyFileTest : public FileTest {
 protected:
  // 1 MiB: more than the buffer of a pipe.
  const Tensor large_ = Tensor(DType::f64, {512, 256});
  const Tensor small_ = Tensor(DType::f32, {2});
};

using ReadFileTest = AnyFileTest;
using WriteFileTest = AnyFileTest;

void expect_unreadable(const fs::path& path, std::string_view found) {
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    expect_error(ErrorKind::io, {path.string(), "open", found}, [&] { format.load(path); });
  }
}

TEST_F(ReadFileTest, RefusesWhatIsNoRegularFile) {
  expect_unreadable(directory_, "a directory");
  expect_unreadable("/dev/null", "a device");
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  expect_unreadable(path("fifo"), "a FIFO");  // and does not wait for a writer
}

TEST_F(ReadFileTest, RefusesWhatIsNotThere) {
  expect_unreadable(path("nothing"), "No such file");
  expect_unreadable(file("file", "x") / "below", "Not a directory");
  fs::create_symlink("loop", path("loop"));
  expect_unreadable(path("loop"), "symbolic links");
}

TEST_F(ReadFileTest, RefusesWithoutPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  ::chmod(file("secret", "x").c_str(), 0);
  expect_unreadable(path("secret"), "Permission denied");
}

TEST_F(ReadFileTest, EmptyFilesAreBadContent) {
  for (const Format& format : formats()) {
    expect_error(ErrorKind::value, {"empty.file"}, [&] { format.load(file("empty.file", "")); });
  }
}

TEST_F(ReadFileTest, APathDoesNotEndAtANul) {
  save_npy(path("x.npy"), small_);
  const fs::path trick(path("x.npy").string() + std::string("\0.png", 5));
  for (const Format& format : formats()) {
    expect_error(ErrorKind::value, {"NUL"}, [&] { format.load(trick); });
    expect_error(ErrorKind::value, {"NUL"}, [&] { format.save(trick, small_); });
  }
}

TEST_F(ReadFileTest, OneFormatIsNotAnother) {
  for (const Format& written : formats()) {
    written.save(path("x"), small_);
    for (const Format& read : formats()) {
      if (std::string_view(read.name) == written.name) continue;
      expect_error(ErrorKind::value, {"x]"}, [&] { read.load(path("x")); });
    }
  }
}

// --- writing ------------------------------------------------------------------------------

TEST_F(WriteFileTest, FailuresLeaveNothingBehind) {
  fs::create_directory(path("sub"));
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    const auto fails = [&](const fs::path& to, std::string_view subject, std::string_view found) {
      expect_error(ErrorKind::io, {to.string(), subject, found}, [&] { format.save(to, large_); });
    };
    fails("/dev/full", "write", "No space left");
    fails(path("nothing") / "x", "open", "No such file");
    fails(path("sub"), "open", "Is a directory");
    fails(path("sub/"), "open", "Is a directory");
    fails(path("new/"), "open", "Is a directory");
    fails("", "open", "No such file");
    fails(path(std::string(300, 'n')), "open", "too long");
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFileTest, RefusesWithoutPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::create_directory(path("sub"));
  file("sub/old", "old");
  file("kept", "old");
  ::chmod(path("kept").c_str(), 0444);
  ::chmod(path("sub").c_str(), 0555);
  for (const Format& format : formats()) {
    for (const char* name : {"sub/new", "sub/old", "kept"}) {
      expect_error(ErrorKind::io, {name, "Permission denied"},
                   [&] { format.save(path(name), small_); });
    }
  }
  ::chmod(path("sub").c_str(), 0755);
  EXPECT_EQ(content_of(path("sub/old")), "old");
  EXPECT_EQ(content_of(path("kept")), "old");
}

// Files may not grow past a size while this lives: writing fails half way.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(WriteFileTest, TheOldFileIsIntactAfterAFailure) {
  file("x", "old content");
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    const FileSizeLimit limit(100'000);
    expect_error(ErrorKind::io, {"write", "File too large"},
                 [&] { format.save(path("x"), large_); });
  }
  EXPECT_EQ(content_of(path("x")), "old content");
  EXPECT_EQ(files(), 1u);
  save_npy(path("x"), large_);  // and the process still writes
  EXPECT_EQ(load_npy(path("x")).view.shape(), large_.shape());
}

TEST_F(WriteFileTest, WithoutCommitNothingHappens) {
  file("x", "old content");
  {
    FileWriter out(path("x"));
    out.write(as_bytes("new"));
    EXPECT_EQ(files(), 2u);
  }
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(content_of(path("x")), "old content");
}

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST_F(WriteFileTest, ModeIsThatOfTheOldFileOrOfTheUmask) {
  const mode_t before = ::umask(027);
  save_npy(path("new"), small_);
  ::umask(before);
  EXPECT_EQ(mode_of(path("new")), 0640u);
  for (const mode_t mode : {0600, 0664, 0755}) {
    ::chmod(path("new").c_str(), mode);
    save_npy(path("new"), small_);
    EXPECT_EQ(mode_of(path("new")), mode);
  }
}

TEST_F(WriteFileTest, ALinkStaysALink) {
  fs::create_directory(path("sub"));
  fs::create_symlink("sub/hop", path("link"));
  fs::create_symlink("target", path("sub/hop"));  // which is not there yet
  for (int i = 0; i < 2; ++i) {
    save_npy(path("link"), small_);
    EXPECT_TRUE(fs::is_symlink(path("link")));
    EXPECT_TRUE(fs::is_symlink(path("sub/hop")));
    EXPECT_TRUE(fs::is_regular_file(path("sub/target")));
  }
  fs::create_symlink("loop", path("loop"));
  expect_error(ErrorKind::io, {"loop", "symbolic links"}, [&] { save_npy(path("loop"), small_); });
  EXPECT_EQ(files(), 3u);
}

TEST_F(WriteFileTest, ANameWithoutDirectoryIsInTheCurrentOne) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  save_npy("x.npy", small_);
  EXPECT_EQ(load_npy("x.npy").view.size(), 2);
  fs::current_path(before);
  EXPECT_EQ(files(), 1u);
}

// Reads a FIFO to its end while something writes to it.
std::string through_fifo(const fs::path& fifo, const std::function<void()>& write) {
  std::string read;
  std::thread reader([&] { read = content_of(fifo); });
  write();
  reader.join();
  return read;
}

TEST_F(WriteFileTest, AFifoIsWrittenToDirectly) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  save_npy(path("x"), large_);
  EXPECT_EQ(through_fifo(path("fifo"), [&] { save_npy(path("fifo"), large_); }),
            content_of(path("x")));
  save_safetensors(path("x"), {{"x", large_}});
  EXPECT_EQ(through_fifo(path("fifo"),
                         [&] {
                           save_safetensors(path("fifo"), {{"x", large_}});
                         }),
            content_of(path("x")));
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
  if (!npz_supported()) return;
  through_fifo(path("fifo"), [&] {
    expect_error(ErrorKind::io, {"seek"}, [&] { save_npz(path("fifo"), {{"x", large_}}); });
  });
}

TEST_F(WriteFileTest, ADeviceStaysADevice) {
  for (const Format& format : formats()) format.save("/dev/null", large_);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(Utf8, IsWhatUnicodeSays) {
  for (const char* good : {"", "a", "\xc3\xa9", "\xe2\x82\xac", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << in_quotes(good);
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x80\x80",
                          "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xfe"}) {
    EXPECT_FALSE(is_utf8(bad)) << in_quotes(bad);
  }
}

}  // namespace
}  // namespace qkv::io
