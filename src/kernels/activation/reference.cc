#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/rows.h"

namespace qkv {

template <typename Real>
Real activate(Activation activation, Real x) noexcept {
  constexpr Real kRootHalf = static_cast<Real>(0.70710678118654752440);
  constexpr Real kRoot2OverPi = static_cast<Real>(0.79788456080286535588);
  constexpr Real kCubic = static_cast<Real>(0.044715);
  switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return x < 0 ? Real{0} : x;  // NaN stays NaN
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu: return x / 2 * (1 + std::erf(x * kRootHalf));
    case Activation::gelu_tanh: break;
  }
  return x / 2 * (1 + std::tanh(kRoot2OverPi * (x + kCubic * x * x * x)));
}

template float activate(Activation, float) noexcept;
template double activate(Activation, double) noexcept;

template <typename Real>
void silu_reference_row(const TensorView& x, const MutableTensorView& y, std::int64_t row,
                        Real* scratch) noexcept {
  const std::int64_t n = x.dim(-1);
  gather(x, row_offset(x, row), x.stride(-1), n, scratch);
  for (std::int64_t i = 0; i < n; ++i) scratch[i] = activate(Activation::silu, scratch[i]);
  scatter(scratch, n, y, row_offset(y, row), y.stride(-1));
}

template <typename Real>
void add_reference_row(const TensorView& x, const TensorView& b, const MutableTensorView& y,
                       std::int64_t row, Real* scratch) noexcept {
  const std::int64_t n = x.dim(-1);
  gather(x, row_offset(x, row), x.stride(-1), n, scratch);
  gather(b, row_offset(b, row), b.stride(-1), n, scratch + n);
  for (std::int64_t i = 0; i < n; ++i) scratch[i] += scratch[n + i];
  scatter(scratch, n, y, row_offset(y, row), y.stride(-1));
}

template void silu_reference_row(const TensorView&, const MutableTensorView&, std::int64_t,
                                 float*) noexcept;
template void silu_reference_row(const TensorView&, const MutableTensorView&, std::int64_t,
                                 double*) noexcept;
template void add_reference_row(const TensorView&, const TensorView&, const MutableTensorView&,
                                std::int64_t, float*) noexcept;
template void add_reference_row(const TensorView&, const TensorView&, const MutableTensorView&,
                                std::int64_t, double*) noexcept;

}  // namespace qkv
