#pragma once

#include <cstdint>
#include <optional>

#include "qkv/attention.h"
#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// The operator Attention of ONNX, opsets 23 to 25. Names are the operator's own; dimensions as in
// attention.h, with P past tokens, Tn new ones (the token axis of K) and Tk = P + Tn.

// Views that are left empty are not given. Q, K and V are all of rank 4, or all of rank 3 with the
// heads outermost in the last axis; past_key and past_value are of rank 4 in both cases.
struct OnnxAttentionInputs {
  TensorView Q{};  // [B, Hq, Tq, D]    or [B, Tq, Hq·D]: f32, f64, f16 or bf16
  TensorView K{};  // [B, Hkv, Tn, D]   or [B, Tn, Hkv·D]: Q's dtype, as are all that follow
  TensorView V{};  // [B, Hkv, Tn, Dv]  or [B, Tn, Hkv·Dv]

  // Broadcast right-aligned against [B, Hq, Tq, Tk]. bool: true may attend; Q's dtype or f32: added
  // to the scores. A last axis shorter than Tk is padded as masked: also one of 1, which is
  // therefore never stretched.
  TensorView attn_mask{};

  TensorView past_key{};          // [B, Hkv, P, D], with past_value
  TensorView past_value{};        // [B, Hkv, P, Dv], with past_key
  TensorView nonpad_kv_seqlen{};  // [B], i64, each in [0, Tk]; not with past or present. Opset 24
};

// What qk_matmul_output holds; the numbers are those of the attribute qk_matmul_output_mode.
enum class OnnxQkOutput : std::uint8_t {
  raw = 0,            // scale·Q·Kᵀ
  softcapped = 1,     // after softcap
  biased = 2,         // after attn_mask, causal and window: -inf where hidden
  probabilities = 3,  // softmax: 0 where hidden
};

struct OnnxAttentionAttributes {
  bool is_causal = false;
  std::optional<double> scale{};  // 1/√D unless given
  double softcap = 0;             // 0: none
  OnnxQkOutput qk_matmul_output_mode = OnnxQkOutput::raw;
  // f64 computes everything in f64. The other floating types ask for less than what is done
  // anyway, f32, and change nothing.
  std::optional<DType> softmax_precision{};
  std::int64_t left_window_size = -1;   // -1: unbounded. Opset 25
  std::int64_t right_window_size = -1;  // -1: unbounded. Opset 25
  // Needed for inputs of rank 3; for rank 4 they may only repeat what the shapes say.
  std::optional<std::int64_t> q_num_heads{};
  std::optional<std::int64_t> kv_num_heads{};
};

// Where to write. Y is a must, the others are written if their view is given. Y and
// qk_matmul_output are of Q's dtype, as ONNX has it, or f32 or f64; present is of Q's.
struct OnnxAttentionOutputs {
  MutableTensorView Y{};                 // [B, Hq, Tq, Dv], or [B, Tq, Hq·Dv] when Q is of rank 3
  MutableTensorView present_key{};       // [B, Hkv, Tk, D]
  MutableTensorView present_value{};     // [B, Hkv, Tk, Dv]
  MutableTensorView qk_matmul_output{};  // [B, Hq, Tq, Tk]
};

struct OnnxAttentionShapes {
  Dims Y, present_key, present_value, qk_matmul_output;
};

// How to compute it: no part of the operator, and no change of its meaning.
struct OnnxAttentionExecution {
  AttentionKernel kernel = AttentionKernel::automatic;
  SimdTarget target = SimdTarget::automatic;
  int threads = 0;  // 0: num_threads()
};

// The shapes of all outputs, wanted or not. Throws as onnx_attention does.
QKV_API OnnxAttentionShapes onnx_attention_shapes(const OnnxAttentionInputs& inputs,
                                                  const OnnxAttentionAttributes& attributes);

// ONNX Attention on top of attention_forward:
//
//   K' = concat(past_key, K), V' = concat(past_value, V)       [B, Hkv, Tk, D or Dv]
//   S  = scale · Q·K'ᵀ                                         [B, Hq, Tq, Tk]
//   S  = softcap · tanh(S / softcap)                           if softcap is not 0
//   S  = S + attn_mask, entries removed where
//          attn_mask is false, or j > p and is_causal,
//          or j < p - left_window_size, or j > p + right_window_size,
//          or j ≥ nonpad_kv_seqlen[b]
//   Y  = softmax(S)·V',  present_key = K',  present_value = V'
//
// Query i stands at p = i + offset; offset is P with past_key, nonpad_kv_seqlen[b] - Tq with
// nonpad_kv_seqlen, else 0. A query that sees no key gets Y = 0 and probabilities 0. Keys at or
// after nonpad_kv_seqlen[b] do not exist: qk_matmul_output is -inf there, also when it is raw.
//
// Nothing is copied but what concat has to: inputs of rank 3 are read through strides, and so is a
// mask unless it is shorter than Tk. A cache that grows in place costs no copy of its past:
// past_key may be the very bytes of present_key's first P tokens, and K those of the others (the
// same for value). No other output may overlap anything.
//
// Throws Error, before anything is written, if arguments do not fit. ONNX allows V a dtype of its
// own; here it is refused.
//
//   const OnnxAttentionAttributes heads{.q_num_heads = 8, .kv_num_heads = 2};
//   Tensor y(DType::f32, onnx_attention_shapes({.Q = q, .K = k, .V = v}, heads).Y);
//   onnx_attention({.Q = q, .K = k, .V = v}, heads, {.Y = y});
QKV_API void onnx_attention(const OnnxAttentionInputs& inputs,
                            const OnnxAttentionAttributes& attributes,
                            const OnnxAttentionOutputs& outputs,
                            const OnnxAttentionExecution& execution = {});

// The operator RotaryEmbedding of ONNX, opset 23, on top of rope_forward (rope.h); R is
// rotary_embedding_dim, or D.
struct OnnxRotaryInputs {
  TensorView input{};         // [B, H, T, D] or [B, T, H·D]
  TensorView cos_cache{};     // [P, R/2] with position_ids, otherwise [B, T, R/2]
  TensorView sin_cache{};     // as cos_cache
  TensorView position_ids{};  // [B, T], i64 (or i32), each in [0, P)
};

struct OnnxRotaryAttributes {
  bool interleaved = false;
  std::int64_t num_heads = 0;             // needed for an input of rank 3
  std::int64_t rotary_embedding_dim = 0;  // 0: all of D
};

// output has input's shape, and may be it. Throws Error, before anything is written, if arguments
// do not fit or position_ids leave the table.
QKV_API void onnx_rotary_embedding(const OnnxRotaryInputs& inputs,
                                   const OnnxRotaryAttributes& attributes,
                                   const MutableTensorView& output, int threads = 0);

}  // namespace qkv
