#include "explain/writers/width.h"

#include <algorithm>
#include <iterator>

namespace qkv {
namespace {

struct Interval {
  std::uint32_t first, last;
};

// East Asian Wide and Fullwidth (Unicode Standard Annex #11), in blocks.
constexpr Interval kWide[] = {
    {0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},
    {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},
    {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
    {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff}, {0x20000, 0x3fffd},
};

// Marks that stand on the character before them.
constexpr Interval kCombining[] = {
    {0x0300, 0x036f}, {0x0483, 0x0489}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
    {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
};

template <std::size_t N>
bool contains(const Interval (&list)[N], std::uint32_t c) noexcept {
  const auto after =
      std::upper_bound(std::begin(list), std::end(list), c,
                       [](std::uint32_t v, const Interval& i) { return v < i.first; });
  return after != std::begin(list) && c <= std::prev(after)->last;
}

// May not begin a line.
bool closes(std::uint32_t c) noexcept {
  constexpr std::uint32_t kClosing[] = {',',    '.',    ';',    ':',    '!',    '?',    ')',
                                        ']',    0x3001, 0x3002, 0xff0c, 0xff0e, 0xff1a, 0xff1b,
                                        0xff01, 0xff1f, 0xff09, 0x201d, 0x300d, 0x300b};
  return std::find(std::begin(kClosing), std::end(kClosing), c) != std::end(kClosing);
}

// Words, and each wide character with the closing marks behind it, as pieces that stay together.
std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  bool join = false;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    const std::string_view character = text.substr(0, c.bytes);
    const bool wide = display_width(c.value) == 2;
    if (c.value == ' ') {
      pieces.emplace_back(" ");
      join = false;
    } else if (!pieces.empty() && pieces.back() != " " && (join || closes(c.value)) &&
               (!wide || closes(c.value))) {
      pieces.back() += character;
    } else {
      pieces.emplace_back(character);
    }
    // Korean puts spaces between words; breaking inside of one is ugly.
    const bool hangul = c.value >= 0xac00 && c.value <= 0xd7a3;
    join = c.value != ' ' && (!wide || hangul);
    if (hangul && pieces.size() >= 2) {
      const std::string& before = pieces[pieces.size() - 2];
      if (before != " " && pieces.back() == character) {
        const std::string last = pieces.back();
        pieces.pop_back();
        pieces.back() += last;
      }
    }
    text.remove_prefix(c.bytes);
  }
  return pieces;
}

}  // namespace

CodePoint first_code_point(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (length == 0 || text.size() < length || lead > 0xf4) return {0xfffd, 1};
  std::uint32_t value = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {0xfffd, 1};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  return {value, length};
}

int display_width(std::uint32_t c) noexcept {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return 0;
  if (c < 0x300) return 1;
  if (contains(kCombining, c)) return 0;
  return contains(kWide, c) ? 2 : 1;
}

std::size_t display_width(std::string_view text) noexcept {
  std::size_t width = 0;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    width += static_cast<std::size_t>(display_width(c.value));
    text.remove_prefix(c.bytes);
  }
  return width;
}

std::string pad_left(std::string_view text, std::size_t width) {
  const std::size_t has = display_width(text);
  return std::string(width > has ? width - has : 0, ' ') + std::string(text);
}

std::string pad_right(std::string_view text, std::size_t width) {
  const std::size_t has = display_width(text);
  return std::string(text) + std::string(width > has ? width - has : 0, ' ');
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::string line;
  std::size_t used = 0;
  for (const std::string& piece : pieces_of(text)) {
    const std::size_t size = display_width(piece);
    if (used > 0 && used + size > width && piece != " ") {
      while (!line.empty() && line.back() == ' ') line.pop_back();
      lines.push_back(std::move(line));
      line.clear();
      used = 0;
    }
    if (used == 0 && piece == " ") continue;
    line += piece;
    used += size;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace qkv
