#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace qkv {
namespace {

bool stands_for_itself(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

// Of a control character, a quote or a backslash.
std::string escaped(char c) {
  switch (c) {
    case '"':
    case '\\': return {'\\', c};
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return fmt::format("\\u{:04x}", static_cast<int>(c));
  }
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const auto plain = std::find_if_not(text.begin(), text.end(), stands_for_itself);
    const std::size_t done = static_cast<std::size_t>(plain - text.begin());
    out += text.substr(0, done);
    text.remove_prefix(done);
    if (text.empty()) break;
    const std::size_t length = utf8_sequence(text);
    if (length == 1) {
      out += escaped(text.front());
    } else if (length == 0) {
      out += "\ufffd";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out + '"';
}

void JsonWriter::value(double number) {
  const std::string text = fmt::format("{}", number);
  if (std::isfinite(number)) {
    write(text);
  } else {
    value(std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
  }
}

JsonWriter& JsonWriter::key(std::string_view name) {
  write(json_string(name));
  text_ += ": ";
  after_key_ = true;
  return *this;
}

void JsonWriter::write(std::string_view value) {
  if (!after_key_ && depth_ > 0) {
    if (!empty_) text_ += ',';
    new_line();
  }
  text_ += value;
  after_key_ = empty_ = false;
}

void JsonWriter::open(char bracket) {
  write(std::string_view(&bracket, 1));
  ++depth_;
  empty_ = true;
}

void JsonWriter::close(char bracket) {
  --depth_;
  if (!empty_) new_line();
  text_ += bracket;
  empty_ = false;
}

}  // namespace qkv
