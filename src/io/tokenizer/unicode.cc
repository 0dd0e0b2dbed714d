#include "io/tokenizer/unicode.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace qkv::io {
namespace {

struct Range {
  char32_t first, last;
  CharKind kind;
};

constexpr CharKind L = CharKind::letter, N = CharKind::number;
constexpr Range kRanges[] = {
#include "io/tokenizer/unicode_tables.inc"
};

bool is_space(char32_t code) noexcept {
  return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// The second byte that may follow a lead byte (Unicode 15, table 3-7).
bool second_fits(unsigned char lead, unsigned char second) noexcept {
  switch (lead) {
    case 0xe0: return second >= 0xa0 && second <= 0xbf;
    case 0xed: return second >= 0x80 && second <= 0x9f;
    case 0xf0: return second >= 0x90 && second <= 0xbf;
    case 0xf4: return second >= 0x80 && second <= 0x8f;
    default: return second >= 0x80 && second <= 0xbf;
  }
}

std::size_t length_by_lead(unsigned char lead) noexcept {
  if (lead < 0xc2 || lead > 0xf4) return 1;
  return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
}

}  // namespace

CharKind kind_of(char32_t code) noexcept {
  if (is_space(code)) return CharKind::space;
  const Range* at = std::upper_bound(std::begin(kRanges), std::end(kRanges), code,
                                     [](char32_t c, const Range& r) { return c < r.first; });
  if (at == std::begin(kRanges)) return CharKind::other;
  --at;
  return code <= at->last ? at->kind : CharKind::other;
}

Utf8Char first_char(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead < 0xf0) return {(lead & 0xf) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(lead & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

void append_utf8(std::string& to, char32_t code) {
  const auto add = [&](char32_t byte) { to += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    add(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  }
}

std::size_t ill_formed_size(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = length_by_lead(byte(0));
  std::size_t size = 1;
  if (length > 1 && text.size() > 1 && second_fits(byte(0), byte(1))) {
    for (size = 2; size < length && size < text.size() && (byte(size) & 0xc0) == 0x80;) ++size;
  }
  return size;
}

bool may_become_utf8(std::string_view text) noexcept {
  return text.size() < length_by_lead(static_cast<unsigned char>(text[0])) &&
         ill_formed_size(text) == text.size();
}

std::string replacements(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += kReplacement;
  return text;
}

std::string with_replacements(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    std::size_t size = utf8_sequence(bytes);
    if (size > 0) {
      text += bytes.substr(0, size);
    } else {
      size = ill_formed_size(bytes);
      text += kReplacement;
    }
    bytes.remove_prefix(size);
  }
  return text;
}

}  // namespace qkv::io
