#include "tests/block_oracle.h"

#include <algorithm>

namespace qkv::testing {

Matrix matrix_of(const TensorView& view) {
  Matrix m(view.dim(0), view.dim(1));
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < m.columns; ++c) m(r, c) = view.at({r, c});
  }
  return m;
}

Matrix linear_oracle(const Matrix& x, const Matrix& w, const std::vector<double>& b) {
  const std::int64_t in = w.columns, out = w.rows;
  Matrix columns(in, out);  // of w
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t i = 0; i < in; ++i) columns(i, o) = w(o, i);
  }
  Matrix y(x.rows, out);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double* to = &y.values[static_cast<std::size_t>(r * out)];
    if (!b.empty()) std::copy(b.begin(), b.end(), to);
    for (std::int64_t i = 0; i < in; ++i) {
      const double factor = x(r, i);
      const double* column = &columns.values[static_cast<std::size_t>(i * out)];
      for (std::int64_t o = 0; o < out; ++o) to[o] += factor * column[o];
    }
  }
  return y;
}

namespace {

Matrix head_of(const Matrix& m, std::int64_t head, std::int64_t heads) {
  Matrix part(m.rows, m.columns / heads);
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < part.columns; ++c) part(r, c) = m(r, head * part.columns + c);
  }
  return part;
}

}  // namespace

Matrix attention_oracle(const Matrix& q, const Matrix& k, const Matrix& v, std::int64_t heads,
                        const Visible& visible, Scores& scores) {
  Matrix out(q.rows, v.columns);
  for (std::int64_t h = 0; h < heads; ++h) {
    const Matrix qh = head_of(q, h, heads), kh = head_of(k, h, heads), vh = head_of(v, h, heads);
    Matrix weights = linear_oracle(qh, kh);  // q·kᵀ
    for (std::int64_t i = 0; i < weights.rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < weights.columns; ++j) {
        const double score = weights(i, j) / std::sqrt(static_cast<double>(qh.columns));
        const bool seen = visible(i, j);
        if (seen) scores.squares += score * score;
        if (seen) ++scores.count;
        weights(i, j) = seen ? std::exp(score) : 0;  // scores are small here: no overflow
        sum += weights(i, j);
      }
      for (std::int64_t j = 0; j < weights.columns; ++j) {
        for (std::int64_t d = 0; d < vh.columns; ++d) {
          out(i, h * vh.columns + d) += weights(i, j) / sum * vh(j, d);
        }
      }
    }
  }
  return out;
}

Matrix layer_norm_oracle(const Matrix& x, std::int64_t width, const std::vector<double>& weight,
                         const std::vector<double>& bias, double eps) {
  Matrix y = x;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t first = 0; first < x.columns; first += width) {
      double mean = 0, variance = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        mean += x(r, first + c) / static_cast<double>(width);
      }
      for (std::int64_t c = 0; c < width; ++c) {
        variance += std::pow(x(r, first + c) - mean, 2) / static_cast<double>(width);
      }
      for (std::int64_t c = 0; c < width; ++c) {
        const std::size_t n = static_cast<std::size_t>(c);
        y(r, first + c) =
            (x(r, first + c) - mean) / std::sqrt(variance + eps) * weight[n] + bias[n];
      }
    }
  }
  return y;
}

}  // namespace qkv::testing
