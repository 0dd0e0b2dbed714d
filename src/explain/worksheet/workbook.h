#pragma once

// Pieces of an Office Open XML workbook (ECMA-376, SpreadsheetML): as much of it as worksheets
// need.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::worksheet {

// Rows and columns count from 1, as in their names.
struct Cell {
  std::size_t row = 1, col = 1;
  friend bool operator==(const Cell&, const Cell&) = default;
};
std::string column_name(std::size_t col);                  // 1 → "A", 28 → "AB"
std::string cell_name(const Cell& cell);                   // "AB12"
std::string range_name(const Cell& from, const Cell& to);  // "B4:D6"

// Looks of cells; the order is that of cellXfs in the workbook's styles.
enum class Style : int {
  plain,
  title,    // of the sheet
  heading,  // of what is given, of the steps
  step,     // a step's title
  formula,  // a step's formula and shape
  text,     // prose, wrapped
  advice,   // what to mind
  hint,
  label,   // of a row or a column
  corner,  // what a grid is called
  given,
  blank,  // to fill in
  mark,   // ✓ or ✗
  score,
  answer,  // and answer + n: with n decimals, up to 8
};
Style answer_style(int decimals);

// One sheet. Cells may be set in any order.
class SheetXml {
 public:
  void text(const Cell& cell, Style style, std::string_view text);
  void number(const Cell& cell, Style style, double value);
  void formula(const Cell& cell, Style style, std::string_view formula, double value);
  void formula(const Cell& cell, Style style, std::string_view formula, std::string_view value);
  void empty(const Cell& cell, Style style);

  // Text over columns cell.col to last_col, wrapped; the row becomes high enough.
  void paragraph(const Cell& cell, std::size_t last_col, Style style, std::string_view text);

  void column_width(std::size_t col, double characters) { widths_[col] = characters; }
  void row_height(std::size_t row, double points) { heights_[row] = points; }

  // Green where the formula (relative to the first cell) is true, red where the other is.
  void right_or_wrong(const Cell& from, const Cell& to, std::string_view right,
                      std::string_view wrong);
  // Offers `choice` in a list; anything else may be typed.
  void offer(const Cell& from, const Cell& to, std::string_view choice);

  std::string xml() const;

 private:
  void put(const Cell& cell, std::string xml) { rows_[cell.row][cell.col] = std::move(xml); }

  std::map<std::size_t, std::map<std::size_t, std::string>> rows_;
  std::map<std::size_t, double> widths_, heights_;
  std::vector<std::string> merged_, conditional_, validations_;
};

struct NamedSheet {
  std::string name;
  SheetXml sheet;
};

// The bytes of the .xlsx.
std::string workbook(std::string_view title, std::string_view language,
                     const std::vector<NamedSheet>& sheets);

}  // namespace qkv::worksheet
