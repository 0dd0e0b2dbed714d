// A tile of outputs at a time: its weights are widened and laid side by side, so that each step of
// the sum over i reads one x and a dense line of weights, whatever the layout of the arguments.

#include <algorithm>
#include <array>

#include "kernels/activation/activation.h"
#include "kernels/linear/linear.h"
#include "kernels/rows.h"

namespace qkv {
namespace {

template <typename Real>
using Outputs = std::array<Real, static_cast<std::size_t>(kLinearOutputs)>;

// packed[i, o - begin] = weight[o, i]; columns past the last output stay 0. `line` has `in`
// numbers.
template <typename Real>
void pack_weights(const LinearProblem& p, const LinearTile& tile, Real* packed,
                  Real* line) noexcept {
  std::fill(packed, packed + p.in * kLinearOutputs, Real{0});
  for (std::int64_t o = tile.output_begin; o < tile.output_end; ++o) {
    gather(p.weight, o * p.weight.stride(0), p.weight.stride(1), p.in, line);
    Real* column = packed + (o - tile.output_begin);
    for (std::int64_t i = 0; i < p.in; ++i) column[i * kLinearOutputs] = line[i];
  }
}

template <typename Real>
Outputs<Real> products(const Real* x, const Real* packed, std::int64_t in) noexcept {
  Outputs<Real> sums{};
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::size_t o = 0; o < sums.size(); ++o) {
      sums[o] += x[i] * packed[i * kLinearOutputs + static_cast<std::int64_t>(o)];
    }
  }
  return sums;
}

template <typename Real>
void add_residual(const LinearProblem& p, std::int64_t row, std::int64_t begin, std::int64_t count,
                  Outputs<Real>& y) noexcept {
  Outputs<Real> residual{};
  const std::int64_t step = p.residual.stride(-1);
  gather(p.residual, row_offset(p.residual, row) + begin * step, step, count, residual.data());
  for (std::size_t o = 0; o < y.size(); ++o) y[o] += residual[o];
}

}  // namespace

template <typename Real>
void linear_reference_tile(const LinearProblem& p, const LinearTile& tile, Real* scratch) noexcept {
  Real* packed = scratch;
  Real* x = scratch + kLinearOutputs * p.in;
  const std::int64_t count = tile.output_end - tile.output_begin;
  pack_weights(p, tile, packed, x);
  Outputs<Real> bias{};
  if (p.bias.has_value()) {
    const std::int64_t step = p.bias.stride(0);
    gather(p.bias, tile.output_begin * step, step, count, bias.data());
  }
  for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row) {
    gather(p.x, row_offset(p.x, row), p.x.stride(-1), p.in, x);
    Outputs<Real> y = products(x, packed, p.in);
    for (std::size_t o = 0; o < y.size(); ++o) y[o] = activate(p.activation, y[o] + bias[o]);
    if (p.residual.has_value()) add_residual(p, row, tile.output_begin, count, y);
    const std::int64_t step = p.y.stride(-1);
    scatter(y.data(), count, p.y, row_offset(p.y, row) + tile.output_begin * step, step);
  }
}

template void linear_reference_tile(const LinearProblem&, const LinearTile&, float*) noexcept;
template void linear_reference_tile(const LinearProblem&, const LinearTile&, double*) noexcept;

}  // namespace qkv
