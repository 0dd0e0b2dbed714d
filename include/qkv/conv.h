#pragma once

#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// A convolution, as views of weights that someone else owns:
//   1×1            weight [out, in, 1, 1] or [out, in]
//   depthwise 3×3  weight [channels, 1, 3, 3]
struct ConvWeights {
  TensorView weight{};
  TensorView bias{};  // [out], or none
};

// A BatchNorm at inference: y = (x - mean)·weight / √(variance + eps) + bias, channel by channel.
struct BatchNorm {
  TensorView weight{};    // [channels], or none: 1
  TensorView bias{};      // [channels], or none: 0
  TensorView mean{};      // [channels], running_mean of a state dict
  TensorView variance{};  // [channels], running_var
  double eps = 1e-3;  // the detector family's; state dicts do not hold it. PyTorch's own is 1e-5
};

// Weights that a fold has made.
struct FoldedConv {
  Tensor weight{};
  Tensor bias{};
  ConvWeights view() const noexcept { return {weight.view(), bias.view()}; }
};

// One convolution that does what `conv` and then `norm` do:
//
//   weight'[o, …] = weight[o, …]·g[o]              g = norm.weight / √(variance + eps)
//   bias'[o]      = (bias[o] - mean[o])·g[o] + norm.bias[o]
//
// Computed in f64; kept in f64 if the convolution's weight is, otherwise in f32. Throws Error if
// arguments do not fit or a variance + eps is not above 0.
QKV_API FoldedConv fold_batch_norm(const ConvWeights& conv, const BatchNorm& norm);

}  // namespace qkv
