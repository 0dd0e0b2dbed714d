#include "tests/conformance_ort.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "qkv/linear.h"

namespace qkv::testing {
namespace {

using Names = std::set<std::string>;

void only(const ConformanceCase& data, const Names& inputs, const Names& attributes) {
  for (const auto& [name, array] : data.inputs) {
    if (!inputs.contains(name)) throw std::runtime_error(data.op + ": unknown input " + name);
  }
  for (const auto& [name, value] : data.attributes.items()) {
    if (!attributes.contains(name)) {
      throw std::runtime_error(data.op + ": unknown attribute " + name);
    }
  }
}

// [B, T, H·D] as [B, H, T, D]; what is of rank 4 is that already.
TensorView split_heads(const TensorView& view, std::int64_t heads) {
  if (view.rank() == 4) return view;
  return view.unflatten(2, {heads, view.dim(2) / heads}).permute({0, 2, 1, 3});
}

TensorView keep(OrtCall& call, Tensor tensor) {
  call.storage.push_back(std::move(tensor));
  return std::as_const(call.storage.back()).view();
}

// view [..., n] + bias [n].
TensorView plus_bias(OrtCall& call, const TensorView& view, const TensorView& bias) {
  Tensor sum = Tensor::copy_of(view);
  const std::int64_t n = view.dim(-1);
  auto elements = sum.as<float>();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] += static_cast<float>(bias.at({static_cast<std::int64_t>(i) % n}));
  }
  return keep(call, std::move(sum));
}

TensorView concat_tokens(OrtCall& call, const TensorView& past, const TensorView& added) {
  if (!past.has_value()) return added;
  const std::int64_t P = past.dim(2), T = P + added.dim(2);
  Tensor all(added.dtype(), {added.dim(0), added.dim(1), T, added.dim(3)});
  copy(past, all.view().slice(2, 0, P));
  copy(added, all.view().slice(2, P, T));
  return keep(call, std::move(all));
}

OrtCall attention(const ConformanceCase& data) {
  only(data, {"X", "W", "qkv_bias"}, {"num_heads"});
  OrtCall call;
  const std::int64_t H = data.attributes.at("num_heads");
  const TensorView X = data.input("X"), W = data.input("W");
  Tensor packed(X.dtype(), {X.dim(0), X.dim(1), W.dim(1)});
  linear_forward({W.transpose(0, 1), data.input("qkv_bias")}, X, packed);
  const TensorView qkv = keep(call, std::move(packed));
  const std::int64_t width = W.dim(1) / 3;
  call.query = split_heads(qkv.slice(2, 0, width), H);
  call.key = split_heads(qkv.slice(2, width, 2 * width), H);
  call.value = split_heads(qkv.slice(2, 2 * width, 3 * width), H);
  return call;
}

OrtCall multi_head_attention(const ConformanceCase& data) {
  only(data,
       {"Q", "K", "V", "qkv_bias", "past_key", "past_value", "key_padding_mask", "attention_bias"},
       {"num_heads"});
  OrtCall call;
  const std::int64_t H = data.attributes.at("num_heads");
  TensorView Q = data.input("Q"), K = data.input("K"), V = data.input("V");
  if (const TensorView bias = data.input("qkv_bias"); bias.has_value()) {
    if (K.rank() != 3) throw std::runtime_error("MultiHeadAttention: bias with K of rank 4");
    const std::int64_t q = Q.dim(2), k = q + K.dim(2), v = k + V.dim(2);
    Q = plus_bias(call, Q, bias.slice(0, 0, q));
    K = plus_bias(call, K, bias.slice(0, q, k));
    V = plus_bias(call, V, bias.slice(0, k, v));
  }
  call.query = split_heads(Q, H);
  call.key = concat_tokens(call, data.input("past_key"), split_heads(K, H));
  call.value = concat_tokens(call, data.input("past_value"), split_heads(V, H));
  if (const TensorView mask = data.input("key_padding_mask"); mask.has_value()) {
    call.options.mask = mask.unflatten(0, {mask.dim(0), 1, 1});
  }
  call.options.bias = data.input("attention_bias");
  return call;
}

OrtCall group_query_attention(const ConformanceCase& data) {
  only(data, {"Q", "K", "V", "past_key", "past_value", "seqlens_k", "total_sequence_length"},
       {"num_heads", "kv_num_heads"});
  OrtCall call;
  const std::int64_t H = data.attributes.at("num_heads"), Hkv = data.attributes.at("kv_num_heads");
  TensorView Q = data.input("Q"), K = data.input("K"), V = data.input("V");
  if (!K.has_value()) {
    const std::int64_t D = Q.dim(2) / (H + 2 * Hkv);
    K = Q.slice(2, H * D, (H + Hkv) * D);
    V = Q.slice(2, (H + Hkv) * D, Q.dim(2));
    Q = Q.slice(2, 0, H * D);
  }
  call.query = split_heads(Q, H);
  call.key = concat_tokens(call, data.input("past_key"), split_heads(K, Hkv));
  call.value = concat_tokens(call, data.input("past_value"), split_heads(V, Hkv));
  // [B], or [B, 1] as older models have it.
  const TensorView last = data.input("seqlens_k").flatten(0, data.input("seqlens_k").rank() - 1);
  Tensor lengths(DType::i32, last.shape()), offsets(DType::i32, last.shape());
  double longest = 0;
  for (std::int64_t b = 0; b < last.dim(0); ++b) {
    const double length = last.at({b}) + 1;
    lengths.view().set({b}, length);
    offsets.view().set({b}, length - static_cast<double>(call.query.dim(2)));
    longest = std::max(longest, length);
  }
  if (longest != data.input("total_sequence_length").at({0})) {
    throw std::runtime_error("GroupQueryAttention: seqlens_k and total_sequence_length disagree");
  }
  call.options.key_lengths = keep(call, std::move(lengths));
  call.options.offsets = keep(call, std::move(offsets));
  call.options.causal = Causal::aligned;
  return call;
}

}  // namespace

OrtCall ort_call(const ConformanceCase& data) {
  if (data.op == "Attention(com.microsoft)") return attention(data);
  if (data.op == "MultiHeadAttention") return multi_head_attention(data);
  if (data.op == "GroupQueryAttention") return group_query_attention(data);
  throw std::runtime_error("unknown operator " + data.op);
}

}  // namespace qkv::testing
