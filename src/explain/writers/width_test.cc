#include "explain/writers/width.h"

#include <gtest/gtest.h>

namespace qkv {
namespace {

TEST(Width, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("쿼리"), 4u);
  EXPECT_EQ(display_width("注意力"), 6u);
  EXPECT_EQ(display_width("chú ý"), 5u);
  EXPECT_EQ(display_width("chu\xcc\x81"), 3u);  // a combining accent
  EXPECT_EQ(display_width("Qᵀ·K/√d"), 7u);
  EXPECT_EQ(display_width("\xff\xfe"), 2u);  // broken bytes take a column each
}

TEST(Width, PadsByColumns) {
  EXPECT_EQ(pad_left("키", 4), "  키");
  EXPECT_EQ(pad_right("值", 4), "值  ");
  EXPECT_EQ(pad_right("long", 2), "long");
}

TEST(Width, WrapsAtSpacesAndBetweenHanCharacters) {
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap("每个查询与所有键比较。", 8),
            (std::vector<std::string>{"每个查询", "与所有键", "比较。"}));
  for (const std::string& line :
       wrap("각 쿼리를 모든 키와 비교하고, 거기서 나온 비율로 값을 섞는다.", 20)) {
    EXPECT_LE(display_width(line), 20u) << line;
  }
  EXPECT_EQ(wrap("unbreakable", 4), (std::vector<std::string>{"unbreakable"}));
  EXPECT_TRUE(wrap("", 10).empty());
  // A full stop does not begin a line.
  EXPECT_EQ(wrap("一二三四。", 8), (std::vector<std::string>{"一二三", "四。"}));
}

}  // namespace
}  // namespace qkv
