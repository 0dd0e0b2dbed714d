#pragma once

// Explanations as text for a terminal, as Markdown, JSON and CSV.

#include <string>
#include <vector>

#include "explain/catalogue.h"
#include "explain/explanation.h"
#include "explain/writers/selection.h"

namespace qkv {

struct WriteOptions {
  Language language = Language::en;
  Selection selection;
  std::vector<Entry> expanded;  // entries to write out, besides what is said to be shown
  int digits = 4;               // behind the point, in text and Markdown
  bool color = false;           // ANSI colours and heat maps; text only
  std::size_t width = 88;       // columns of prose; text only
};

std::string write_text(const Explanation& explanation, const WriteOptions& options);
std::string write_markdown(const Explanation& explanation, const WriteOptions& options);

// {"block", "title", "intro", "language",
//  "steps": [{"name", "title", "formula", "meaning", "axes", "shape", "slice", "labels", "values",
//             "expansions"}],
//  "remarks": [{"step", "text"}]}
//
// `shape` is the whole tensor's, `slice` a [begin, end) for each of its axes, `values` what lies in
// it, nested as deep as the tensor has axes, each number with all digits that it takes to read the
// same bits back. Numbers that JSON has not are the strings "inf", "-inf" and "nan". `labels`,
// where a step has any, holds for each axis null or the labels of what lies in the slice: tokens.
std::string write_json(const Explanation& explanation, const WriteOptions& options);

// Columns step, title, formula, shape, index, value, row, column (RFC 4180): a line for each entry
// that is shown. The last two are the labels of the row and column in which text prints it; empty
// where there are none.
std::string write_csv(const Explanation& explanation, const WriteOptions& options);

// --- shared by the writers ------------------------------------------------------------------

std::string title_of(const Step& step, Language language);
std::string meaning_of(const Step& step, Language language);

// What the formula calls it: "Q" of "Q = X·W^Q"; the step's name where it has no such name.
std::string symbol_of(const Step& step);

// "[B=1, heads=1, key_dim=2, N=4]"
std::string shape_with_axes(const Step& step);

// A number with `digits` behind the point; whole numbers without one if all of `column` are whole.
std::string format_number(double value, int digits, bool whole);

// An entry written out: "query[0,1] = 1·0 + 0·0 + 1·1 + 2·0 = 1". Sums of more than `most` terms
// are shortened in the middle.
std::string format_expansion(const Step& step, const Dims& index, const WriteOptions& options,
                             std::size_t most = 12);

// The entries of a step that are written out, asked for or shown anyway.
std::vector<Dims> entries_of(const Explanation& explanation, const Step& step,
                             const WriteOptions& options);

// The matrices of a page that are shown, one after the other.
struct Matrix {
  std::vector<std::int64_t> lead;
  std::vector<std::vector<double>> values;  // [rows shown][columns shown]
  std::vector<bool> whole;                  // per column: all of its numbers are whole
};
struct PageView {
  Page page;
  PagePart part;
  std::vector<Matrix> matrices;
  bool cut_rows = false, cut_cols = false;  // there is more than is shown
};
PageView view_page(const Step& step, const Selection& selection);

}  // namespace qkv
