#pragma once

#include <cstdint>

#include "qkv/norm.h"
#include "qkv/tensor.h"

namespace qkv {

// layer  y[r, i] = (x[r, i] - m)·weight[i] / √(v + eps) + bias[i]
//        m = Σ_i x[r, i] / n,  v = Σ_i (x[r, i] - m)² / n
// rms    the same with m = 0
//
// Everything in it is checked. Rows r count through all dimensions but the last. y may be x.
struct NormProblem {
  TensorView x;         // [..., n]
  NormWeights weights;  // [n] each
  MutableTensorView y;  // [..., n]
};

// Computes one row. Scratch: 2·n numbers.
template <typename Real>
void norm_reference_row(const NormProblem& problem, std::int64_t row, Real* scratch) noexcept;

}  // namespace qkv
