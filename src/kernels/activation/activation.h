#pragma once

#include <cstdint>

#include "qkv/activation.h"
#include "qkv/tensor.h"

namespace qkv {

// One element; the formulas stand in qkv/activation.h.
template <typename Real>
Real activate(Activation activation, Real x) noexcept;

// Element by element. All views have one shape; y may be any of the others. Rows r count through
// all dimensions but the last, n elements each. Scratch: 2·n numbers.

// y = activation(x)
template <typename Real>
void activation_reference_row(Activation activation, const TensorView& x,
                              const MutableTensorView& y, std::int64_t row, Real* scratch) noexcept;

// y = activation(gate)·x
template <typename Real>
void gated_reference_row(Activation activation, const TensorView& gate, const TensorView& x,
                         const MutableTensorView& y, std::int64_t row, Real* scratch) noexcept;

// y = x + b
template <typename Real>
void add_reference_row(const TensorView& x, const TensorView& b, const MutableTensorView& y,
                       std::int64_t row, Real* scratch) noexcept;

}  // namespace qkv
