#include "qkv/gpt.h"

#include "blocks/fused.h"

namespace qkv {

GptWeights GptWeights::from_arrays(const TensorView& c_attn_weight, const TensorView& c_attn_bias,
                                   const TensorView& c_proj_weight, const TensorView& c_proj_bias,
                                   std::int64_t heads) {
  constexpr Refuse refuse("GptWeights::from_arrays");
  refuse.unless_rank("c_attn.weight", c_attn_weight, 2, "[d, 3·d] or [3·d, d]");
  refuse.unless_rank("c_proj.weight", c_proj_weight, 2, "[d, d]");
  const auto thrice = [](std::int64_t wide, std::int64_t d) {
    return wide % 3 == 0 && wide / 3 == d && d > 0;
  };
  const bool conv1d = thrice(c_attn_weight.dim(1), c_attn_weight.dim(0));
  if (!conv1d && !thrice(c_attn_weight.dim(0), c_attn_weight.dim(1))) {
    refuse.value("c_attn.weight", "shape [d, 3·d] (Conv1D) or [3·d, d] (Linear)",
                 to_string(c_attn_weight.shape()));
  }
  const std::int64_t d = c_attn_weight.dim(conv1d ? 0 : 1);
  refuse.unless_shape("c_proj.weight", c_proj_weight, {d, d}, "[d, d]");
  const auto out_in = [&](const TensorView& weight) {
    return conv1d ? weight.transpose(0, 1) : weight;
  };
  return {{out_in(c_attn_weight), c_attn_bias}, {out_in(c_proj_weight), c_proj_bias}, heads};
}

void gpt_forward(const GptWeights& weights, const TensorView& x, const MutableTensorView& out,
                 const BlockOptions& options) {
  const Call call("gpt_forward", "x", x, options);
  FusedWeights fused;
  fused.qkv_name = "c_attn";
  fused.qkv = weights.c_attn;
  fused.proj_name = "c_proj";
  fused.proj = weights.c_proj;
  fused.heads = weights.heads;
  AttentionOptions attention = options.attention;
  if (attention.causal == Causal::none) attention.causal = Causal::aligned;
  fused_forward(call, fused, attention, x, out);
}

namespace {

// [T, d] or [B, T, d] as one head of each batch entry: [B, 1, T, d].
template <typename View>
View as_one_head(const View& view) {
  const bool batched = view.rank() == 3;
  const Dims shape{batched ? view.dim(0) : 1, 1, view.dim(-2), view.dim(-1)};
  const Dims strides{batched ? view.stride(0) : 0, 0, view.stride(-2), view.stride(-1)};
  return View(view.data(), view.dtype(), shape, strides);
}

}  // namespace

void simple_attention_forward(const TensorView& x, const MutableTensorView& out,
                              const BlockOptions& options) {
  const Call call("simple_attention_forward", "x", x, options);
  if (x.rank() != 2 && x.rank() != 3) {
    call.refuse.value("x", "shape [T, d] or [B, T, d]", to_string(x.shape()));
  }
  Inputs inputs;
  inputs.add("x", x);
  inputs.add(options.attention);
  inputs.check_output(call.refuse, out, x.shape(), "of x");
  call.refuse.unless_dtype("out", out, {x.dtype(), DType::f32, DType::f64});
  AttentionOptions attention = options.attention;
  if (!attention.scale) attention.scale = 1;
  const TensorView tokens = as_one_head(x);
  BlockAttention attend(call, attention, tokens, tokens, tokens, as_one_head(out));
  call.show("input", x);
  attend.run();
  attend.show_stages();
  call.show("output", out);
}

}  // namespace qkv
