#include "blocks/prepared/detector_core.h"

#include "blocks/detector_run.h"
#include "kernels/simd/row_kernels.h"
#include "ops/activation.h"
#include "ops/conv.h"
#include "ops/linear.h"

namespace qkv {
namespace {

Tensor own(const TensorView& view) {
  return Tensor::copy_of(view, view.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

std::int64_t bytes_of(const PreparedLinear& linear) {
  return static_cast<std::int64_t>(linear.bytes());
}

PreparedLinear prepare(const ConvWeights& conv, const PrepareOptions& options) {
  return PreparedLinear(pointwise_matrix(conv), options);
}

// Smaller images are not worth a second way. (One pixel would have no lanes: see run_some_outputs.)
constexpr std::int64_t kPixelsByHeads = 64;

Dims lines_of(const ImageSize& size, std::int64_t planes, int threads) {
  return {worker_count(size.B * planes, threads), kDepthwiseLines, depthwise_padded(size.W)};
}

}  // namespace

// ---- Attention

PreparedDetector::Core::Core(const Refuse& refuse, std::string_view prefix,
                             const DetectorWeights& weights, std::int64_t channels,
                             const PrepareOptions& options)
    : heads_(weights.heads), key_dim_(weights.key_dim), head_dim_(weights.head_dim) {
  DetectorRun::check(refuse, prefix, weights, channels);
  qkv_ = prepare(weights.qkv, options);
  if (weights.proj.weight.has_value()) proj_ = prepare(weights.proj, options);
  if (weights.pe.weight.has_value()) {
    pe_weight_ = own(weights.pe.weight);
    if (weights.pe.bias.has_value()) pe_bias_ = own(weights.pe.bias);
  }
}

std::int64_t PreparedDetector::Core::weight_bytes() const noexcept {
  return bytes_of(qkv_) + bytes_of(proj_) +
         (pe_weight_.size() + pe_bias_.size()) * static_cast<std::int64_t>(sizeof(float));
}

AttentionShape PreparedDetector::Core::shape(const ImageSize& size, DType dtype) const noexcept {
  const std::int64_t N = size.H * size.W;
  return {size.B, heads_, heads_, N, N, key_dim_, head_dim_, dtype};
}

std::int64_t PreparedDetector::Core::workspace(const ImageSize& size, DType dtype,
                                               int threads) const {
  return padded_bytes(dtype, {size.B, qkv_.out(), size.H, size.W}) +
         padded_bytes(dtype, {size.B, values(), size.H, size.W}) +
         padded_bytes(DType::f32, lines_of(size, values(), threads));
}

std::int64_t PreparedDetector::Core::free_workspace(const ImageSize& size, DType dtype) const {
  return padded_bytes(dtype, {size.B, qkv_.out(), size.H, size.W});
}

void PreparedDetector::Core::run(const Scope& scope, const TensorView& x,
                                 const MutableTensorView& out, const TensorView& residual,
                                 PixelSteps& waiting) const {
  const ImageSize size{x.dim(0), x.dim(2), x.dim(3)};
  Arena arena(scope.memory);
  const MutableTensorView qkv = arena.take(scope.dtype, {size.B, qkv_.out(), size.H, size.W});
  const MutableTensorView concat = arena.take(scope.dtype, {size.B, values(), size.H, size.W});
  const MutableTensorView lines = arena.take(DType::f32, lines_of(size, values(), scope.threads));
  if (goes_by_heads(size, scope.attention, scope.threads)) {
    waiting.run();
    run_by_heads(scope, x, qkv, concat, lines);
  } else {
    waiting.add({&qkv_, x, qkv, Activation::none, {}, "qkv"});
    waiting.run();
    attend(scope, qkv, concat, {0, heads_}, static_cast<float*>(lines.data()));
  }
  project(scope, concat, out, residual, waiting);
}

// Whether there are heads for all threads, and as many for each. Not if attention has threads of
// its own.
bool PreparedDetector::Core::goes_by_heads(const ImageSize& size, const AttentionOptions& options,
                                           int threads) const {
  if (options.threads != 0 && options.threads != threads) return false;
  return threads > 1 && size.B > 0 && size.B * heads_ % threads == 0 &&
         size.H * size.W >= kPixelsByHeads && gives_some_outputs(qkv_) &&
         !options.query_starts.has_value();
}

// A thread takes a head from x to the sum of attention and pe: what it computes stays in its cache,
// and there is nothing to wait for in between.
void PreparedDetector::Core::run_by_heads(const Scope& scope, const TensorView& x,
                                          const MutableTensorView& qkv,
                                          const MutableTensorView& concat,
                                          const MutableTensorView& lines) const {
  const std::int64_t B = x.dim(0), each = 2 * key_dim_ + head_dim_;
  const MutableTensorView slots = qkv.unflatten(1, {heads_, each}).flatten(0, 1);
  const TensorView pixels = x.permute({0, 2, 3, 1});
  parallel_ranges(B * heads_, 0, scope.threads, [&](std::int64_t item, int worker) {
    const std::int64_t b = item / heads_, h = item % heads_;
    Laps::Clock clock = scope.clock->beside(scope.threads);
    Scope inner = scope;
    inner.threads = 1;
    inner.attention = options_of_head(scope.attention, b, h);
    inner.clock = &clock;
    const MutableTensorView slot = slots.slice(0, worker, worker + 1);
    run_some_outputs(qkv_, h * each, pixels.slice(0, b, b + 1), slot.permute({0, 2, 3, 1}),
                     scope.dtype, 1);
    clock.lap("qkv");
    attend(inner, slot, concat.slice(0, b, b + 1).slice(1, h * head_dim_, (h + 1) * head_dim_),
           {h, h + 1}, static_cast<float*>(lines.select(0, worker).data()));
  });
  scope.clock->skip();
}

// heads = attention + pe, of heads [first, last): qkv is theirs alone, and concat.
void PreparedDetector::Core::attend(const Scope& scope, const TensorView& qkv,
                                    const MutableTensorView& concat, HeadRange range,
                                    float* scratch) const {
  const std::int64_t each = 2 * key_dim_ + head_dim_, count = range.last - range.first;
  // [B, heads, N, width]: strides, not copies.
  const TensorView split = qkv.flatten(2, 3).unflatten(1, {count, each}).transpose(2, 3);
  const MutableTensorView heads =
      concat.flatten(2, 3).unflatten(1, {count, head_dim_}).transpose(2, 3);
  attention_forward(split.slice(3, 0, key_dim_), split.slice(3, key_dim_, 2 * key_dim_),
                    split.slice(3, 2 * key_dim_, each), heads, scope.attention);
  scope.clock->lap("attention");
  if (!pe_weight_.view().has_value()) return;
  const TensorView value = qkv.unflatten(1, {count, each}).slice(2, 2 * key_dim_, each);
  add_position(scope, value, concat.unflatten(1, {count, head_dim_}), range, scratch);
  scope.clock->lap("pe");
}

// heads += pe(value), both [B, heads, head_dim, H, W].
void PreparedDetector::Core::add_position(const Scope& scope, const TensorView& value,
                                          const MutableTensorView& heads, HeadRange range,
                                          float* scratch) const {
  const std::int64_t begin = range.first * head_dim_, end = range.last * head_dim_;
  const ConvWeights pe{
      pe_weight_.view().slice(0, begin, end),
      pe_bias_.view().has_value() ? pe_bias_.view().slice(0, begin, end) : TensorView()};
  if (scope.dtype == DType::f32 && has_fast_depthwise(pe, value, heads)) {
    return run_fast_depthwise(pe, value, heads, true, scope.threads, scratch);
  }
  Tensor sum(scope.dtype, heads.select(1, 0).shape());
  for (std::int64_t h = 0; h < heads.dim(1); ++h) {
    const std::int64_t first = h * head_dim_, last = first + head_dim_;
    const ConvWeights part{pe.weight.slice(0, first, last),
                           pe.bias.has_value() ? pe.bias.slice(0, first, last) : TensorView()};
    const MutableTensorView head = heads.select(1, h);
    run_depthwise(part, value.select(1, h), sum, scope.dtype, scope.threads);
    run_add(head, sum, head, scope.dtype, scope.threads);
  }
}

void PreparedDetector::Core::project(const Scope& scope, const TensorView& concat,
                                     const MutableTensorView& out, const TensorView& residual,
                                     PixelSteps& waiting) const {
  if (proj_.has_value()) {
    waiting.add({&proj_, concat, out, Activation::none, residual, "proj"});
    return;
  }
  if (residual.has_value()) {
    run_add(concat, residual, out, scope.dtype, scope.threads);
  } else {
    copy(concat, out);
  }
  scope.clock->lap("proj");
}

void PreparedDetector::Core::describe(BlockPlan& plan, const std::string& prefix,
                                      const ImageSize& size,
                                      const AttentionOptions& options) const {
  const std::int64_t rows = size.B * size.H * size.W;
  const bool by_heads = goes_by_heads(size, options, plan.threads);
  describe_product(plan, prefix + "qkv", qkv_, rows, by_heads ? "; by heads, as what follows" : "",
                   true);
  describe_attention(plan, prefix + "attention", shape(size, DType::f32), options, by_heads);
  if (pe_weight_.view().has_value()) {
    plan.steps.push_back({prefix + "pe", "3×3 of each channel, added where attention wrote",
                          2 * 9 * rows * values()});
    plan.flops += plan.steps.back().flops;
  }
  if (proj_.has_value()) describe_product(plan, prefix + "proj", proj_, rows, "", true);
}

// ---- PSABlock

PreparedPsaBlock::Core::Core(const Refuse& refuse, std::string_view prefix,
                             const PsaBlockWeights& weights, std::int64_t channels,
                             const PrepareOptions& options)
    : attention_((PsaBlockRun::check(refuse, prefix, weights, channels), refuse),
                 fmt::format("{}attn.", prefix), weights.attention, channels, options),
      expand_(prepare(weights.expand, options)),
      reduce_(prepare(weights.reduce, options)),
      shortcut_(weights.shortcut) {}

std::int64_t PreparedPsaBlock::Core::weight_bytes() const noexcept {
  return attention_.weight_bytes() + bytes_of(expand_) + bytes_of(reduce_);
}

std::int64_t PreparedPsaBlock::Core::workspace(const ImageSize& size, DType dtype,
                                               int threads) const {
  const std::int64_t hidden = padded_bytes(dtype, {size.B, expand_.out(), size.H, size.W});
  return padded_bytes(dtype, {size.B, channels(), size.H, size.W}) +
         attention_.workspace(size, dtype, threads) + (reuses_memory(size, dtype) ? 0 : hidden);
}

// What the attention works in is free when the feed-forward runs, but for what its last step reads.
bool PreparedPsaBlock::Core::reuses_memory(const ImageSize& size, DType dtype) const {
  return padded_bytes(dtype, {size.B, expand_.out(), size.H, size.W}) <=
         attention_.free_workspace(size, dtype);
}

void PreparedPsaBlock::Core::run(const Scope& scope, const TensorView& x,
                                 const MutableTensorView& out, PixelSteps& waiting) const {
  const ImageSize size{x.dim(0), x.dim(2), x.dim(3)};
  Arena arena(scope.memory);
  MutableTensorView y = arena.take(scope.dtype, x.shape());
  const Scope inner = scope.behind(padded_bytes(scope.dtype, x.shape()));
  if (out.dtype() == scope.dtype) y = out;  // no rounding in between
  attention_.run(inner, x, y, shortcut_ ? x : TensorView(), waiting);
  const std::int64_t behind =
      reuses_memory(size, scope.dtype) ? 0 : attention_.workspace(size, scope.dtype, scope.threads);
  const MutableTensorView hidden =
      Arena(inner.memory + behind).take(scope.dtype, {size.B, expand_.out(), size.H, size.W});
  waiting.add({&expand_, y, hidden, Activation::silu, {}, "ffn.expand"});
  waiting.add({&reduce_, hidden, out, Activation::none, shortcut_ ? TensorView(y) : TensorView(),
               "ffn.reduce"});
}

void PreparedPsaBlock::Core::describe(BlockPlan& plan, const std::string& prefix,
                                      const ImageSize& size,
                                      const AttentionOptions& options) const {
  const std::int64_t rows = size.B * size.H * size.W;
  attention_.describe(plan, prefix, size, options);
  describe_product(plan, prefix + "ffn.expand", expand_, rows, ", then SiLU", true);
  describe_product(plan, prefix + "ffn.reduce", reduce_, rows, "", true);
}

// ---- C2PSA

PreparedC2psa::Core::Core(const C2psaWeights& weights, const PrepareOptions& options) {
  constexpr Refuse refuse("PreparedC2psa");
  refuse.unless_given("cv1.weight", weights.cv1.weight);
  if (weights.cv1.weight.rank() < 2) {
    refuse.value("cv1.weight", "shape [out, in, 1, 1]", to_string(weights.cv1.weight.shape()));
  }
  check_c2psa(refuse, weights, weights.cv1.weight.dim(1));
  cv1_ = prepare(weights.cv1, options);
  cv2_ = prepare(weights.cv2, options);
  for (std::size_t i = 0; i < weights.blocks.size(); ++i) {
    blocks_.push_back(std::make_unique<const PreparedPsaBlock::Core>(
        refuse, fmt::format("blocks.{}.", i), weights.blocks[i], cv1_.out() / 2, options));
  }
}

std::int64_t PreparedC2psa::Core::weight_bytes() const noexcept {
  std::int64_t bytes = bytes_of(cv1_) + bytes_of(cv2_);
  for (const auto& block : blocks_) bytes += block->weight_bytes();
  return bytes;
}

std::int64_t PreparedC2psa::Core::workspace(const ImageSize& size, DType dtype, int threads) const {
  std::int64_t most = 0;
  for (const auto& block : blocks_) most = std::max(most, block->workspace(size, dtype, threads));
  return padded_bytes(dtype, {size.B, cv1_.out(), size.H, size.W}) + most;
}

void PreparedC2psa::Core::run(const Scope& scope, const TensorView& x,
                              const MutableTensorView& out) const {
  const Dims shape{x.dim(0), cv1_.out(), x.dim(2), x.dim(3)};
  Arena arena(scope.memory);
  // The halves a and b lie in one buffer and the blocks rewrite b where it is: it is the concat.
  const MutableTensorView halves = arena.take(scope.dtype, shape);
  const MutableTensorView b = halves.slice(1, cv1_.out() / 2, cv1_.out());
  PixelSteps waiting(scope);
  waiting.add({&cv1_, x, halves, Activation::silu, {}, "cv1"});
  const Scope inner = scope.behind(padded_bytes(scope.dtype, shape));
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (i > 0) waiting.run();  // the next block works in the same memory
    blocks_[i]->run(inner, b, b, waiting);
  }
  waiting.add({&cv2_, halves, out, Activation::silu, {}, "cv2"});
  waiting.run();
}

void PreparedC2psa::Core::describe(BlockPlan& plan, const ImageSize& size,
                                   const AttentionOptions& options) const {
  const std::int64_t rows = size.B * size.H * size.W;
  describe_product(plan, "cv1", cv1_, rows, ", then SiLU", true);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i]->describe(plan, fmt::format("blocks.{}.", i), size, options);
  }
  describe_product(plan, "cv2", cv2_, rows, ", then SiLU", true);
}

}  // namespace qkv
