#pragma once

#include <cstdint>

#include "qkv/export.h"
#include "qkv/linear.h"
#include "qkv/step.h"
#include "qkv/tensor.h"

namespace qkv {

// The causal self-attention of GPT-2, with its names: c_attn makes [Q | K | V] of each token, and
// c_proj mixes the heads. A token sees itself and the ones before it.
struct GptWeights {
  LinearWeights c_attn{};  // [3·d, d]
  LinearWeights c_proj{};  // [d, d]
  std::int64_t heads = 1;

  // Weights as a checkpoint has them: (in, out) if they were a Conv1D, as in OpenAI's and Hugging
  // Face's files, or (out, in) if a Linear, as in minGPT's. c_attn's shape, [d, 3·d] or [3·d, d],
  // tells which, also for c_proj, whose square shape does not. Biases may be none. Makes views.
  QKV_API static GptWeights from_arrays(const TensorView& c_attn_weight,
                                        const TensorView& c_attn_bias,
                                        const TensorView& c_proj_weight,
                                        const TensorView& c_proj_bias, std::int64_t heads);
};

// x [B, T, d]   out [B, T, rows of c_proj]
//
// Causal, unless options.attention.causal asks for another alignment. (Without causality the same
// weights are a ViT's: see vit_forward.)
//
// Steps:
//   input               [B, T, d]
//   qkv                 [B, T, 3·d]
//   query, key, value   [B, heads, T, d / heads]   views of qkv
//   scores … weights    [B, heads, T, T]
//   heads               [B, heads, T, d / heads]   a view of concat
//   concat              [B, T, d]
//   output              [B, T, d]
//
// Computed in f64 if x is f64, otherwise in f32, and rounded once to out's dtype; weights are of
// any float dtype. Throws Error, before anything is written, if arguments do not fit or out
// overlaps any of them.
QKV_API void gpt_forward(const GptWeights& weights, const TensorView& x,
                         const MutableTensorView& out, const BlockOptions& options = {});

// Self-attention at its simplest, with no weights, and no scale unless one is given:
//
//   Z = softmax(X·Xᵀ)·X
//
// x [T, d] or [B, T, d]; out of the same shape, in x's dtype, f32 or f64.
// Steps: input, scores … weights [B, 1, T, T], output.
QKV_API void simple_attention_forward(const TensorView& x, const MutableTensorView& out,
                                      const BlockOptions& options = {});

}  // namespace qkv
