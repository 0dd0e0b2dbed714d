#include "qkv/transformer.h"

#include "blocks/block.h"
#include "ops/linear.h"

namespace qkv {

TransformerWeights TransformerWeights::from_packed(const TensorView& in_proj_weight,
                                                   const TensorView& in_proj_bias,
                                                   const TensorView& out_proj_weight,
                                                   const TensorView& out_proj_bias,
                                                   std::int64_t heads) {
  constexpr Refuse refuse("TransformerWeights::from_packed");
  refuse.unless_rank("in_proj_weight", in_proj_weight, 2, "[3·E, E]");
  const std::int64_t E = in_proj_weight.dim(1);
  if (in_proj_weight.dim(0) / 3 != E || in_proj_weight.dim(0) % 3 != 0) {
    refuse.value("in_proj_weight", "shape [3·E, E]", to_string(in_proj_weight.shape()));
  }
  if (in_proj_bias.has_value()) {
    refuse.unless_shape("in_proj_bias", in_proj_bias, {3 * E}, "[3·E]");
  }
  refuse.unless_shape("out_proj_weight", out_proj_weight, {E, E}, "[E, E]");
  if (out_proj_bias.has_value()) refuse.unless_shape("out_proj_bias", out_proj_bias, {E}, "[E]");
  const auto third = [&](std::int64_t i) {
    return LinearWeights{
        in_proj_weight.slice(0, i * E, (i + 1) * E),
        in_proj_bias.has_value() ? in_proj_bias.slice(0, i * E, (i + 1) * E) : TensorView()};
  };
  return {third(0), third(1), third(2), {out_proj_weight, out_proj_bias}, heads, 0};
}

namespace {

// The widths that the weights agree on.
struct Widths {
  std::int64_t heads, kv_heads, d_k, d_v, out;
};

// `total` numbers as `heads` equal parts.
std::int64_t part_of(const Refuse& refuse, std::string_view subject, std::int64_t total,
                     std::int64_t heads) {
  if (total < heads || total % heads != 0) {
    refuse.value(subject, fmt::format("rows for each of {} heads", heads),
                 fmt::format("{} rows", total));
  }
  return total / heads;
}

Widths check_weights(const Refuse& refuse, const TransformerWeights& weights, std::int64_t q_width,
                     std::int64_t k_width, std::int64_t v_width) {
  Widths w{};
  check_positive(refuse, "heads", weights.heads);
  w.heads = weights.heads;
  w.kv_heads = weights.kv_heads == 0 ? weights.heads : weights.kv_heads;
  if (w.kv_heads < 1 || w.heads % w.kv_heads != 0) {
    refuse.value("kv_heads", fmt::format("a number that divides the {} heads, or 0", w.heads),
                 fmt::format("{}", weights.kv_heads));
  }
  const std::int64_t q_rows = check_linear(refuse, "query.", weights.query, q_width);
  const std::int64_t k_rows = check_linear(refuse, "key.", weights.key, k_width);
  const std::int64_t v_rows = check_linear(refuse, "value.", weights.value, v_width);
  w.d_k = part_of(refuse, "query.weight", q_rows, w.heads);
  if (k_rows != w.kv_heads * w.d_k) {
    refuse.value("key.weight",
                 fmt::format("{} rows: {} heads as wide as the query's {}", w.kv_heads * w.d_k,
                             w.kv_heads, w.d_k),
                 fmt::format("{} rows", k_rows));
  }
  w.d_v = part_of(refuse, "value.weight", v_rows, w.kv_heads);
  w.out = check_linear(refuse, "output.", weights.output, w.heads * w.d_v);
  return w;
}

// Where one of Q, K and V comes from, by the name that the caller knows it by. Self-attention has
// three sources of one name, cross-attention from a memory two.
struct Source {
  std::string_view name;
  const TensorView& view;  // [B, T, width]
};

void check_sources(const Refuse& refuse, const Source& query, const Source& key,
                   const Source& value) {
  for (const Source* source : {&query, &key, &value}) {
    refuse.unless_rank(source->name, source->view, 3, "[B, T, width]");
    refuse.unless_float(source->name, source->view);
    if (source->view.dim(0) != query.view.dim(0)) {
      refuse.value(source->name, fmt::format("shape [{}, T, width]", query.view.dim(0)),
                   to_string(source->view.shape()));
    }
  }
  if (value.view.dim(1) != key.view.dim(1)) {
    refuse.value(
        value.name,
        fmt::format("shape [{}, {}, width] to fit {}", key.view.dim(0), key.view.dim(1), key.name),
        to_string(value.view.shape()));
  }
}

// [B, T, heads·d] as [B, heads, T, d], whatever a view is made of.
template <typename View>
View split_heads(const View& view, std::int64_t heads, std::int64_t d) {
  return view.unflatten(2, {heads, d}).permute({0, 2, 1, 3});
}

void check_out(const Call& call, const TransformerWeights& weights, const Source& query,
               const Source& key, const Source& value, const MutableTensorView& out,
               std::int64_t width) {
  Inputs inputs;
  for (const Source* source : {&query, &key, &value}) inputs.add(source->name, source->view);
  inputs.add("query", weights.query);
  inputs.add("key", weights.key);
  inputs.add("value", weights.value);
  inputs.add("output", weights.output);
  inputs.add(call.options.attention);
  inputs.check_output(call.refuse, out, {query.view.dim(0), query.view.dim(1), width},
                      "[B, Tq, d_out]");
}

void forward(const TransformerWeights& weights, const Source& q, const Source& k, const Source& v,
             const MutableTensorView& out, const BlockOptions& options) {
  const Call call("transformer_forward", q.name, q.view, options);
  check_sources(call.refuse, q, k, v);
  const Widths w = check_weights(call.refuse, weights, q.view.dim(2), k.view.dim(2), v.view.dim(2));
  check_out(call, weights, q, k, v, out, w.out);
  const std::int64_t B = q.view.dim(0), Tq = q.view.dim(1), Tk = k.view.dim(1);

  Tensor q_proj(call.dtype, {B, Tq, w.heads * w.d_k});
  Tensor k_proj(call.dtype, {B, Tk, w.kv_heads * w.d_k});
  Tensor v_proj(call.dtype, {B, Tk, w.kv_heads * w.d_v});
  Tensor concat(call.dtype, {B, Tq, w.heads * w.d_v});
  const TensorView query = split_heads(q_proj.view(), w.heads, w.d_k);
  const TensorView key = split_heads(k_proj.view(), w.kv_heads, w.d_k);
  const TensorView value = split_heads(v_proj.view(), w.kv_heads, w.d_v);
  const MutableTensorView heads = split_heads(concat.view(), w.heads, w.d_v);
  BlockAttention attention(call, options.attention, query, key, value, heads);

  call.show("input", q.view);
  if (k.name != q.name) call.show("key_input", k.view);
  if (v.name != k.name) call.show("value_input", v.view);
  run_linear(weights.query, q.view, q_proj, call.dtype, options.threads);
  call.show("query_projection", q_proj);
  run_linear(weights.key, k.view, k_proj, call.dtype, options.threads);
  call.show("key_projection", k_proj);
  run_linear(weights.value, v.view, v_proj, call.dtype, options.threads);
  call.show("value_projection", v_proj);
  call.show("query", query);
  call.show("key", key);
  call.show("value", value);
  attention.run();
  attention.show_stages();
  call.show("heads", heads);
  call.show("concat", concat);
  run_linear(weights.output, concat, out, call.dtype, options.threads);
  call.show("output", out);
}

}  // namespace

void transformer_forward(const TransformerWeights& weights, const TensorView& x,
                         const MutableTensorView& out, const BlockOptions& options) {
  forward(weights, {"x", x}, {"x", x}, {"x", x}, out, options);
}

void transformer_forward(const TransformerWeights& weights, const TensorView& x,
                         const TensorView& memory, const MutableTensorView& out,
                         const BlockOptions& options) {
  forward(weights, {"x", x}, {"memory", memory}, {"memory", memory}, out, options);
}

void transformer_forward(const TransformerWeights& weights, const TensorView& query,
                         const TensorView& key, const TensorView& value,
                         const MutableTensorView& out, const BlockOptions& options) {
  forward(weights, {"query", query}, {"key", key}, {"value", value}, out, options);
}

}  // namespace qkv
