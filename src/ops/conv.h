#pragma once

// Convolutions on images [B, C, H, W] of any strides. Both are for blocks: check all weights first,
// compute later.

#include <cstdint>
#include <string_view>

#include "ops/refuse.h"
#include "qkv/conv.h"
#include "qkv/linear.h"

namespace qkv {

// A 1×1 convolution is one linear map for every pixel.

// Refuses weights that are not [out, in, 1, 1] or [out, in] of `in` channels, and a bias that is
// not [out]; returns them as a linear map. The subject of an error is `name`.weight or `name`.bias.
LinearWeights check_pointwise(const Refuse& refuse, std::string_view name,
                              const ConvWeights& weights, std::int64_t in);

// The same for weights that are known to fit.
LinearWeights pointwise_matrix(const ConvWeights& weights);

// out[b, o, h, w] = Σ_i x[b, i, h, w]·weight[o, i] + bias[o], computed in `dtype` (f32 or f64)
void run_pointwise(const LinearWeights& weights, const TensorView& x, const MutableTensorView& out,
                   DType dtype, int threads);

// Refuses weights that are not [channels, 1, 3, 3] and a bias that is not [channels].
void check_depthwise(const Refuse& refuse, std::string_view name, const ConvWeights& weights,
                     std::int64_t channels);

// Each channel by itself, 3×3, padding 1 (kernels/conv/depthwise.h).
void run_depthwise(const ConvWeights& weights, const TensorView& x, const MutableTensorView& out,
                   DType dtype, int threads);

// The same where the vectorised kernel can do it, on channels in groups: images
// [B, groups, channels / groups, H, W], f32, lines of x and out without gaps between their
// elements, weights without gaps. Adds to what is in out if `accumulate`. `scratch` has
// kDepthwiseLines·depthwise_padded(W) numbers for each of the workers of B·channels items.
bool has_fast_depthwise(const ConvWeights& weights, const TensorView& x,
                        const MutableTensorView& out);
void run_fast_depthwise(const ConvWeights& weights, const TensorView& x,
                        const MutableTensorView& out, bool accumulate, int threads, float* scratch);

}  // namespace qkv
