#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// A 3×3 convolution of each channel with itself alone, padding 1 (x is 0 outside the image):
//
//   y[b, c, h, w] = Σ_{u,v in 0..2} x[b, c, h + u - 1, w + v - 1]·weight[c, u, v] + bias[c]
//
// Everything in it is checked.
struct DepthwiseProblem {
  TensorView x;         // [B, C, H, W]
  TensorView weight;    // [C, 3, 3]
  TensorView bias;      // [C] or none
  MutableTensorView y;  // [B, C, H, W]
};

// Computes channel c of image b. Scratch: 3·(W + 2) + W numbers.
template <typename Real>
void depthwise_reference_plane(const DepthwiseProblem& problem, std::int64_t b, std::int64_t c,
                               Real* scratch) noexcept;

}  // namespace qkv
