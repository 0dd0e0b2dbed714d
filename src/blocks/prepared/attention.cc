#include "blocks/prepared/attention_core.h"
#include "qkv/prepared.h"

namespace qkv {
namespace {

// x [B, T, width], out [B, T, out_width].
void check_tokens(const Call& call, const TensorView& x, std::int64_t width,
                  const MutableTensorView& out, std::int64_t out_width) {
  call.refuse.unless_rank("x", x, 3, "[B, T, width]");
  if (x.dim(2) != width) {
    call.refuse.value("x", fmt::format("shape [B, T, {}]", width), to_string(x.shape()));
  }
  call.refuse.unless_shape("out", out, {x.dim(0), x.dim(1), out_width}, "[B, T, d_out]");
  check_prepared_call(call, x, out);
}

Dims tokens_or_refuse(std::string_view subject, const Dims& x, std::int64_t width) {
  constexpr Refuse refuse("plan");
  if (x.rank() != 3 || x[0] < 0 || x[1] < 0 || x[2] != width) {
    refuse.value(subject, fmt::format("shape [B, T, {}]", width), to_string(x));
  }
  element_count(x);
  return x;
}

}  // namespace

PreparedAttention::PreparedAttention(const TransformerWeights& weights,
                                     const PrepareOptions& options)
    : core_(std::make_shared<const Core>(weights, options)) {}
PreparedAttention::PreparedAttention(const VitWeights& weights, const PrepareOptions& options)
    : core_(std::make_shared<const Core>(weights, options)) {}
PreparedAttention::PreparedAttention(const GptWeights& weights, const PrepareOptions& options)
    : core_(std::make_shared<const Core>(weights, options)) {}

void PreparedAttention::forward(const TensorView& x, const MutableTensorView& out,
                                const BlockOptions& options) const {
  const Call call("PreparedAttention", "x", x, options);
  check_tokens(call, x, core_->width(), out, core_->out_width());
  const std::int64_t B = x.dim(0), T = x.dim(1);
  Tensor wide;
  AttentionOptions attention = inner_options(call, wide);
  core_->adapt(attention);
  check_inner_attention(call, core_->shape(B, T, call.dtype), attention);
  run_sequences(
      call, attention, core_->pool(), B, T,
      [&](std::int64_t n) { return core_->workspace(n, T, call.dtype); },
      [&](const Scope& scope, std::int64_t begin, std::int64_t end) {
        core_->run(scope, x.slice(0, begin, end), out.slice(0, begin, end), {});
      });
}

BlockPlan PreparedAttention::plan(const Dims& x, const BlockOptions& options) const {
  const std::int64_t B = tokens_or_refuse("x", x, core_->width())[0], T = x[1];
  AttentionOptions attention = options.attention;
  core_->adapt(attention);
  BlockPlan plan;
  plan_sequences(plan, options, B, T,
                 [&](std::int64_t n) { return core_->workspace(n, T, DType::f32); });
  plan.weights = core_->weight_bytes();
  core_->describe(plan, "", B, T, T, attention);
  return plan;
}

PreparedCrossAttention::PreparedCrossAttention(const TransformerWeights& weights,
                                               const PrepareOptions& options)
    : core_(std::make_shared<const Core>(weights, options)) {}

PreparedCrossAttention::Memory PreparedCrossAttention::read_in(const TensorView& memory,
                                                               DType dtype,
                                                               const BlockOptions& options) const {
  const Call call("PreparedCrossAttention", "memory", memory, options);
  call.refuse.unless_rank("memory", memory, 3, "[B, Tk, width]");
  if (memory.dim(2) != core_->memory_width()) {
    call.refuse.value("memory", fmt::format("shape [B, Tk, {}]", core_->memory_width()),
                      to_string(memory.shape()));
  }
  Memory result;
  result.keys_values_ = Tensor(dtype, {memory.dim(0), memory.dim(1), core_->kv_width()});
  Laps laps(options.profile);
  Laps::Clock clock(laps, 1);
  core_->read({dtype, options.threads, {}, nullptr, &clock}, memory, result.keys_values_);
  return result;
}

PreparedCrossAttention::Memory PreparedCrossAttention::read(const TensorView& memory,
                                                            const BlockOptions& options) const {
  const Call call("PreparedCrossAttention::read", "memory", memory, options);
  return read_in(memory, call.dtype, options);
}

void PreparedCrossAttention::forward(const TensorView& x, const Memory& memory,
                                     const MutableTensorView& out,
                                     const BlockOptions& options) const {
  const Call call("PreparedCrossAttention", "x", x, options);
  check_tokens(call, x, core_->width(), out, core_->out_width());
  const TensorView kv = memory.keys_values();
  call.refuse.unless_rank("memory", kv, 3, "[B, Tk, …]");
  call.refuse.unless_shape("memory", kv, {x.dim(0), kv.dim(1), core_->kv_width()},
                           "as read() gave it");
  call.refuse.unless_dtype("memory", kv, {call.dtype});
  call.refuse.if_overlap("out", out, "memory", kv);
  const std::int64_t B = x.dim(0), T = x.dim(1);
  Tensor wide;
  const AttentionOptions attention = inner_options(call, wide);
  check_inner_attention(call, core_->shape(B, T, kv.dim(1), call.dtype), attention);
  run_sequences(
      call, attention, core_->pool(), B, T,
      [&](std::int64_t n) { return core_->workspace(n, T, call.dtype); },
      [&](const Scope& scope, std::int64_t begin, std::int64_t end) {
        core_->run(scope, x.slice(0, begin, end), kv.slice(0, begin, end), out.slice(0, begin, end),
                   {});
      });
}

void PreparedCrossAttention::forward(const TensorView& x, const TensorView& memory,
                                     const MutableTensorView& out,
                                     const BlockOptions& options) const {
  const Call call("PreparedCrossAttention", "x", x, options);
  check_tokens(call, x, core_->width(), out, core_->out_width());
  call.refuse.if_overlap("out", out, "memory", memory);
  forward(x, read_in(memory, call.dtype, options), out, options);
}

BlockPlan PreparedCrossAttention::plan(const Dims& x, const Dims& memory,
                                       const BlockOptions& options) const {
  const std::int64_t B = tokens_or_refuse("x", x, core_->width())[0], T = x[1];
  const std::int64_t Tk = tokens_or_refuse("memory", memory, core_->memory_width())[1];
  BlockPlan plan;
  plan_sequences(plan, options, B, T,
                 [&](std::int64_t n) { return core_->workspace(n, T, DType::f32); });
  plan.workspace += padded_bytes(DType::f32, {B, Tk, core_->kv_width()});
  plan.weights = core_->weight_bytes();
  core_->describe(plan, "", B, T, Tk, options.attention);
  return plan;
}

}  // namespace qkv
