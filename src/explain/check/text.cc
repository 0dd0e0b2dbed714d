#include "explain/check/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace qkv::check {
namespace {

enum LineKind : unsigned char { prose, code, fence };

// Length of the code point that begins at `at`, or 0 if it is none (overlong, surrogate, cut).
std::size_t code_point_length(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

// Signs, as authors type them: ASCII, U+2212 and the en dash.
constexpr std::array<std::string_view, 3> kMinus = {"-", "\u2212", "\u2013"};

// -inf in its spellings, without the sign.
std::size_t infinity_length(std::string_view text, std::size_t at) noexcept {
  for (std::string_view word : {"\u221E", "float('inf')", "float(\"inf\")", "np.inf", "torch.inf",
                                "math.inf", "\\infty", "infinity", "inf"}) {
    if (looking_at(text, at, word)) {
      const std::size_t end = at + word.size();
      const bool ends = end >= text.size() || !is_letter(text[end]);
      return ends ? word.size() : 0;
    }
  }
  return 0;
}

std::optional<Printed> read_float_call(std::string_view text, std::size_t at) {
  for (std::string_view word : {"float('-inf')", "float(\"-inf\")"}) {
    if (looking_at(text, at, word)) {
      return Printed{-std::numeric_limits<double>::infinity(), 0, at, at + word.size()};
    }
  }
  return std::nullopt;
}

std::size_t skip_digits(std::string_view text, std::size_t at) noexcept {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = code_point_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

char to_lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string to_lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = to_lower(c);
  return result;
}

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && (is_space(text.front()) || text.front() == '\n')) text.remove_prefix(1);
  while (!text.empty() && (is_space(text.back()) || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

std::size_t display_width(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

Source::Source(std::string_view text) : text_(text) {
  starts_.push_back(0);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' && i + 1 < text.size()) starts_.push_back(i + 1);
  }
  bool in_fence = false;
  for (std::int64_t i = 0; i < lines(); ++i) {
    const std::string_view content = trim(line(i));
    if (content.starts_with("```") || content.starts_with("~~~")) {
      in_fence = !in_fence;
      kinds_.push_back(fence);
    } else {
      const bool indented = line(i).starts_with("    ") || line(i).starts_with("\t");
      kinds_.push_back(in_fence || indented ? code : prose);
      if (!in_fence && (line(i).starts_with("# ") || line(i).starts_with("## "))) {
        headings_.push_back(start(i));
      }
    }
  }
}

std::string_view Source::line(std::int64_t line) const {
  const auto i = static_cast<std::size_t>(line);
  const std::size_t end = i + 1 < starts_.size() ? starts_[i + 1] - 1 : text_.size();
  std::string_view content = text_.substr(starts_[i], end - starts_[i]);
  while (!content.empty() && (content.back() == '\n' || content.back() == '\r')) {
    content.remove_suffix(1);
  }
  return content;
}

std::int64_t Source::line_of(std::size_t at) const noexcept {
  return std::upper_bound(starts_.begin(), starts_.end(), at) - starts_.begin() - 1;
}

std::size_t Source::section_start(std::size_t at) const noexcept {
  const auto after = std::upper_bound(headings_.begin(), headings_.end(), at);
  return after == headings_.begin() ? 0 : *std::prev(after);
}

bool Source::is_code(std::int64_t line) const {
  return kinds_[static_cast<std::size_t>(line)] == code;
}

bool Source::is_fence(std::int64_t line) const {
  return kinds_[static_cast<std::size_t>(line)] == fence;
}

std::optional<Printed> read_number(std::string_view text, std::size_t at, bool comma) {
  if (auto call = read_float_call(text, at)) return call;
  std::size_t p = at;
  bool negative = false;
  if (looking_at(text, p, "+")) ++p;
  for (std::string_view minus : kMinus) {
    if (p == at && looking_at(text, p, minus)) {
      negative = true;
      p += minus.size();
    }
  }
  const auto finish = [&](double value, int decimals, std::size_t end) {
    return Printed{negative ? -value : value, decimals, at, end};
  };
  if (const std::size_t length = infinity_length(text, p); length > 0) {
    return finish(std::numeric_limits<double>::infinity(), 0, p + length);
  }
  const std::size_t whole_end = skip_digits(text, p);
  std::size_t end = whole_end;
  int decimals = 0;
  if (end < text.size() && (text[end] == '.' || (comma && text[end] == ','))) {
    const std::size_t fraction_end = skip_digits(text, end + 1);
    // "2." ends a number of NumPy, and a sentence; ".." is no point.
    if (fraction_end > end + 1) {
      decimals = static_cast<int>(std::min<std::size_t>(fraction_end - end - 1, 300));
      end = fraction_end;
    } else if (whole_end > p && !looking_at(text, end + 1, ".")) {
      ++end;
    }
  }
  if (end == p || (whole_end == p && decimals == 0)) return std::nullopt;
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t digits = end + 1;
    if (digits < text.size() && (text[digits] == '-' || text[digits] == '+')) ++digits;
    if (const std::size_t stop = skip_digits(text, digits); stop > digits && stop - digits < 4) {
      int exponent = 0;
      std::from_chars(text.data() + digits, text.data() + stop, exponent);
      decimals =
          std::clamp(text[end + 1] == '-' ? decimals + exponent : decimals - exponent, 0, 300);
      end = stop;
    }
  }
  std::string digits(text.substr(p, end - p));
  std::replace(digits.begin(), digits.end(), ',', '.');
  if (digits.starts_with('.')) digits.insert(digits.begin(), '0');
  double value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec != std::errc{}) return std::nullopt;
  if (looking_at(text, end, "%") || looking_at(text, end, "\\%")) {
    end += text[end] == '%' ? 1 : 2;
    return finish(value / 100, decimals + 2, end);
  }
  return finish(value, decimals, end);
}

std::string format_like(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (std::abs(value) >= 1e16) return fmt::format("{:g}", value);
  std::string result = fmt::format("{:.{}f}", value, std::min(decimals, 17));
  if (result.find_first_not_of("-0.") == std::string::npos && result.starts_with('-')) {
    result.erase(0, 1);  // no negative zero
  }
  return result;
}

}  // namespace qkv::check
