// What README shows is what is compiled and run.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(QKV_SOURCE_DIR) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Readme, ShowsTheExampleThatIsRun) {
  const std::string readme = read("README.md");
  const std::string open = "```cpp\n", close = "```\n";
  const auto begin = readme.find(open);
  ASSERT_NE(begin, std::string::npos);
  const auto end = readme.find(close, begin + open.size());
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(readme.substr(begin + open.size(), end - begin - open.size()),
            read("examples/ten_lines.cc"));
}

}  // namespace
