#include "io/json_tree.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "io/report.h"

namespace qkv::io {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kDeepest = 64;
const JsonValue kNull{};

// Builds the tree from the parser's events; its stack is on the heap.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::string_view where) : where_(where) {}

  JsonValue take() { return std::move(root_); }

  // --- events, by the names that nlohmann-json gives them ---

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) {
    constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    return value > most ? add(static_cast<double>(value)) : add(static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in a text

  bool start_object(std::size_t) { return open<JsonObject>(); }
  bool start_array(std::size_t) { return open<JsonArray>(); }
  bool key(std::string& value) {
    if (!open_.back().keys.insert(value).second) {
      refuse(where_, "JSON", "each key of an object once",
             fmt::format("{} twice", in_quotes(value)));
    }
    std::get<JsonObject>(open_.back().value->is).emplace_back().first = std::move(value);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: …": the number is noise.
    const std::string_view text = error.what();
    const std::size_t begin = text.find("] ");
    refuse(where_, "JSON", "JSON in UTF-8",
           fmt::format("at byte {}: {}", position,
                       in_quotes(begin == text.npos ? text : text.substr(begin + 2))));
  }

 private:
  struct Open {
    JsonValue* value;
    std::unordered_set<std::string> keys;
  };

  // Where the next value goes. Only the innermost bracket grows, so pointers to outer ones hold.
  JsonValue& next() {
    if (open_.empty()) return root_;
    auto& container = open_.back().value->is;
    if (auto* array = std::get_if<JsonArray>(&container)) return array->emplace_back();
    return std::get<JsonObject>(container).back().second;
  }
  template <typename T>
  bool add(T value) {
    next().is.emplace<T>(std::move(value));
    return true;
  }
  template <typename T>
  bool open() {
    if (open_.size() == kDeepest) {
      refuse(where_, "JSON", fmt::format("at most {} brackets inside each other", kDeepest),
             "more");
    }
    JsonValue& value = next();
    value.is.emplace<T>();
    open_.push_back({&value, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view where_;
  JsonValue root_;
  std::vector<Open> open_;
};

}  // namespace

JsonValue parse_json(std::string_view text, std::string_view where) {
  // A NUL would be the end to the parser, whatever follows.
  if (text.find('\0') != text.npos) refuse(where, "JSON", "JSON in UTF-8", "a NUL in it");
  TreeBuilder builder(where);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

bool JsonPlace::is_null() const { return std::holds_alternative<std::nullptr_t>(value_->is); }

void JsonPlace::refuse(std::string_view expected, std::string_view found) const {
  io::refuse(where_, path_.empty() ? "JSON" : path_, expected, found);
}

void JsonPlace::refuse(std::string_view expected) const {
  struct Describe {
    std::string operator()(std::nullptr_t) const { return "nothing"; }
    std::string operator()(bool yes) const { return yes ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string& text) const { return in_quotes(text); }
    std::string operator()(const JsonArray& items) const {
      return fmt::format("an array of {}", items.size());
    }
    std::string operator()(const JsonObject&) const { return "an object"; }
  };
  refuse(expected, std::visit(Describe(), value_->is));
}

std::string_view JsonPlace::string() const {
  const auto* text = std::get_if<std::string>(&value_->is);
  if (text == nullptr) refuse("a string");
  return *text;
}

bool JsonPlace::boolean() const {
  const auto* yes = std::get_if<bool>(&value_->is);
  if (yes == nullptr) refuse("true or false");
  return *yes;
}

std::int64_t JsonPlace::integer(std::int64_t least, std::int64_t most) const {
  const auto* number = std::get_if<std::int64_t>(&value_->is);
  if (number == nullptr || *number < least || *number > most) {
    refuse(fmt::format("an integer in [{}, {}]", least, most));
  }
  return *number;
}

double JsonPlace::number() const {
  if (const auto* whole = std::get_if<std::int64_t>(&value_->is)) {
    return static_cast<double>(*whole);
  }
  const auto* number = std::get_if<double>(&value_->is);
  if (number == nullptr || !std::isfinite(*number)) refuse("a finite number");
  return *number;
}

const JsonArray& JsonPlace::array() const {
  const auto* items = std::get_if<JsonArray>(&value_->is);
  if (items == nullptr) refuse("an array");
  return *items;
}

const JsonObject& JsonPlace::object() const {
  const auto* members = std::get_if<JsonObject>(&value_->is);
  if (members == nullptr) refuse("an object");
  return *members;
}

JsonPlace JsonPlace::get(std::string_view key) const {
  JsonPlace result = *this;
  result.path_ += fmt::format("{}{}", path_.empty() ? "" : ".", key);
  result.value_ = &kNull;
  for (const auto& [name, value] : object()) {
    if (name == key) result.value_ = &value;
  }
  return result;
}

JsonPlace JsonPlace::at(std::string_view key) const {
  const JsonPlace result = get(key);
  if (result.value_ == &kNull) result.refuse("to be given");
  return result;
}

JsonPlace JsonPlace::item(std::size_t i) const {
  JsonPlace result = *this;
  result.value_ = &array()[i];
  result.path_ += fmt::format("[{}]", i);
  return result;
}

}  // namespace qkv::io
