#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/rows.h"

namespace qkv {

template <typename Real>
void silu_reference_row(const TensorView& x, const MutableTensorView& y, std::int64_t row,
                        Real* scratch) noexcept {
  const std::int64_t n = x.dim(-1);
  gather(x, row_offset(x, row), x.stride(-1), n, scratch);
  for (std::int64_t i = 0; i < n; ++i) scratch[i] /= 1 + std::exp(-scratch[i]);
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
