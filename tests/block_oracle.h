#pragma once

// The blocks a second time, for tests: in f64, token by token, on vectors of doubles, with loops of
// their own. They share no code with the library: weights come out of views, that is all. Heads are
// cut out as copies, channels come last everywhere, and BatchNorm is evaluated and not folded.

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "qkv/tensor.h"

namespace qkv::testing {

// Rows of doubles.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
  double operator()(std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
};

// A view of rank 2, as it is indexed.
Matrix matrix_of(const TensorView& view);

// x·wᵀ + b, with w [out, in] and b [out] or none.
Matrix linear_oracle(const Matrix& x, const Matrix& w, const std::vector<double>& b = {});

// The size of the scores that a softmax was taken of.
struct Scores {
  double squares = 0;
  std::int64_t count = 0;
  double mean_square() const { return squares / static_cast<double>(count); }
};

// softmax(q·kᵀ / √d_k)·v for each of `heads` heads, which lie side by side in the columns.
// visible(i, j): whether query i sees key j.
using Visible = std::function<bool(std::int64_t, std::int64_t)>;
Matrix attention_oracle(const Matrix& q, const Matrix& k, const Matrix& v, std::int64_t heads,
                        const Visible& visible, Scores& scores);

// (x - mean) / √(variance + eps)·weight + bias over `width` neighbouring columns at a time.
Matrix layer_norm_oracle(const Matrix& x, std::int64_t width, const std::vector<double>& weight,
                         const std::vector<double>& bias, double eps);

// How far a block that computes with a rounding unit of eps/2 may be from exact numbers. Roundings
// are taken as independent. A sum of n terms is rounded n times, each time by at most eps/2 of what
// it has come to, so it is off by up to √n·eps/2 of its size. Such an error goes through the later
// steps as the numbers themselves do, and errors of different steps add up in squares:
//
//   a relative error of the output of eps/2·√(Σ n over the sums on the way + scores)
//
// A score is a sum of d products of numbers that are sums of n terms each: it is off by
// eps/2·√(2·n + d) of the scores' usual size (root mean square), and its weight relatively by that.
//
// In deviations, with 1/√3 for a rounding within its bound and 1/√2 for a sum on its way, one is
// 0.4·eps/2·√(…) of the usual output; the largest of a million errors is five of these. `of` allows
// eps·√(…) of the largest output, which is four or five usual ones: a margin of about 5.
class Tolerance {
 public:
  void sum_of(std::int64_t n) { squares_ += static_cast<double>(n); }
  void scores_of(std::int64_t n, std::int64_t d, const Scores& scores) {
    squares_ += static_cast<double>(2 * n + d) * scores.mean_square();
  }
  double of(double eps, double largest_output) const {
    return eps * std::sqrt(squares_) * largest_output;
  }

 private:
  double squares_ = 0;
};

}  // namespace qkv::testing
