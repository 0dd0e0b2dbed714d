#pragma once

#include <cstdint>

#include "qkv/linear.h"
#include "qkv/tensor.h"

namespace qkv {

// One element; the formulas stand in qkv/linear.h.
template <typename Real>
Real activate(Activation activation, Real x) noexcept;

// Element by element. All views have one shape; y may be x or b. Rows r count through all
// dimensions but the last, n elements each. Scratch: 2·n numbers.

// y = x·sigmoid(x) = x / (1 + exp(-x))
template <typename Real>
void silu_reference_row(const TensorView& x, const MutableTensorView& y, std::int64_t row,
                        Real* scratch) noexcept;

// y = x + b
template <typename Real>
void add_reference_row(const TensorView& x, const TensorView& b, const MutableTensorView& y,
                       std::int64_t row, Real* scratch) noexcept;

}  // namespace qkv
