#pragma once

// JSON, read into a tree. (Safetensors headers are read without one: io/safetensors_header.h.)

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace qkv::io {

struct JsonValue;
using JsonArray = std::vector<JsonValue>;
using JsonObject = std::vector<std::pair<std::string, JsonValue>>;  // in the order of the text

struct JsonValue {
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, JsonArray, JsonObject> is =
      nullptr;
};

// Refuses what is no JSON in UTF-8, an object with a key twice, and brackets deeper than 64.
JsonValue parse_json(std::string_view text, std::string_view where);

// A value and the way to it, for messages: "[tokenizer.json] model.merges[3]: expected …". Each
// reading refuses a value of another kind. The tree has to outlive it.
class JsonPlace {
 public:
  JsonPlace(const JsonValue& value, std::string_view where) : value_(&value), where_(where) {}

  const JsonValue& value() const noexcept { return *value_; }
  bool is_null() const;
  std::string_view string() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  double number() const;  // finite; integers too
  const JsonArray& array() const;
  const JsonObject& object() const;

  // A member of an object; one that is missing is refused, or null.
  JsonPlace at(std::string_view key) const;
  JsonPlace get(std::string_view key) const;
  bool has(std::string_view key) const { return !get(key).is_null(); }
  JsonPlace item(std::size_t i) const;  // of an array

  [[noreturn]] void refuse(std::string_view expected, std::string_view found) const;
  // Says which kind it is, or shows a short value.
  [[noreturn]] void refuse(std::string_view expected) const;

  const std::string& path() const noexcept { return path_; }
  std::string_view where() const noexcept { return where_; }

 private:
  const JsonValue* value_;
  std::string_view where_;
  std::string path_;
};

}  // namespace qkv::io
