#include "qkv/version.h"

#include <gtest/gtest.h>

#include <string>

namespace qkv {
namespace {

TEST(Version, LibraryAndHeadersAgree) { EXPECT_STREQ(version(), QKV_VERSION_STRING); }

TEST(Version, StringIsMadeOfTheThreeNumbers) {
  const std::string expected = std::to_string(QKV_VERSION_MAJOR) + "." +
                               std::to_string(QKV_VERSION_MINOR) + "." +
                               std::to_string(QKV_VERSION_PATCH);
  EXPECT_EQ(QKV_VERSION_STRING, expected);
}

// CMake parses version.h; what it found names the shared library and the package.
TEST(Version, BuildSystemReadTheSameNumber) { EXPECT_STREQ(QKV_CMAKE_VERSION, QKV_VERSION_STRING); }

}  // namespace
}  // namespace qkv
