#pragma once

#include <span>

#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// What attention gave over a part of the keys.
struct AttentionPart {
  TensorView out{};  // [B, Hq, Tq, Dv]
  TensorView lse{};  // [B, Hq, Tq]
};

// Attention over all keys out of attention over disjoint parts of them, in their order:
//
//   L = log Σ exp(lse_n)      out = Σ exp(lse_n - L)·out_n
//
// A part whose queries see nothing has an LSE of -inf, and adds nothing; without any part, out is 0
// and L -inf. With a sink, one of the parts carries it. Computed in f64; any float dtypes and
// strides. `out` and `lse` (which may be left out) may be those of a part. Throws Error, before
// anything is written, if shapes do not fit.
QKV_API void merge_attention(std::span<const AttentionPart> parts, const MutableTensorView& out,
                             const MutableTensorView& lse = {}, int threads = 0);

}  // namespace qkv
