#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/command.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

using testing::HasSubstr;

class CheckCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "qkv-check-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string note(const std::string& text) const {
    const std::filesystem::path path = folder_ / "note.md";
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  // The subcommand alone: the frame that words errors has its own tests.
  Status run(std::vector<std::string> arguments) {
    out_.str("");
    Context context{.out = out_, .err = err_};
    CommandLine app("qkv", "", "");
    add_check_command(app, context);
    arguments.insert(arguments.begin(), "check");
    app.parse(arguments, out_);
    return context.status;
  }

  std::ostringstream out_, err_;
  std::filesystem::path folder_;
};

TEST_F(CheckCommand, StatusSaysWhetherSomethingDiffers) {
  EXPECT_EQ(run({note("1 + 1 = 2\n"), "--lang", "en"}), Status::ok);
  EXPECT_THAT(out_.str(), HasSubstr("1 agree, 0 differ"));
  EXPECT_EQ(run({note("1 + 1 = 3\n"), "--lang", "vi"}), Status::no);
  EXPECT_THAT(out_.str(), HasSubstr("đúng là 2, ghi là 3"));
}

TEST_F(CheckCommand, WritesJsonAndColor) {
  EXPECT_EQ(run({note("1 + 1 = 3\n"), "--json"}), Status::no);
  EXPECT_THAT(out_.str(), HasSubstr("\"differs\": 1"));
  run({note("1 + 1 = 3\n")});
  EXPECT_EQ(out_.str().find('\x1b'), std::string::npos);
  run({note("1 + 1 = 3\n"), "--color", "always"});
  EXPECT_NE(out_.str().find("\x1b[31m"), std::string::npos);
}

TEST_F(CheckCommand, RefusesWhatItCannotRead) {
  EXPECT_THROW(run({(folder_ / "absent.md").string()}), Error);
  EXPECT_THROW(run({folder_.string()}), Error);
  EXPECT_THROW(run({note(std::string("\x00\x01", 2))}), Error);
  EXPECT_THROW(run({note("\xFF\xFE")}), Error);
}

}  // namespace
}  // namespace qkv::cli
