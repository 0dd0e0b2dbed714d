#pragma once

// Rows of any float dtype and stride as dense f32 or f64, and back. With these a kernel is written
// once for each type that it computes in, and not once for each that its arguments may have.

#include <cstdint>

#include "base/element.h"
#include "qkv/tensor.h"

namespace qkv {

// Rows of a view: one for each index of all dimensions but the last.
inline std::int64_t row_count(const TensorView& view) noexcept {
  std::int64_t count = 1;
  for (int d = 0; d < view.rank() - 1; ++d) count *= view.dim(d);
  return count;
}

// Where row `row` starts, in elements.
inline std::int64_t row_offset(const TensorView& view, std::int64_t row) noexcept {
  std::int64_t offset = 0;
  for (int d = view.rank() - 2; d >= 0; --d) {
    offset += row % view.dim(d) * view.stride(d);
    row /= view.dim(d);
  }
  return offset;
}

// to[i] = element offset + i·stride, for i < n
template <typename Real>
void gather(const TensorView& from, std::int64_t offset, std::int64_t stride, std::int64_t n,
            Real* to) noexcept {
  visit_float(from.dtype(), [&](auto tag) {
    const void* base = from.data();
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = static_cast<Real>(load<decltype(tag)>(base, offset + i * stride));
    }
  });
}

// element offset + i·stride = from[i], rounded once, for i < n
template <typename Real>
void scatter(const Real* from, std::int64_t n, const MutableTensorView& to, std::int64_t offset,
             std::int64_t stride) noexcept {
  visit_float(to.dtype(), [&](auto tag) {
    void* base = to.data();
    for (std::int64_t i = 0; i < n; ++i) {
      store(base, offset + i * stride, static_cast<decltype(tag)>(from[i]));
    }
  });
}

}  // namespace qkv
