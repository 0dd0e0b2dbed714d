#pragma once

#include <cstdint>

#include "qkv/linear.h"

namespace qkv {

enum class NormKind : std::uint8_t {
  layer,  // (x - mean) / √(variance + eps), the variance over n, not n - 1
  rms,    // x / √(mean of x² + eps)
};

// Brings rows of width n to a common size, then scales and shifts each channel.
struct NormWeights {
  TensorView weight{};  // [n], or none: 1
  TensorView bias{};    // [n], or none: 0
  double eps = 1e-6;    // timm's; PyTorch's LayerNorm has 1e-5. Checkpoints do not say
  NormKind kind = NormKind::layer;
};

// out[..., i] = normed(x[..., :])[i]·weight[i] + bias[i]
//
// Dtypes, strides and errors as in linear_forward, except that out may be x itself (the same
// elements with the same strides).
QKV_API void norm_forward(const NormWeights& weights, const TensorView& x,
                          const MutableTensorView& out, const LinearOptions& options = {});

}  // namespace qkv
