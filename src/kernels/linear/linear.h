#pragma once

#include <cstdint>

#include "qkv/linear.h"
#include "qkv/tensor.h"

namespace qkv {

// y[r, o] = activation(Σ_i x[r, i]·weight[o, i] + bias[o]) + residual[r, o]
//
// Everything in it is checked. Rows r count through all dimensions but the last.
struct LinearProblem {
  std::int64_t rows = 0, in = 0, out = 0;
  TensorView x;         // [..., in]
  TensorView weight;    // [out, in]
  TensorView bias;      // [out] or none
  MutableTensorView y;  // [..., out]
  Activation activation = Activation::none;
  TensorView residual;  // [..., out] or none; may be y
  bool far = false;     // another core most likely has the lines of y (see LinearEpilogue)
};

// Rows and outputs of one tile, half-open. A tile has at most kLinearOutputs outputs.
struct LinearTile {
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t output_begin = 0, output_end = 0;
};

inline constexpr std::int64_t kLinearOutputs = 16;

// Numbers of Real that a tile needs to work: kLinearScratchRows · in.
inline constexpr std::int64_t kLinearScratchRows = kLinearOutputs + 1;

// Every sum runs over i from the first to the last, so its bits do not depend on the tile. Real is
// what is computed in: float or double.
template <typename Real>
void linear_reference_tile(const LinearProblem& problem, const LinearTile& tile,
                           Real* scratch) noexcept;

}  // namespace qkv
