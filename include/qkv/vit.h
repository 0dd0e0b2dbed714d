#pragma once

#include <cstdint>
#include <optional>

#include "qkv/export.h"
#include "qkv/linear.h"
#include "qkv/norm.h"
#include "qkv/step.h"
#include "qkv/tensor.h"

namespace qkv {

// The attention of a vision transformer, with the names of timm:
//
//   qkv     = x·[Wq | Wk | Wv] + b              one Linear(dim, 3·dim)
//   q, k, v = qkv.reshape(B, N, 3, heads, head_dim).permute(2, 0, 3, 1, 4)
//   q, k    = q_norm(q), k_norm(k)              over head_dim, where there are any
//   out     = proj(concat(softmax(q·kᵀ / √head_dim)·v))
struct VitWeights {
  LinearWeights qkv{};                            // [3·heads·head_dim, dim]
  LinearWeights proj{};                           // [dim, heads·head_dim]
  std::optional<NormWeights> q_norm{}, k_norm{};  // [head_dim]
  std::int64_t heads = 1;
};

// x [B, N, dim]   out [B, N, rows of proj]
//
// Steps:
//   input                  [B, N, dim]
//   qkv                    [B, N, 3·heads·head_dim]
//   split                  [B, N, 3, heads, head_dim]  moves no number: three drawers
//   query, key, value      [B, heads, N, head_dim]     views of qkv
//   query_norm, key_norm   the same, where there is a norm
//   scores … weights       [B, heads, N, N]
//   heads                  [B, heads, N, head_dim]     a view of concat
//   concat                 [B, N, heads·head_dim]
//   output                 [B, N, dim]
//
// Computed in f64 if x is f64, otherwise in f32, and rounded once to out's dtype; weights are of
// any float dtype. Throws Error, before anything is written, if arguments do not fit or out
// overlaps any of them.
QKV_API void vit_forward(const VitWeights& weights, const TensorView& x,
                         const MutableTensorView& out, const BlockOptions& options = {});

}  // namespace qkv
