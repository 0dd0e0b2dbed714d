#pragma once

#include "qkv/attention.h"
#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// A linear map, as views of weights that someone else owns.
struct LinearWeights {
  TensorView weight{};  // [out, in], any strides: a Conv1D's (in, out) array is its transpose
  TensorView bias{};    // [out], or none
};

struct LinearOptions {
  Accumulate accumulate = Accumulate::natural;
  int threads = 0;  // 0: num_threads(). Never changes a bit of a result
};

// The same linear map for every row:
//
//   out[..., o] = Σ_i x[..., i]·weight[o, i] + bias[o]
//
//   x [..., in]   out [..., out]
//
// Any float dtypes and strides, each of its own. Computed in f64 if x is f64 (or accumulate says
// so), otherwise in f32; rounded once to out's dtype. Throws Error, before anything is written, if
// arguments do not fit or out overlaps itself, x or a weight.
QKV_API void linear_forward(const LinearWeights& weights, const TensorView& x,
                            const MutableTensorView& out, const LinearOptions& options = {});

}  // namespace qkv
