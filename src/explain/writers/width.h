#pragma once

// How wide text is on a terminal: Chinese and Korean characters take two columns, combining marks
// none.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// The first code point of UTF-8 text, and how many bytes it has; a broken byte is U+FFFD of 1 byte.
struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;
};
CodePoint first_code_point(std::string_view text) noexcept;

int display_width(std::uint32_t code_point) noexcept;
std::size_t display_width(std::string_view text) noexcept;

// `text` with spaces before (right-aligned) or behind (left-aligned) it, `width` columns wide or
// more.
std::string pad_left(std::string_view text, std::size_t width);
std::string pad_right(std::string_view text, std::size_t width);

// Lines of at most `width` columns, broken at spaces, and between wide characters where there are
// none. Closing punctuation does not begin a line.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

}  // namespace qkv
