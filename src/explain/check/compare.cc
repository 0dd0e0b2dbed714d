#include "explain/check/compare.h"

#include <algorithm>
#include <cmath>

namespace qkv::check {
namespace {

std::string row_text(const Grid& grid, std::int64_t row, const Matrix* expected, int most) {
  std::string text = "[";
  for (std::int64_t c = 0; c < grid.columns; ++c) {
    if (c > 0) text += ' ';
    const Printed& cell = grid.at(row, c);
    text += expected == nullptr ? format_like(cell.value, cell.decimals)
                                : format_like(expected->at(row, c), claimed_decimals(cell, most));
  }
  return text + "]";
}

}  // namespace

Fit compare(double found, int decimals, double expected, double bound) {
  if (std::isnan(expected) || std::isnan(found)) return Fit::wrong;
  if (std::isinf(expected) || std::isinf(found)) {
    return found == expected ? Fit::equal : Fit::wrong;
  }
  const double unit = std::pow(10.0, -decimals);
  // What f64 itself may be off, in the value and in reading the print.
  const double noise = 1e-12 * std::max({1.0, std::abs(expected), std::abs(found)});
  const double off = std::abs(found - expected);
  if (off <= 0.5 * unit + noise) return Fit::equal;
  if (bound > 0 && off <= 0.5 * unit + bound * (1 + 1e-6) + noise) return Fit::bounded;
  const double magnitude = std::abs(expected) - std::abs(found);
  const bool same_side = found == 0 || (found < 0) == (expected < 0);
  // Whole numbers are not called cut off: 3 for 3.7 is an error.
  if (decimals > 0 && same_side && magnitude > 0 && magnitude < unit + noise) return Fit::cut_off;
  return Fit::wrong;
}

int most_decimals(const Grid& grid) {
  int most = 0;
  for (const Printed& cell : grid.cells) most = std::max(most, cell.decimals);
  return most;
}

bool Comparison::is_full() const { return misses() == 0; }

std::int64_t Comparison::misses() const {
  return std::count_if(fits.begin(), fits.end(), [](Fit fit) { return fit >= Fit::cut_off; });
}

Comparison compare(const Grid& grid, const Matrix& expected) {
  const int most = most_decimals(grid);
  Comparison result;
  for (std::size_t i = 0; i < grid.cells.size(); ++i) {
    const int decimals = claimed_decimals(grid.cells[i], most);
    const Fit fit = compare(grid.cells[i].value, decimals, expected.values[i], expected.bounds[i]);
    result.fits.push_back(fit);
    result.score += fit == Fit::equal     ? 1
                    : fit == Fit::bounded ? 0.99
                    : fit == Fit::cut_off ? 0.9
                                          : 0;
  }
  result.score /= static_cast<double>(std::max<std::size_t>(grid.cells.size(), 1));
  return result;
}

std::vector<CheckDifference> differences_of(const Source& source, const Grid& grid,
                                            const Matrix& expected, const Comparison& comparison) {
  const int most = most_decimals(grid);
  std::vector<CheckDifference> differences;
  for (std::int64_t r = 0; r < grid.rows; ++r) {
    CheckDifference difference;
    difference.miss = Miss::cut_off;
    difference.count = 0;
    for (std::int64_t c = 0; c < grid.columns; ++c) {
      const Fit fit = comparison.fits[static_cast<std::size_t>(r * grid.columns + c)];
      if (fit < Fit::cut_off) continue;
      if (fit == Fit::wrong) difference.miss = Miss::wrong;
      if (difference.count++ == 0) {
        difference.column = c + 1;
        difference.line = source.line_of(grid.at(r, c).at) + 1;
      }
    }
    if (difference.count == 0) continue;
    difference.row = grid.is_vector ? 0 : r + 1;
    difference.expected = row_text(grid, r, &expected, most);
    difference.found = row_text(grid, r, nullptr, most);
    differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace qkv::check
