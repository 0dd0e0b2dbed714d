#pragma once

// Views as dense lines of f32, which is what the vectorised kernels take.

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/rows.h"
#include "qkv/tensor.h"

namespace qkv {

// f32, aligned, and elements of a row (the last dimension) next to each other.
inline bool has_f32_lines(const TensorView& view) noexcept {
  return view.dtype() == DType::f32 && view.rank() >= 1 &&
         (view.stride(-1) == 1 || view.dim(-1) == 1) &&
         reinterpret_cast<std::uintptr_t>(view.data()) % alignof(float) == 0;
}

// How many elements lie next to each other in all of the views, which have one shape: rows of the
// last dimension, or of the last few where there is no gap between them.
inline std::int64_t line_length(std::initializer_list<const TensorView*> views) noexcept {
  const Dims& shape = (*views.begin())->shape();
  std::int64_t length = shape[-1];
  for (int d = shape.rank() - 2; d >= 0; --d) {
    for (const TensorView* view : views) {
      if (shape[d] != 1 && view->stride(d) != length) return length;
    }
    length *= shape[d];
  }
  return length;
}

// Where the line that starts with element `first` (counted in the order of the indices) starts.
inline const float* line_at(const TensorView& view, std::int64_t first) noexcept {
  const std::int64_t n = view.dim(-1);
  return static_cast<const float*>(view.data()) + row_offset(view, first / n) + first % n;
}
inline float* line_at(const MutableTensorView& view, std::int64_t first) noexcept {
  return const_cast<float*>(line_at(static_cast<const TensorView&>(view), first));
}

}  // namespace qkv
