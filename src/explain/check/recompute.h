#pragma once

// What follows from what, computed by the engine in f64.

#include <cstdint>
#include <optional>
#include <vector>

#include "explain/check/grids.h"

namespace qkv::check {

// Values, and for each how far it may be off because the numbers it came from were printed
// rounded: first order, 0 where they count as exact.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values{};
  std::vector<double> bounds{};

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), columns(c), values(static_cast<std::size_t>(r * c)), bounds(values.size()) {}
  double& at(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
  double at(std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
  double bound(std::int64_t r, std::int64_t c) const {
    return bounds[static_cast<std::size_t>(r * columns + c)];
  }
  bool is_scalar() const noexcept { return rows == 1 && columns == 1; }
};

// Numbers with at least `rounded_from` decimals count as rounded to them, others as exact.
Matrix matrix_of(const Grid& grid, int rounded_from);

Matrix transposed(const Matrix& a);
Matrix scaled(Matrix a, double factor);
// a·b, a + b; none if the shapes do not fit. One row is broadcast in a sum.
std::optional<Matrix> product(const Matrix& a, const Matrix& b);
std::optional<Matrix> sum(const Matrix& a, const Matrix& b, double sign = 1);

struct Attended {
  Matrix scores;  // scaled; -inf where hidden if causal
  Matrix weights;
  Matrix output;  // without columns unless a value was given
};

// Row-wise softmax of given scores; -inf hides.
Matrix softmax_rows(const Matrix& scores, bool causal = false);

// By attention_forward. None if the shapes do not fit.
std::optional<Attended> attend(const Matrix& query, const Matrix& key, const Matrix* value,
                               double scale, bool causal);

}  // namespace qkv::check
