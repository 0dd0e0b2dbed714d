#include "explain/worksheet/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace qkv::worksheet {

std::string number(double value, int decimals) {
  if (std::isinf(value)) return std::string(kMinusInfinity);
  const std::string digits = fmt::format("{:.{}f}", std::abs(value), decimals);
  const bool zero = digits.find_first_not_of("0.") == std::string::npos;
  return value < 0 && !zero ? "−" + digits : digits;
}

std::string number(const Entry& entry, const Part& part) {
  // A given 0.5 stands beside computed whole numbers: in full, not as its neighbours are.
  if (entry.kind != Entry::Kind::given) return number(entry.value, part.decimals);
  const std::string digits = fmt::format("{}", std::abs(entry.value));
  return entry.value < 0 ? "−" + digits : digits;
}

std::string bound(double value) {
  const int decimals = std::max(0, 1 - static_cast<int>(std::floor(std::log10(value) + 1e-9)));
  std::string digits = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.ends_with('.')) digits.pop_back();
  return digits;
}

std::string Words::operator()(std::string_view key) const {
  return std::string(message(language_, fmt::format("worksheet.{}", key)));
}

std::string Words::operator()(std::string_view key,
                              const std::vector<std::string>& arguments) const {
  return message(language_, fmt::format("worksheet.{}", key), arguments);
}

std::string Words::title(const Worksheet& sheet) const {
  return std::string(message(language_, sheet.text + ".title"));
}

std::string Words::intro(const Worksheet& sheet) const {
  return message(language_, sheet.text + ".intro", sheet.intro_arguments);
}

std::string Words::title(const Part& part) const {
  return std::string(message(language_, part.text + ".title"));
}

std::string Words::meaning(const Part& part) const {
  return std::string(message(language_, part.text + ".meaning"));
}

std::string Words::caption(const Part& part, const Grid& grid) const {
  if (grid.caption.empty()) return part.symbol;
  return message(language_, grid.caption, {fmt::format("{}", grid.number)});
}

std::string Words::remark(const Remark& remark) const {
  return message(language_, remark.text, remark.arguments);
}

std::string Words::advice(const Worksheet& sheet, const Part& part) const {
  std::string result;
  if (!part.exact) result = (*this)("round", {fmt::format("{}", sheet.digits)});
  if (part.has_hidden) {
    if (!result.empty() && language_ != Language::zh) result += " ";
    result += (*this)("minus_infinity");
  }
  return result;
}

std::string entry_name(const Worksheet& sheet, const Place& place, const Words& words) {
  const Part& part = sheet.parts[place.part];
  const Grid& grid = part.grids[place.grid];
  if (part.is_list()) return grid.cols[place.col];
  const std::string head =
      grid.caption.empty() ? "" : fmt::format("[{}]", words.caption(part, grid));
  return fmt::format("{}{}[{}, {}]", part.symbol, head, grid.rows[place.row], grid.cols[place.col]);
}

std::string hint_of(const Worksheet& sheet, const Part& part, const Words& words) {
  const Place& place = *part.hint;
  const Entry& entry = sheet.at(place);
  // A number that is only copied says nothing; where it comes from does.
  const bool copied = entry.how.kind == Expression::Kind::entry;
  const auto leaf = [&](const Expression& e) {
    if (e.kind == Expression::Kind::number) return fmt::format("{}", e.number);
    if (copied) return entry_name(sheet, e.place, words);
    const std::string text = number(sheet.at(e.place), sheet.parts[e.place.part]);
    return e.number < 0 ? fmt::format("({})", text) : text;
  };
  return fmt::format("{} = {} {} {}", entry_name(sheet, place, words), write_out(entry.how, leaf),
                     part.exact || copied ? "=" : "≈", number(entry, part));
}

std::string escape_xml(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      default: {
        const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
        result += control ? std::string("\xef\xbf\xbd") : std::string(1, c);
      }
    }
  }
  return result;
}

}  // namespace qkv::worksheet
