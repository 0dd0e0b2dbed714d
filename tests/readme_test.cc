// What README shows is what is compiled and run.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "explain/explain.h"
#include "explain/writers/writer.h"

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

TEST(Readme, ShowsWhatTheProgramPrints) {
  const std::string readme = read("README.md");
  const std::string open = "$ build/qkv explain pixels\n…\n", close = "```\n";
  const auto begin = readme.find(open);
  ASSERT_NE(begin, std::string::npos);
  const auto end = readme.find(close, begin);
  const std::string shown = readme.substr(begin + open.size(), end - begin - open.size());
  const std::string printed = qkv::write_text(qkv::explain_example("pixels"), {});
  EXPECT_NE(printed.find(shown), std::string::npos) << shown;
}

}  // namespace
