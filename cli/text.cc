#include "cli/text.h"

#include <fmt/format.h>

#include <array>

#include "base/utf8.h"

namespace qkv::cli {

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    // U+0080 to U+009F are controls as well; in UTF-8 they begin with 0xc2.
    const bool second_controls = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    const std::size_t length = utf8_sequence(text.substr(i));
    if (byte < 0x20 || byte == 0x7f || length == 0) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (second_controls) {
      out += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      out += text.substr(i, length);
      i += length - 1;
    }
  }
  return out;
}

std::string human_bytes(double bytes) {
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, bytes < 10 && unit > 0 ? 1 : 0, units[unit]);
}

}  // namespace qkv::cli
