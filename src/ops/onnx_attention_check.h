#pragma once

#include "qkv/onnx.h"

namespace qkv {

// What onnx_attention works on: every argument checked, every tensor as a view of rank 4.
struct OnnxAttentionProblem {
  std::int64_t B = 0, Hq = 0, Hkv = 0, Tq = 0, P = 0, Tn = 0, Tk = 0, D = 0, Dv = 0;
  bool rank_3 = false;    // Q, K, V and Y, as the caller has them
  TensorView query;       // [B, Hq, Tq, D]
  TensorView new_key;     // [B, Hkv, Tn, D]
  TensorView new_value;   // [B, Hkv, Tn, Dv]
  MutableTensorView out;  // [B, Hq, Tq, Dv]

  OnnxAttentionShapes shapes() const;
};

// Whether two views are the same elements in the same order.
bool same_window(const TensorView& a, const TensorView& b) noexcept;

// Inputs and attributes alone; leaves `out` empty.
OnnxAttentionProblem check_onnx_attention(const OnnxAttentionInputs& inputs,
                                          const OnnxAttentionAttributes& attributes);

OnnxAttentionProblem check_onnx_attention(const OnnxAttentionInputs& inputs,
                                          const OnnxAttentionAttributes& attributes,
                                          const OnnxAttentionOutputs& outputs,
                                          const OnnxAttentionExecution& execution);

}  // namespace qkv
