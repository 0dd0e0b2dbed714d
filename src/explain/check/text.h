#pragma once

// A note as lines, and the small questions about its characters.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::check {

bool is_utf8(std::string_view text) noexcept;

inline bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
inline bool is_space(char c) noexcept { return c == ' ' || c == '\t' || c == '\r'; }
// A letter of any script: bytes past ASCII count, operators such as · are asked for before.
inline bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
// Of a script without spaces between words: Chinese, Japanese, Korean.
inline bool is_east_asian(char lead) noexcept {
  return static_cast<unsigned char>(lead) >= 0xE3 && static_cast<unsigned char>(lead) <= 0xED;
}
char to_lower(char c) noexcept;  // ASCII only
std::string to_lower(std::string_view text);
std::string_view trim(std::string_view text) noexcept;
// Does the text go on with `word` at `at`?
inline bool looking_at(std::string_view text, std::size_t at, std::string_view word) noexcept {
  return at <= text.size() && text.substr(at, word.size()) == word;
}
// Code points, which is how wide a monospaced line is, wide characters aside.
std::size_t display_width(std::string_view text) noexcept;

class Source {
 public:
  explicit Source(std::string_view text);

  std::string_view text() const noexcept { return text_; }
  std::int64_t lines() const noexcept { return static_cast<std::int64_t>(starts_.size()); }
  std::size_t start(std::int64_t line) const { return starts_[static_cast<std::size_t>(line)]; }
  std::string_view line(std::int64_t line) const;       // from 0, without its end
  std::int64_t line_of(std::size_t at) const noexcept;  // from 0
  bool is_code(std::int64_t line) const;                // in a fence, or indented by four
  bool is_fence(std::int64_t line) const;               // ``` or ~~~ itself
  // Where the section of a place begins: the last heading of level 1 or 2 before it.
  std::size_t section_start(std::size_t at) const noexcept;

 private:
  std::string_view text_;
  std::vector<std::size_t> starts_;
  std::vector<unsigned char> kinds_;
  std::vector<std::size_t> headings_;
};

// A number as a note prints it: its value, and how precise it claims to be.
struct Printed {
  double value = 0;
  int decimals = 0;  // digits after the point; 0.34e2 has none
  std::size_t at = 0, end = 0;
};

// The number that begins at `at`: 3, -0.5, .5, 2., 1e-3, −∞, -inf, float("-inf"), 34.5%. With
// `comma`, 0,34 too.
std::optional<Printed> read_number(std::string_view text, std::size_t at, bool comma = false);

// A value in the precision of a printed number.
std::string format_like(double value, int decimals);

}  // namespace qkv::check
