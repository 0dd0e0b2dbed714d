#pragma once

// Worksheets: the steps of an explanation with blanks to fill in, and their answer key.
//
//   const Worksheet sheet = make_worksheet(explain_example("pixels"), 4);
//   std::string page = write_html(sheet, {.language = Language::vi});
//
// What is given (inputs, weights) is printed. Every computed entry is a blank, with one entry of
// each step written out as a hint. Two kinds of steps are left out because a learner would only
// copy numbers from one grid to an equal one: a tensor that is seen in another shape but printed
// the same, and the fused projection [Q | K | V] beside Q, K and V themselves.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "explain/catalogue.h"
#include "explain/explanation.h"
#include "explain/worksheet/expression.h"

namespace qkv::worksheet {

struct Entry {
  enum class Kind : std::uint8_t {
    given,   // printed
    made,    // a blank, computed by `how`
    hidden,  // a blank, −inf because the mask hides it
  };
  Kind kind = Kind::given;
  double value = 0;  // as the engine computed it
  double error = 0;  // how far a right answer may be off when every step before was rounded
  Expression how;    // made
};

struct Grid {
  std::string caption;  // a message with one {}, for `number` ("head {}"); empty: there is one grid
  std::int64_t number = 0;
  std::vector<std::string> rows, cols;  // labels
  std::vector<Entry> entries;           // row-major

  const Entry& at(std::size_t row, std::size_t col) const {
    return entries[row * cols.size() + col];
  }
};

// One step of the explanation, as people read it: a token a row.
struct Part {
  std::string name;     // the step's: "query"
  std::string text;     // key of "<text>.title" and "<text>.meaning"
  std::string formula;  // "Q = X·Wq"
  std::string symbol;   // "Q"
  std::string shape;    // "[B=1, heads=1, T=3, d_k=2]"
  bool given = true;    // no blank in it
  // Decimals to which entries are printed. Exact: no entry has more, nor anything that it is made
  // from, so that nobody has to round.
  int decimals = 0;
  bool exact = true;
  double tolerance = 0;  // the largest error of its entries, rounded up
  bool has_hidden = false;
  bool row_names = false, col_names = false;  // labels are names rather than numbers
  std::vector<Grid> grids;
  std::optional<Place> hint;    // the entry to write out
  std::vector<Remark> remarks;  // for the key: they may tell the answer

  bool is_list() const;  // one row of named numbers, rather than a matrix
  std::size_t blanks() const;
};

struct Worksheet {
  std::string text;                          // key of "<text>.title" and "<text>.intro"
  std::vector<std::string> intro_arguments;  // for the placeholders of the intro
  int digits = 4;                            // decimals to round to
  std::vector<Part> parts;                   // what is given first, then the steps in order

  const Part* find(std::string_view name) const;
  const Entry& at(const Place& place) const {
    return parts[place.part].grids[place.grid].at(place.row, place.col);
  }
  std::size_t blanks() const;
};

inline constexpr int kMinDigits = 1, kMaxDigits = 8;

// The explanation must be small (the worked examples below, or an exercise); `digits` are the
// decimals that a learner rounds to.
Worksheet make_worksheet(const Explanation& explanation, int digits);

// The worked examples that are small enough: dot, pixels, channels, journey, causal, heads.
const std::vector<std::string>& worksheet_examples();
Worksheet example_worksheet(std::string_view name, int digits);  // refuses any other name

// Self-attention on small integers, drawn so that Q, K and V are small integers too and no softmax
// saturates. The same options give the same exercise on every machine.
struct ExerciseOptions {
  std::uint64_t seed = 0;       // below 2⁶³
  std::int64_t tokens = 3;      // 2 to 6
  std::int64_t width = 3;       // of a token, 2 to 6
  std::int64_t head_width = 2;  // d_k = d_v, 1 to 4
  std::int64_t heads = 1;       // 1 to 3; several are concatenated and multiplied by W^O
  bool causal = false;
};
Explanation make_exercise(const ExerciseOptions& options);
Worksheet exercise_worksheet(const ExerciseOptions& options, int digits);

// --- writers --------------------------------------------------------------------------------

enum class Key : std::uint8_t { end, none, only };

struct WriteOptions {
  Language language = Language::en;
  Key key = Key::end;
  bool hints = true;
};

std::string write_markdown(const Worksheet& sheet, const WriteOptions& options);

// One page that needs nothing else, made to be printed: the key begins on a page of its own.
std::string write_html(const Worksheet& sheet, const WriteOptions& options);

// The bytes of an Office Open XML workbook. First sheet: the exercise, with framed cells to fill in
// and marks that appear beside them. Second: the key, every entry a live formula on the same
// cells, so that other numbers in the given cells make another exercise. Values are cached for
// readers that do not calculate. With Key::none there are no marks either.
std::string write_xlsx(const Worksheet& sheet, const WriteOptions& options);

}  // namespace qkv::worksheet
