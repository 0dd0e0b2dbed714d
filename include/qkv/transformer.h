#pragma once

#include <cstdint>

#include "qkv/export.h"
#include "qkv/linear.h"
#include "qkv/step.h"
#include "qkv/tensor.h"

namespace qkv {

// Multi-head attention of the Transformer:
//
//   MultiHead(Q, K, V) = Concat(head_1 … head_h)·W^O
//   head_i             = softmax(Q·W_i^Q·(K·W_i^K)ᵀ / √d_k)·V·W_i^V
//
// The heads' matrices stand one below the other in one weight (out, in): head i is rows i·d_k to
// (i + 1)·d_k of query.weight. d_v may differ from d_k, and every input may have a width of its
// own.
struct TransformerWeights {
  LinearWeights query{};      // [heads·d_k, width of Q]
  LinearWeights key{};        // [kv_heads·d_k, width of K]
  LinearWeights value{};      // [kv_heads·d_v, width of V]
  LinearWeights output{};     // [d_out, heads·d_v]
  std::int64_t heads = 1;     // h
  std::int64_t kv_heads = 0;  // 0: as many as heads. Otherwise it divides heads, as in attention.h

  // torch.nn.MultiheadAttention's state dict: in_proj_weight [3·E, E] is W^Q, W^K and W^V one below
  // the other; biases may be none. Makes views, copies nothing.
  QKV_API static TransformerWeights from_packed(const TensorView& in_proj_weight,
                                                const TensorView& in_proj_bias,
                                                const TensorView& out_proj_weight,
                                                const TensorView& out_proj_bias,
                                                std::int64_t heads);
};

// Steps:
//   input              [B, Tq, width of Q]
//   key_input          [B, Tk, width of K]        only if it is not the input
//   value_input        [B, Tk, width of V]        only if it is not the key_input
//   query_projection   [B, Tq, heads·d_k]         and key_projection, value_projection
//   query, key, value  [B, heads, T, d_k or d_v]  views of the projections
//   scores … weights   [B, heads, Tq, Tk]
//   heads              [B, heads, Tq, d_v]        a view of concat
//   concat             [B, Tq, heads·d_v]
//   output             [B, Tq, d_out]
//
// Inputs share one batch; each is of any float dtype, as are the weights. Everything is computed
// and kept in f64 if the query's input is f64, otherwise in f32, and rounded once to out's dtype.
// Throws Error, before anything is written, if arguments do not fit or out overlaps any of them.

// Self-attention: Q = K = V = x.
QKV_API void transformer_forward(const TransformerWeights& weights, const TensorView& x,
                                 const MutableTensorView& out, const BlockOptions& options = {});

// Cross-attention: x [B, Tq, …] asks, memory [B, Tk, …] answers.
QKV_API void transformer_forward(const TransformerWeights& weights, const TensorView& x,
                                 const TensorView& memory, const MutableTensorView& out,
                                 const BlockOptions& options = {});

// Q, K and V from three places; K and V have the same length.
QKV_API void transformer_forward(const TransformerWeights& weights, const TensorView& query,
                                 const TensorView& key, const TensorView& value,
                                 const MutableTensorView& out, const BlockOptions& options = {});

}  // namespace qkv
