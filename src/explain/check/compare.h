#pragma once

// A printed number against the true one, in the precision of the print.

#include <string>
#include <vector>

#include "explain/check/check.h"
#include "explain/check/recompute.h"

namespace qkv::check {

enum class Fit : unsigned char {
  equal,    // within half a unit of the last printed digit
  bounded,  // as far off as the rounding of the inputs allows
  cut_off,
  wrong,
};

Fit compare(double found, int decimals, double expected, double bound = 0);

// The precision that a number of a matrix claims. A whole number among decimals (0 for a hidden
// weight) is as precise as they are; alone it is rounded to ones.
int most_decimals(const Grid& grid);
inline int claimed_decimals(const Printed& cell, int most) {
  return cell.decimals > 0 ? cell.decimals : most;
}

// Every number of a grid against a matrix of its shape.
struct Comparison {
  std::vector<Fit> fits{};
  double score = 0;  // share of the numbers that fit

  bool is_full() const;
  std::int64_t misses() const;
};
Comparison compare(const Grid& grid, const Matrix& expected);

// The rows that miss, expected and found, as the grid prints them.
std::vector<CheckDifference> differences_of(const Source& source, const Grid& grid,
                                            const Matrix& expected, const Comparison& comparison);

}  // namespace qkv::check
