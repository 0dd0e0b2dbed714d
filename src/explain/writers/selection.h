#pragma once

// Which part of each step is shown, and how an entry is named.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "explain/explanation.h"

namespace qkv {

// Indices [begin, end) of an axis.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const noexcept { return end - begin; }
};

// "3", "2:5", ":5", "2:" or "all", as --rows and --cols take it. Refuses anything else, naming
// `option`. An open end is -1.
Range parse_range(std::string_view text, std::string_view option);

// What the reader asked to see. What is not said is chosen: small matrices whole, of large ones the
// first rows and columns; of up to four heads all, of more the first.
struct Selection {
  std::optional<std::int64_t> batch, head;
  std::optional<Range> rows, cols;
  bool full = false;  // everything of everything, unless said otherwise above
};

// The part of a step's tensor that is shown: a range of each axis. Refuses a selection that no
// entry of the step answers to, except where the step has no such axis.
std::vector<Range> select_part(const Step& step, const Selection& selection);

// An image that is read pixel by pixel.
bool is_image(const Step& step);

// A step as people read it: matrices with a token a row. An image [B, C, H, W] is [B, N, C], and
// (…, width, token) is turned around; `index` finds the entry of the tensor for a place on the
// page.
class Page {
 public:
  explicit Page(const Step& step);

  bool turned() const noexcept { return turned_; }  // the tensor's own order is another one
  std::int64_t row_count() const noexcept { return rows_; }
  std::int64_t col_count() const noexcept { return cols_; }
  // lead: the indices of the axes before the matrix.
  Dims index(const std::vector<std::int64_t>& lead, std::int64_t row, std::int64_t col) const;
  int lead_count() const noexcept { return lead_; }
  std::string row_label(std::int64_t row) const;
  std::string col_label(std::int64_t col) const;
  bool has_row_labels() const noexcept { return image_ || !row_labels_.empty(); }
  bool has_col_labels() const noexcept { return image_ || !col_labels_.empty(); }

 private:
  std::vector<std::string> row_labels_, col_labels_;
  std::int64_t rows_ = 1, cols_ = 1, width_ = 1;  // width_: of an image
  int lead_ = 0, rank_ = 0;
  bool turned_ = false, image_ = false;
};

// Rows and columns of the page, and each lead axis, that a part covers.
struct PagePart {
  std::vector<Range> lead;
  Range rows, cols;
};
PagePart page_part(const Step& step, const Selection& selection);

// Refuses rows and columns that no step has; a step that has none of them shows what it would show
// without them.
void check_selection(const Explanation& explanation, const Selection& selection);

// An entry to be written out: "query[0,1]" is row 0, column 1 as printed, of the selected (or
// first) batch and head; "query[0,0,1,0]" is the tensor's own index.
struct Entry {
  std::string step;
  Dims index;
};
Entry parse_entry(std::string_view text, const Explanation& explanation,
                  const Selection& selection);

// Row and column of an entry, as printed: the inverse of parse_entry's two numbers.
std::pair<std::int64_t, std::int64_t> place_of(const Step& step, const Dims& index);

// "query[0,2]", and which matrix of several: "query[0,2] (h = 1)".
std::string entry_name(const Step& step, const Dims& index);

}  // namespace qkv
