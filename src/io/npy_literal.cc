#include "io/npy_literal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "io/report.h"

namespace qkv::io {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  NpyDictionary dictionary() {
    expect('{', "a dictionary");
    while (!accept('}')) {
      pair();
      if (accept(',')) continue;
      expect('}', "',' or '}'");
      break;
    }
    skip_space();
    if (at_ != text_.size()) unexpected("nothing after the dictionary");
    if (!has_descr_) missing("descr");
    if (!has_order_) missing("fortran_order");
    if (!has_shape_) missing("shape");
    return std::move(result_);
  }

 private:
  void pair() {
    const std::string key = string("a key in quotes");
    expect(':', "':' after the key");
    if (key == "descr") {
      once(has_descr_, key);
      result_.descr = descr();
    } else if (key == "fortran_order") {
      once(has_order_, key);
      result_.fortran_order = boolean();
    } else if (key == "shape") {
      once(has_shape_, key);
      result_.shape = tuple();
    } else {
      refuse(where_, "header", "the keys descr, fortran_order and shape alone", in_quotes(key));
    }
  }

  std::string descr() {
    skip_space();
    if (peek() == '[') refuse(where_, "descr", "one dtype for all elements", "a structured dtype");
    return string("a dtype in quotes");
  }

  bool boolean() {
    skip_space();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    unexpected("True or False as fortran_order");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(', "a tuple as shape");
    bool comma = true;  // "()" is a tuple, "(3)" is a number
    while (!accept(')')) {
      if (!comma) unexpected("',' or ')' in the shape");
      values.push_back(integer());
      comma = accept(',');
      skip_space();
      if (!comma && values.size() == 1) unexpected("',' after the only extent of the shape");
    }
    return values;
  }

  std::int64_t integer() {
    skip_space();
    const std::string_view rest = text_.substr(at_);
    const std::size_t length = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (rest.starts_with('-')) refuse(where_, "shape", "extents of 0 or more", "a negative one");
    if (length == 0 || (length > 1 && rest[0] == '0')) unexpected("an extent of the shape");
    std::int64_t value = 0;
    if (std::from_chars(rest.data(), rest.data() + length, value).ec != std::errc()) {
      refuse(where_, "shape", "extents below 2^63",
             rest.substr(0, std::min<std::size_t>(length, 40)));
    }
    at_ += length;
    if (peek() == 'L') ++at_;
    return value;
  }

  std::string string(std::string_view expected) {
    skip_space();
    const char quote = peek();
    if (quote != '\'' && quote != '"') unexpected(expected);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) unexpected("a string that ends");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    if (value.find_first_of("\\\n\r") != std::string_view::npos) {
      unexpected("a string without escapes");
    }
    at_ = end + 1;
    return std::string(value);
  }

  void once(bool& seen, std::string_view key) {
    if (seen) refuse(where_, "header", "each key once", fmt::format("{} twice", in_quotes(key)));
    seen = true;
  }

  [[noreturn]] void missing(std::string_view key) {
    refuse(where_, "header", fmt::format("the key {}", in_quotes(key)), "none");
  }

  [[noreturn]] void unexpected(std::string_view expected) {
    const std::string found = at_ < text_.size() ? in_quotes(text_.substr(at_, 20)) : "the end";
    refuse(where_, "header", expected, fmt::format("{} at byte {} of it", found, at_));
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool accept(char c) {
    skip_space();
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c, std::string_view expected) {
    if (!accept(c)) unexpected(expected);
  }

  std::string_view text_, where_;
  std::size_t at_ = 0;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
  NpyDictionary result_;
};

}  // namespace

NpyDictionary parse_npy_dictionary(std::string_view text, std::string_view where) {
  return Parser(text, where).dictionary();
}

}  // namespace qkv::io
