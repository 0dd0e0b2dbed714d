#include "explain/check/recompute.h"

#include <cmath>
#include <limits>

#include "qkv/attention.h"
#include "qkv/linear.h"

namespace qkv::check {
namespace {

TensorView view_of(const Matrix& m) { return TensorView::of(m.values, {m.rows, m.columns}); }
TensorView as_head(const Matrix& m) { return TensorView::of(m.values, {1, 1, m.rows, m.columns}); }
MutableTensorView as_head(Matrix& m) {
  return MutableTensorView::of(m.values, {1, 1, m.rows, m.columns});
}

bool is_finite(const Matrix& m) {
  for (double v : m.values) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

bool has_bounds(const Matrix& m) {
  for (double b : m.bounds) {
    if (b != 0) return true;
  }
  return false;
}

// |Δ(a·b)| ≤ |Δa|·|b| + |a|·|Δb|
void bound_product(const Matrix& a, const Matrix& b, double factor, Matrix& out) {
  if (!has_bounds(a) && !has_bounds(b)) return;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t c = 0; c < b.columns; ++c) {
      double bound = 0;
      for (std::int64_t k = 0; k < a.columns; ++k) {
        bound += a.bound(r, k) * (std::abs(b.at(k, c)) + b.bound(k, c)) +
                 std::abs(a.at(r, k)) * b.bound(k, c);
      }
      out.bounds[static_cast<std::size_t>(r * out.columns + c)] = bound * std::abs(factor);
    }
  }
}

// |Δw_j| ≤ w_j·(|Δs_j| + Σ_k w_k·|Δs_k|), to first order; e to that is the exact factor.
void bound_softmax(const Matrix& scores, Matrix& weights) {
  if (!has_bounds(scores)) return;
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    double mean = 0;
    for (std::int64_t k = 0; k < scores.columns; ++k) mean += weights.at(r, k) * scores.bound(r, k);
    for (std::int64_t c = 0; c < scores.columns; ++c) {
      weights.bounds[static_cast<std::size_t>(r * weights.columns + c)] =
          weights.at(r, c) * std::expm1(scores.bound(r, c) + mean);
    }
  }
}

void hide_later_keys(Matrix& scores) {
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    for (std::int64_t c = r + 1; c < scores.columns; ++c) {
      scores.at(r, c) = -std::numeric_limits<double>::infinity();
      scores.bounds[static_cast<std::size_t>(r * scores.columns + c)] = 0;
    }
  }
}

}  // namespace

Matrix matrix_of(const Grid& grid, int rounded_from) {
  Matrix m(grid.rows, grid.columns);
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    const Printed& cell = grid.cells[i];
    m.values[i] = cell.value;
    if (cell.decimals >= rounded_from) m.bounds[i] = 0.5 * std::pow(10.0, -cell.decimals);
  }
  return m;
}

Matrix transposed(const Matrix& a) {
  Matrix out(a.columns, a.rows);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t c = 0; c < a.columns; ++c) {
      out.at(c, r) = a.at(r, c);
      out.bounds[static_cast<std::size_t>(c * a.rows + r)] = a.bound(r, c);
    }
  }
  return out;
}

Matrix scaled(Matrix a, double factor) {
  for (double& v : a.values) v *= factor;
  for (double& b : a.bounds) b *= std::abs(factor);
  return a;
}

std::optional<Matrix> product(const Matrix& a, const Matrix& b) {
  if (a.columns != b.rows || a.columns == 0 || !is_finite(a) || !is_finite(b)) return std::nullopt;
  Matrix out(a.rows, b.columns);
  linear_forward({.weight = view_of(b).transpose(0, 1), .bias = {}}, view_of(a),
                 MutableTensorView::of(out.values, {out.rows, out.columns}), {.threads = 1});
  bound_product(a, b, 1, out);
  return out;
}

std::optional<Matrix> sum(const Matrix& a, const Matrix& b, double sign) {
  if (a.columns != b.columns || (a.rows != b.rows && b.rows != 1)) return std::nullopt;
  Matrix out = a;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t c = 0; c < a.columns; ++c) {
      const std::int64_t row = b.rows == 1 ? 0 : r;
      out.at(r, c) += sign * b.at(row, c);
      out.bounds[static_cast<std::size_t>(r * a.columns + c)] += b.bound(row, c);
    }
  }
  return out;
}

// The engine has no softmax of its own, but adds a bias to the scores: with queries and keys of
// zero the given scores are all there is.
Matrix softmax_rows(const Matrix& scores, bool causal) {
  const Matrix query(scores.rows, 1), key(scores.columns, 1), value(scores.columns, 1);
  Matrix out(scores.rows, 1);
  Matrix weights(scores.rows, scores.columns);
  attention_forward(as_head(query), as_head(key), as_head(value), as_head(out),
                    {.scale = 1,
                     .causal = causal ? Causal::top_left : Causal::none,
                     .bias = as_head(scores),
                     .threads = 1},
                    {.weights = as_head(weights)});
  bound_softmax(scores, weights);
  return weights;
}

std::optional<Attended> attend(const Matrix& query, const Matrix& key, const Matrix* value,
                               double scale, bool causal) {
  if (query.columns != key.columns || query.columns == 0 || key.rows == 0) return std::nullopt;
  if (value != nullptr && (value->rows != key.rows || value->columns == 0)) return std::nullopt;
  if (!is_finite(query) || !is_finite(key) || (value != nullptr && !is_finite(*value))) {
    return std::nullopt;
  }
  const Matrix none(key.rows, 1);
  const Matrix& v = value == nullptr ? none : *value;
  Attended a{Matrix(query.rows, key.rows), Matrix(query.rows, key.rows),
             Matrix(query.rows, v.columns)};
  attention_forward(
      as_head(query), as_head(key), as_head(v), as_head(a.output),
      {.scale = scale, .causal = causal ? Causal::top_left : Causal::none, .threads = 1},
      {.scores = as_head(a.scores), .weights = as_head(a.weights)});
  bound_product(query, transposed(key), scale, a.scores);
  if (causal) hide_later_keys(a.scores);
  bound_softmax(a.scores, a.weights);
  if (value == nullptr) {
    a.output = {};
  } else {
    bound_product(a.weights, v, 1, a.output);
  }
  return a;
}

}  // namespace qkv::check
