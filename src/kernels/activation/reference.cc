#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/rows.h"

namespace qkv {

template <typename Real>
Real activate(Activation activation, Real x) noexcept {
  const auto sigmoid = [](Real z) { return 1 / (1 + std::exp(-z)); };
  switch (activation) {
    case Activation::none: break;
    case Activation::relu: return x < 0 ? Real{0} : x;  // NaN stays NaN
    case Activation::gelu:
      // erfc keeps the digits of a large negative x, where 1 + erf would lose them all.
      return x * std::erfc(-x * static_cast<Real>(0.70710678118654752440)) / 2;
    case Activation::gelu_tanh:
      return x * sigmoid(static_cast<Real>(1.5957691216057307117) *
                         (x + static_cast<Real>(0.044715) * x * x * x));
    case Activation::quick_gelu: return x * sigmoid(static_cast<Real>(1.702) * x);
    case Activation::silu: return x * sigmoid(x);
  }
  return x;
}

template float activate(Activation, float) noexcept;
template double activate(Activation, double) noexcept;

template <typename Real>
void activation_reference_row(Activation activation, const TensorView& x,
                              const MutableTensorView& y, std::int64_t row,
                              Real* scratch) noexcept {
  const std::int64_t n = x.dim(-1);
  gather(x, row_offset(x, row), x.stride(-1), n, scratch);
  for (std::int64_t i = 0; i < n; ++i) scratch[i] = activate(activation, scratch[i]);
  scatter(scratch, n, y, row_offset(y, row), y.stride(-1));
}

template <typename Real>
void gated_reference_row(Activation activation, const TensorView& gate, const TensorView& x,
                         const MutableTensorView& y, std::int64_t row, Real* scratch) noexcept {
  const std::int64_t n = x.dim(-1);
  gather(gate, row_offset(gate, row), gate.stride(-1), n, scratch);
  gather(x, row_offset(x, row), x.stride(-1), n, scratch + n);
  for (std::int64_t i = 0; i < n; ++i) {
    scratch[i] = activate(activation, scratch[i]) * scratch[n + i];
  }
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

#define QKV_INSTANTIATE(Real)                                                                     \
  template void activation_reference_row(Activation, const TensorView&, const MutableTensorView&, \
                                         std::int64_t, Real*) noexcept;                           \
  template void gated_reference_row(Activation, const TensorView&, const TensorView&,             \
                                    const MutableTensorView&, std::int64_t, Real*) noexcept;      \
  template void add_reference_row(const TensorView&, const TensorView&, const MutableTensorView&, \
                                  std::int64_t, Real*) noexcept;
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(double)
#undef QKV_INSTANTIATE

}  // namespace qkv
