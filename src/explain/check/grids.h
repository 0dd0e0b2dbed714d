#pragma once

// Matrices and vectors of numbers in a note, however it writes them: Python and NumPy literals,
// rows in brackets, several side by side, bare columns in code, LaTeX, Markdown tables.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "explain/check/names.h"
#include "explain/check/text.h"

namespace qkv::check {

// More than this is a data set and no example; it is not recognised.
inline constexpr std::size_t kMaxCells = 16384;

// A bracketed list of numbers, or lists of them, rectangular.
struct Literal {
  std::size_t begin = 0, end = 0;
  std::int64_t rows = 1, columns = 0;
  bool is_vector = false;  // [1, 2] rather than [[1, 2]]
  std::vector<Printed> cells;
};

// In the order of their beginnings, without overlap.
std::vector<Literal> find_literals(const Source& source);

struct TableCell {
  std::size_t begin = 0, end = 0;
};
struct Table {
  std::int64_t first = 0, last = 0;            // lines
  std::vector<std::vector<TableCell>> rows{};  // the header is row 0; the ruler is left out
};
std::vector<Table> find_tables(const Source& source);

struct Grid {
  std::string name;  // as the note writes it; may be empty
  Name meaning{};
  std::int64_t rows = 0, columns = 0;
  bool is_vector = false;
  std::vector<Printed> cells{};  // row-major
  std::size_t begin = 0, end = 0;

  Role role() const noexcept { return meaning.role; }
  const Printed& at(std::int64_t r, std::int64_t c) const {
    return cells[static_cast<std::size_t>(r * columns + c)];
  }
};

// In the note's order. Rows that stand below each other are put together; rows that are named one
// by one (q0, q1, …) are kept, and put together too if nothing else gives the matrix.
std::vector<Grid> find_grids(const Source& source, const std::vector<Literal>& literals,
                             const std::vector<Table>& tables);

// --- pieces of find_grids, each in its own file

// What the lines above a matrix call it.
struct Heading {
  std::string name{};
  Role role = Role::none;
};
Heading heading_above(const Source& source, std::int64_t line,
                      const std::vector<bool>& has_numbers);

void add_table_grids(std::vector<Grid>& grids, const Source& source, const Table& table,
                     const std::vector<Literal>& literals, const std::vector<bool>& has_numbers);

}  // namespace qkv::check
