#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qkv::io {

// What the pre-tokenisers ask of a code point: \p{L}, \p{N}, \s (Unicode's White_Space), or none of
// them.
enum class CharKind : std::uint8_t { letter, number, space, other };
CharKind kind_of(char32_t code) noexcept;

// The code point at the start of well-formed UTF-8 that is not empty, and its bytes.
struct Utf8Char {
  char32_t code;
  std::size_t size;
};
Utf8Char first_char(std::string_view text) noexcept;

void append_utf8(std::string& to, char32_t code);

// Bytes that are no UTF-8 become U+FFFD, one for each longest piece that could have begun a
// character: what Python's decode(errors="replace") and Rust's from_utf8_lossy do.
std::string with_replacements(std::string_view bytes);

// U+FFFD that many times.
std::string replacements(std::size_t count);

// Of an ill-formed start (not empty): bytes that one U+FFFD stands for.
std::size_t ill_formed_size(std::string_view text) noexcept;

// Whether more bytes could still make a character of all of `text`, which is not empty and not
// well-formed.
bool may_become_utf8(std::string_view text) noexcept;

}  // namespace qkv::io
