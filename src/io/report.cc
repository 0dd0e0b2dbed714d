#include "io/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "qkv/error.h"

namespace qkv::io {

void refuse(std::string_view where, std::string_view subject, std::string_view expected,
            std::string_view found) {
  throw Error(ErrorKind::value, where, subject, expected, found);
}

void fail(std::string_view where, std::string_view subject, std::string_view expected,
          int error_number) {
  if (error_number == ENOMEM) throw std::bad_alloc();
  throw Error(ErrorKind::io, where, subject, expected,
              std::generic_category().message(error_number));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string out = "'";
  for (char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
  }
  return out + (text.size() > kLongest ? "…'" : "'");
}

namespace {

// Bytes of the well-formed sequence at the start of `text` (Unicode 15, table 3-7), or 0.
std::size_t utf8_sequence(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Too long a form, a surrogate, or past U+10FFFF: visible in the second byte.
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace qkv::io
