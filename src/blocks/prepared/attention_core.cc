#include "blocks/prepared/attention_core.h"

#include "ops/linear.h"
#include "ops/norm.h"

namespace qkv {
namespace {

// [B, T, columns], of which those from `first` on are heads of width d: [B, heads, T, d].
template <typename View>
View heads_of(const View& view, std::int64_t first, std::int64_t heads, std::int64_t d) {
  return view.slice(2, first, first + heads * d).unflatten(2, {heads, d}).permute({0, 2, 1, 3});
}

std::int64_t bytes_of(const PreparedLinear& linear) {
  return static_cast<std::int64_t>(linear.bytes());
}

// The check of a fused map [3·heads·head_dim, width], which has no names of its own.
HeadSplit check_fused(const Refuse& refuse, std::string_view qkv_name, const LinearWeights& qkv,
                      std::string_view proj_name, const LinearWeights& proj, std::int64_t heads) {
  check_positive(refuse, "heads", heads);
  const std::string name = fmt::format("{}.", qkv_name);
  refuse.unless_rank(name + "weight", qkv.weight, 2, "[3·heads·head_dim, width]");
  const std::int64_t rows = check_linear(refuse, name, qkv, qkv.weight.dim(1));
  if (rows == 0 || rows % 3 != 0 || rows / 3 % heads != 0) {
    refuse.value(name + "weight", fmt::format("3·heads·head_dim rows, for heads = {}", heads),
                 fmt::format("{} rows", rows));
  }
  check_linear(refuse, fmt::format("{}.", proj_name), proj, rows / 3);
  const std::int64_t d = rows / 3 / heads;
  return {heads, heads, d, d};
}

std::int64_t part_of(const Refuse& refuse, std::string_view subject, std::int64_t total,
                     std::int64_t heads) {
  if (total < heads || total % heads != 0) {
    refuse.value(subject, fmt::format("rows for each of {} heads", heads),
                 fmt::format("{} rows", total));
  }
  return total / heads;
}

}  // namespace

HeadSplit check_heads(const Refuse& refuse, const TransformerWeights& weights,
                      std::int64_t query_width, std::int64_t memory_width) {
  HeadSplit s;
  check_positive(refuse, "heads", weights.heads);
  s.heads = weights.heads;
  s.kv_heads = weights.kv_heads == 0 ? weights.heads : weights.kv_heads;
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
    refuse.value("kv_heads", fmt::format("a number that divides the {} heads, or 0", s.heads),
                 fmt::format("{}", weights.kv_heads));
  }
  const std::int64_t q_rows = check_linear(refuse, "query.", weights.query, query_width);
  const std::int64_t k_rows = check_linear(refuse, "key.", weights.key, memory_width);
  const std::int64_t v_rows = check_linear(refuse, "value.", weights.value, memory_width);
  s.d_k = part_of(refuse, "query.weight", q_rows, s.heads);
  if (k_rows != s.keys()) {
    refuse.value(
        "key.weight",
        fmt::format("{} rows: {} heads as wide as the query's {}", s.keys(), s.kv_heads, s.d_k),
        fmt::format("{} rows", k_rows));
  }
  s.d_v = part_of(refuse, "value.weight", v_rows, s.kv_heads);
  check_linear(refuse, "output.", weights.output, s.concat());
  return s;
}

// ---- self-attention

PreparedAttention::Core::Core(const TransformerWeights& weights, const PrepareOptions& options) {
  constexpr Refuse refuse("PreparedAttention");
  refuse.unless_rank("query.weight", weights.query.weight, 2, "[heads·d_k, width]");
  const std::int64_t width = weights.query.weight.dim(1);
  split_ = check_heads(refuse, weights, width, width);
  qkv_ = PreparedLinear({weights.query, weights.key, weights.value}, options);
  proj_ = PreparedLinear(weights.output, options);
}

PreparedAttention::Core::Core(const VitWeights& weights, const PrepareOptions& options) {
  constexpr Refuse refuse("PreparedAttention");
  split_ = check_fused(refuse, "qkv", weights.qkv, "proj", weights.proj, weights.heads);
  if (weights.q_norm) {
    check_norm(refuse, "q_norm.", *weights.q_norm, split_.d_k);
    q_norm_.emplace(*weights.q_norm);
  }
  if (weights.k_norm) {
    check_norm(refuse, "k_norm.", *weights.k_norm, split_.d_k);
    k_norm_.emplace(*weights.k_norm);
  }
  qkv_ = PreparedLinear(weights.qkv, options);
  proj_ = PreparedLinear(weights.proj, options);
}

PreparedAttention::Core::Core(const GptWeights& weights, const PrepareOptions& options)
    : causal_(true) {
  constexpr Refuse refuse("PreparedAttention");
  split_ = check_fused(refuse, "c_attn", weights.c_attn, "c_proj", weights.c_proj, weights.heads);
  qkv_ = PreparedLinear(weights.c_attn, options);
  proj_ = PreparedLinear(weights.c_proj, options);
}

std::int64_t PreparedAttention::Core::weight_bytes() const noexcept {
  return bytes_of(qkv_) + bytes_of(proj_) + (q_norm_ ? q_norm_->bytes() : 0) +
         (k_norm_ ? k_norm_->bytes() : 0);
}

AttentionShape PreparedAttention::Core::shape(std::int64_t B, std::int64_t T,
                                              DType dtype) const noexcept {
  return {B, split_.heads, split_.kv_heads, T, T, split_.d_k, split_.d_v, dtype};
}

void PreparedAttention::Core::adapt(AttentionOptions& options) const {
  if (causal_ && options.causal == Causal::none) options.causal = Causal::aligned;
}

std::int64_t PreparedAttention::Core::workspace(std::int64_t B, std::int64_t T, DType dtype) const {
  return padded_bytes(dtype, {B, T, qkv_.out()}) + padded_bytes(dtype, {B, T, split_.concat()});
}

void PreparedAttention::Core::run(const Scope& scope, const TensorView& x,
                                  const MutableTensorView& out, const TensorView& residual) const {
  Arena arena(scope.memory);
  const std::int64_t B = x.dim(0), T = x.dim(1), wanted = out.dim(1);
  const MutableTensorView qkv = arena.take(scope.dtype, {B, T, qkv_.out()});
  const MutableTensorView concat = arena.take(scope.dtype, {B, wanted, split_.concat()});
  const MutableTensorView query = heads_of(qkv.slice(1, 0, wanted), 0, split_.heads, split_.d_k);
  const MutableTensorView key = heads_of(qkv, split_.queries(), split_.kv_heads, split_.d_k);
  const MutableTensorView value =
      heads_of(qkv, split_.queries() + split_.keys(), split_.kv_heads, split_.d_v);
  run_linear(qkv_, x, qkv, scope.dtype, scope.threads);
  scope.clock->lap("qkv");
  if (q_norm_) run_norm(q_norm_->view(), query, query, scope.dtype, scope.threads);
  if (k_norm_) run_norm(k_norm_->view(), key, key, scope.dtype, scope.threads);
  if (q_norm_ || k_norm_) scope.clock->lap("q/k norm");
  attention_forward(query, key, value, heads_of(concat, 0, split_.heads, split_.d_v),
                    scope.attention);
  scope.clock->lap("attention");
  run_linear(proj_, concat, out, scope.dtype, scope.threads, {Activation::none, residual});
  scope.clock->lap("output");
}

void PreparedAttention::Core::describe(BlockPlan& plan, const std::string& prefix, std::int64_t B,
                                       std::int64_t T, std::int64_t wanted,
                                       const AttentionOptions& options) const {
  describe_product(plan, prefix + "qkv", qkv_, B * T);
  if (q_norm_ || k_norm_) {
    plan.steps.push_back({prefix + "q/k norm", fmt::format("rows of {}", split_.d_k), 0});
  }
  AttentionShape inner = shape(B, T, DType::f32);
  inner.Tq = wanted;
  describe_attention(plan, prefix + "attention", inner, options);
  describe_product(plan, prefix + "output", proj_, B * wanted);
}

// ---- cross-attention

PreparedCrossAttention::Core::Core(const TransformerWeights& weights,
                                   const PrepareOptions& options) {
  constexpr Refuse refuse("PreparedCrossAttention");
  refuse.unless_rank("query.weight", weights.query.weight, 2, "[heads·d_k, width]");
  refuse.unless_rank("key.weight", weights.key.weight, 2, "[kv_heads·d_k, width]");
  split_ = check_heads(refuse, weights, weights.query.weight.dim(1), weights.key.weight.dim(1));
  query_ = PreparedLinear(weights.query, options);
  kv_ = PreparedLinear({weights.key, weights.value}, options);
  proj_ = PreparedLinear(weights.output, options);
}

std::int64_t PreparedCrossAttention::Core::weight_bytes() const noexcept {
  return bytes_of(query_) + bytes_of(kv_) + bytes_of(proj_);
}

AttentionShape PreparedCrossAttention::Core::shape(std::int64_t B, std::int64_t Tq, std::int64_t Tk,
                                                   DType dtype) const noexcept {
  return {B, split_.heads, split_.kv_heads, Tq, Tk, split_.d_k, split_.d_v, dtype};
}

void PreparedCrossAttention::Core::read(const Scope& scope, const TensorView& memory,
                                        const MutableTensorView& keys_values) const {
  run_linear(kv_, memory, keys_values, scope.dtype, scope.threads);
  scope.clock->lap("memory");
}

std::int64_t PreparedCrossAttention::Core::workspace(std::int64_t B, std::int64_t Tq,
                                                     DType dtype) const {
  return padded_bytes(dtype, {B, Tq, query_.out()}) + padded_bytes(dtype, {B, Tq, split_.concat()});
}

void PreparedCrossAttention::Core::run(const Scope& scope, const TensorView& x,
                                       const TensorView& keys_values, const MutableTensorView& out,
                                       const TensorView& residual) const {
  Arena arena(scope.memory);
  const std::int64_t B = x.dim(0), T = x.dim(1);
  const MutableTensorView query = arena.take(scope.dtype, {B, T, query_.out()});
  const MutableTensorView concat = arena.take(scope.dtype, {B, T, split_.concat()});
  run_linear(query_, x, query, scope.dtype, scope.threads);
  scope.clock->lap("query");
  attention_forward(heads_of(TensorView(query), 0, split_.heads, split_.d_k),
                    heads_of(keys_values, 0, split_.kv_heads, split_.d_k),
                    heads_of(keys_values, split_.keys(), split_.kv_heads, split_.d_v),
                    heads_of(concat, 0, split_.heads, split_.d_v), scope.attention);
  scope.clock->lap("cross-attention");
  run_linear(proj_, concat, out, scope.dtype, scope.threads, {Activation::none, residual});
  scope.clock->lap("cross output");
}

void PreparedCrossAttention::Core::describe(BlockPlan& plan, const std::string& prefix,
                                            std::int64_t B, std::int64_t Tq, std::int64_t Tk,
                                            const AttentionOptions& options) const {
  describe_product(plan, prefix + "query", query_, B * Tq);
  describe_product(plan, prefix + "memory", kv_, B * Tk);
  describe_attention(plan, prefix + "cross-attention", shape(B, Tq, Tk, DType::f32), options);
  describe_product(plan, prefix + "cross output", proj_, B * Tq);
}

}  // namespace qkv
