#include "qkv/layers.h"

#include "blocks/prepared/layer_core.h"

namespace qkv {
namespace {

void check_tokens(const Call& call, const TensorView& x, std::int64_t width,
                  const MutableTensorView& out) {
  call.refuse.unless_rank("x", x, 3, "[B, T, width]");
  if (x.dim(2) != width) {
    call.refuse.value("x", fmt::format("shape [B, T, {}]", width), to_string(x.shape()));
  }
  call.refuse.unless_shape("out", out, x.shape(), "of x");
  check_prepared_call(call, x, out);
}

void check_shape(std::string_view subject, const Dims& x, std::int64_t width) {
  if (x.rank() != 3 || x[0] < 0 || x[1] < 0 || x[2] != width) {
    Refuse("plan").value(subject, fmt::format("shape [B, T, {}]", width), to_string(x));
  }
  element_count(x);
}

}  // namespace

PreparedEncoderLayer::PreparedEncoderLayer(const EncoderLayerWeights& weights,
                                           const PrepareOptions& options)
    : core_(std::make_shared<const Core>(weights, options)) {}

void PreparedEncoderLayer::forward(const TensorView& x, const MutableTensorView& out,
                                   const BlockOptions& options) const {
  const Call call("PreparedEncoderLayer", "x", x, options);
  check_tokens(call, x, core_->width(), out);
  const std::int64_t B = x.dim(0), T = x.dim(1);
  Tensor wide;
  const AttentionOptions attention = inner_options(call, wide);
  check_inner_attention(call, core_->attention().shape(B, T, call.dtype), attention);
  run_sequences(
      call, attention, core_->pool(), B, T,
      [&](std::int64_t n) { return core_->workspace(n, T, call.dtype); },
      [&](const Scope& scope, std::int64_t begin, std::int64_t end) {
        core_->run(scope, x.slice(0, begin, end), out.slice(0, begin, end));
      });
}

BlockPlan PreparedEncoderLayer::plan(const Dims& x, const BlockOptions& options) const {
  check_shape("x", x, core_->width());
  BlockPlan plan;
  plan_sequences(plan, options, x[0], x[1],
                 [&](std::int64_t n) { return core_->workspace(n, x[1], DType::f32); });
  plan.weights = core_->weight_bytes();
  core_->describe(plan, "", x[0], x[1], x[1], options.attention);
  return plan;
}

PreparedDecoderLayer::PreparedDecoderLayer(const TransformerDecoderLayerWeights& weights,
                                           const PrepareOptions& options)
    : core_(std::make_shared<const Core>(weights, options)) {}

PreparedCrossAttention::Memory PreparedDecoderLayer::read(const TensorView& memory,
                                                          int threads) const {
  BlockOptions options;
  options.threads = threads;
  return core_->cross().read(memory, options);
}

void PreparedDecoderLayer::forward(const TensorView& x,
                                   const PreparedCrossAttention::Memory& memory,
                                   const MutableTensorView& out,
                                   const DecoderOptions& options) const {
  const BlockOptions self{options.self_attention, options.threads, {}, options.profile};
  const BlockOptions cross{options.cross_attention, options.threads, {}, options.profile};
  const Call call("PreparedDecoderLayer", "x", x, self);
  const Call crossing("PreparedDecoderLayer", "x", x, cross);
  check_tokens(call, x, core_->width(), out);
  check_prepared_call(crossing, x, out);
  const TensorView kv = memory.keys_values();
  const std::int64_t B = x.dim(0), T = x.dim(1);
  call.refuse.unless_rank("memory", kv, 3, "[B, Tk, …]");
  call.refuse.unless_shape("memory", kv, {B, kv.dim(1), core_->cross().core().kv_width()},
                           "as read() gave it");
  call.refuse.unless_dtype("memory", kv, {call.dtype});
  call.refuse.if_overlap("out", out, "memory", kv);
  Tensor wide, wide_cross;
  const AttentionOptions attention = inner_options(call, wide);
  const AttentionOptions other = inner_options(crossing, wide_cross);
  check_inner_attention(call, core_->self().shape(B, T, call.dtype), attention);
  check_inner_attention(call, core_->cross().core().shape(B, T, kv.dim(1), call.dtype), other);
  run_sequences(
      call, attention, core_->pool(), B, T,
      [&](std::int64_t n) { return core_->workspace(n, T, call.dtype); },
      [&](const Scope& scope, std::int64_t begin, std::int64_t end) {
        core_->run(scope, options_of(other, begin, end), x.slice(0, begin, end),
                   kv.slice(0, begin, end), out.slice(0, begin, end));
      });
}

void PreparedDecoderLayer::forward(const TensorView& x, const TensorView& memory,
                                   const MutableTensorView& out,
                                   const DecoderOptions& options) const {
  const BlockOptions self{options.self_attention, options.threads, {}, options.profile};
  const Call call("PreparedDecoderLayer", "x", x, self);
  check_tokens(call, x, core_->width(), out);
  call.refuse.if_overlap("out", out, "memory", memory);
  BlockOptions reading;
  reading.threads = options.threads;
  reading.profile = options.profile;
  forward(x, core_->cross().read_in(memory, call.dtype, reading), out, options);
}

BlockPlan PreparedDecoderLayer::plan(const Dims& x, const Dims& memory,
                                     const DecoderOptions& options) const {
  check_shape("x", x, core_->width());
  check_shape("memory", memory, core_->cross().core().memory_width());
  const BlockOptions self{options.self_attention, options.threads, {}, nullptr};
  BlockPlan plan;
  plan_sequences(plan, self, x[0], x[1],
                 [&](std::int64_t n) { return core_->workspace(n, x[1], DType::f32); });
  plan.workspace += padded_bytes(DType::f32, {x[0], memory[1], core_->cross().core().kv_width()});
  plan.weights = core_->weight_bytes();
  core_->describe(plan, x[0], x[1], memory[1], options);
  return plan;
}

}  // namespace qkv
