#pragma once

// Words and numbers that Markdown, HTML and spreadsheets share.

#include <string>
#include <string_view>
#include <vector>

#include "explain/worksheet/worksheet.h"

namespace qkv::worksheet {

inline constexpr std::string_view kMinusInfinity = "−inf";

// "0.25", "−3", "−inf". Never "−0".
std::string number(double value, int decimals);
std::string number(const Entry& entry, const Part& part);

// "0.00013": as few decimals as a bound of two digits takes.
std::string bound(double value);

// Speaks one language.
class Words {
 public:
  explicit Words(Language language) : language_(language) {}

  std::string operator()(std::string_view key) const;  // "worksheet.<key>"
  std::string operator()(std::string_view key, const std::vector<std::string>& arguments) const;

  std::string title(const Worksheet& sheet) const;
  std::string intro(const Worksheet& sheet) const;
  std::string title(const Part& part) const;
  std::string meaning(const Part& part) const;
  std::string caption(const Part& part, const Grid& grid) const;  // "head 1", or the symbol
  std::string remark(const Remark& remark) const;

  // What to mind when filling in a part: decimals to round to, how to write −inf. May be empty.
  std::string advice(const Worksheet& sheet, const Part& part) const;

  Language language() const { return language_; }

 private:
  Language language_;
};

// "Q[p0, 1]", "P[head 1][t0, t2]", "head_dim".
std::string entry_name(const Worksheet& sheet, const Place& place, const Words& words);

// "Q[p0, 1] = 1·0 + 0·0 + 1·1 + 2·0 = 1"; the part has to have a hint.
std::string hint_of(const Worksheet& sheet, const Part& part, const Words& words);

// <, >, &, " as entities; what XML cannot hold (control characters) as U+FFFD.
std::string escape_xml(std::string_view text);

}  // namespace qkv::worksheet
