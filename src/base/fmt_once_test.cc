#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <locale>
#include <vector>

namespace {

// fmt_once.cc has to define all that fmt's headers leave to its body: this uses each part of it,
// and fails to link when one is missing.
TEST(FmtOnce, EveryPartOfFmtIsLinked) {
  EXPECT_EQ(fmt::format("{} {} {}", 0.1F, 0.1, 0.1L), "0.1 0.1 0.1");
  EXPECT_EQ(fmt::format("{:.3f} {:e} {:g}", 2.0 / 3, 1e300, 1e-7), "0.667 1.000000e+300 1e-07");
  EXPECT_EQ(fmt::format("{:.40g}", 0.1), "0.1000000000000000055511151231257827021182");
  EXPECT_EQ(fmt::format("{} {}", std::numeric_limits<double>::infinity(), std::nan("")), "inf nan");
  EXPECT_EQ(fmt::format("{:#x} {:>6}|{:<6}|{}", 255, "ab", true, 'c'), "0xff     ab|true  |c");
  EXPECT_EQ(fmt::format("{}", std::vector<int>{1, 2, 3}), "[1, 2, 3]");
  EXPECT_EQ(fmt::format("{}", fmt::join(std::vector<int>{1, 2, 3}, "x")), "1x2x3");
  EXPECT_EQ(fmt::format(std::locale::classic(), "{:L}", 1234567), "1234567");
  EXPECT_EQ(fmt::format("{}", std::vector<std::string>{"a\n\u00e9"}), "[\"a\\n\u00e9\"]");
  EXPECT_THROW(fmt::format(fmt::runtime("{:d}"), "text"), fmt::format_error);
}

}  // namespace
