#pragma once

// JSON, written. (It is read in io/safetensors_header.cc alone, by nlohmann-json, which takes the
// compiler ten seconds a file.)

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace qkv {

// Text in quotes, escaped; bytes that are no UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

// Writes one value, indented, as it is told its parts:
//
//   JsonWriter json(2);
//   json.object([&] {
//     json.member("name", "weights");
//     json.key("shape").array([&] { for (auto n : shape) json.value(n); });
//   });
//   out << json.text();
class JsonWriter {
 public:
  explicit JsonWriter(std::size_t indent) : indent_(indent) {}

  void value(std::string_view text) { write(json_string(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  void value(bool yes) { write(yes ? "true" : "false"); }
  void value(std::integral auto number) { write(std::to_string(number)); }
  void value(double number);  // "inf", "-inf" and "nan" as strings
  void value_as_written(std::string_view json) { write(json); }  // what is JSON already

  // Its value comes next.
  JsonWriter& key(std::string_view name);
  void member(std::string_view name, const auto& of) { key(name).value(of); }

  void object(auto&& members) { enclosed('{', members, '}'); }
  void array(auto&& values) { enclosed('[', values, ']'); }
  // A range of values.
  void list(const auto& values) {
    array([&] {
      for (const auto& each : values) value(each);
    });
  }

  const std::string& text() const noexcept { return text_; }

 private:
  void write(std::string_view value);
  void open(char bracket);
  void close(char bracket);
  void enclosed(char first, auto& parts, char last) {
    open(first);
    parts();
    close(last);
  }
  void new_line() { text_.append("\n").append(indent_ * depth_, ' '); }

  std::size_t indent_, depth_ = 0;
  bool empty_ = true;       // nothing yet inside of the innermost brackets
  bool after_key_ = false;  // the value stands on the key's line
  std::string text_;
};

}  // namespace qkv
