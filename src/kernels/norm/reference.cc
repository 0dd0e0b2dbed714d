#include <cmath>

#include "kernels/norm/norm.h"
#include "kernels/rows.h"

namespace qkv {

template <typename Real>
void norm_reference_row(const NormProblem& p, std::int64_t row, Real* scratch) noexcept {
  const std::int64_t n = p.x.dim(-1);
  const Real count = static_cast<Real>(n);
  Real* x = scratch;
  Real* factor = scratch + n;
  gather(p.x, row_offset(p.x, row), p.x.stride(-1), n, x);
  if (p.weights.kind == NormKind::layer) {
    Real sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x[i];
    // The mean goes first: the sum of squares minus its square would cancel.
    for (std::int64_t i = 0; i < n; ++i) x[i] -= sum / count;
  }
  Real squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  const Real inverse = 1 / std::sqrt(squares / count + static_cast<Real>(p.weights.eps));
  for (std::int64_t i = 0; i < n; ++i) x[i] *= inverse;
  if (p.weights.weight.has_value()) {
    gather(p.weights.weight, 0, p.weights.weight.stride(0), n, factor);
    for (std::int64_t i = 0; i < n; ++i) x[i] *= factor[i];
  }
  if (p.weights.bias.has_value()) {
    gather(p.weights.bias, 0, p.weights.bias.stride(0), n, factor);
    for (std::int64_t i = 0; i < n; ++i) x[i] += factor[i];
  }
  scatter(x, n, p.y, row_offset(p.y, row), p.y.stride(-1));
}

template void norm_reference_row(const NormProblem&, std::int64_t, float*) noexcept;
template void norm_reference_row(const NormProblem&, std::int64_t, double*) noexcept;

}  // namespace qkv
