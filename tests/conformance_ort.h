#pragma once

// ONNX Runtime's three attention operators, as far as their published vectors go, in terms of
// attention_forward.

#include <vector>

#include "qkv/attention.h"
#include "qkv/tensor.h"
#include "tests/conformance_case.h"

namespace qkv::testing {

// A call of attention_forward, and what it points to. Key and value hold the past too: they are
// what the operators give out as present_key and present_value.
struct OrtCall {
  TensorView query, key, value;  // [B, H, T, ·]
  AttentionOptions options;
  std::vector<Tensor> storage;
};

//   Attention(com.microsoft)  [Q|K|V] = X·W + qkv_bias, each of H·D columns
//   MultiHeadAttention        Q, K, V + qkv_bias; K and V of rank 3 or 4; past; key_padding_mask
//                             [B, Tk], true may attend; attention_bias
//   GroupQueryAttention       Q, K, V or packed in Q; past; always causal; seqlens_k is the number
//                             of all keys of a batch entry, minus 1
//
// Throws std::runtime_error for an operator, input or attribute that it does not know: nothing of a
// case is left out in silence.
OrtCall ort_call(const ConformanceCase& data);

}  // namespace qkv::testing
