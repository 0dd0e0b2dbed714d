#include "cli/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/file_writer.h"

namespace qkv::cli {
namespace {

namespace fs = std::filesystem;

class Signals : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "qkv-signals-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ / "old") << "old";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // In a child: a file half written when the signal comes. Returns how the child ended.
  int end_while_writing(int signal, void (*disposition)(int)) const {
    const pid_t child = ::fork();
    if (child == 0) {
      ::signal(signal, disposition);
      clean_up_on_signals();
      io::FileWriter first(folder_ / "old"), second(folder_ / "new");
      first.write(io::as_bytes("half of it"));
      // Both temporary files exist, or the test would prove nothing.
      if (std::distance(fs::directory_iterator(folder_), {}) != 3) ::_exit(99);
      ::raise(signal);
      first.commit();
      second.commit();
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }

  std::string old() const {
    std::string text;
    std::ifstream(folder_ / "old") >> text;
    return text;
  }

  fs::path folder_;
};

TEST_P(Signals, LeaveTheOldFileAndNothingElse) {
  const int status = end_while_writing(GetParam(), SIG_DFL);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), GetParam());
  EXPECT_EQ(old(), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_P(Signals, ThatAreIgnoredStayIgnored) {
  const int status = end_while_writing(GetParam(), SIG_IGN);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
}

INSTANTIATE_TEST_SUITE_P(All, Signals,
                         ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE));

}  // namespace
}  // namespace qkv::cli
