#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace qkv {
namespace {

TEST(Json, StringsAreEscapedAndAlwaysUtf8) {
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string(std::string_view("\b\f\n\r\t\x01\0", 7)), R"("\b\f\n\r\t\u0001\u0000")");
  EXPECT_EQ(json_string("Größe 数 \x7f"), "\"Größe 数 \x7f\"");
  EXPECT_EQ(json_string("a\xff\xc3"), "\"a\ufffd\ufffd\"");
  EXPECT_EQ(json_string(""), "\"\"");
}

TEST(Json, ValuesAreIndented) {
  JsonWriter json(2);
  json.object([&] {
    json.member("text", "x");
    json.member("yes", true);
    json.member("count", std::int64_t{-3});
    json.key("empty").array([] {});
    json.key("list").list(std::vector<int>{1, 2});
    json.key("inner").object([&] { json.key("none").object([] {}); });
    json.member("last", std::string("y"));
  });
  EXPECT_EQ(json.text(), R"({
  "text": "x",
  "yes": true,
  "count": -3,
  "empty": [],
  "list": [
    1,
    2
  ],
  "inner": {
    "none": {}
  },
  "last": "y"
})");
}

TEST(Json, NumbersKeepTheirBits) {
  const double inf = std::numeric_limits<double>::infinity();
  JsonWriter json(0);
  json.list(std::vector<double>{0.1, -1e300, 1.0 / 3, inf, -inf, inf - inf});
  EXPECT_EQ(json.text(), "[\n0.1,\n-1e+300,\n0.3333333333333333,\n\"inf\",\n\"-inf\",\n\"nan\"\n]");
  JsonWriter alone(1);
  alone.value_as_written("0.5");
  EXPECT_EQ(alone.text(), "0.5");
}

}  // namespace
}  // namespace qkv
