#include "io/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "base/utf8.h"
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

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace qkv::io
