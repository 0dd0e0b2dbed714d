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

// So many bytes for each thread. Refuses what does not fit.
std::int64_t of_threads(int threads, std::int64_t bytes) {
  return padded_bytes(DType::u8, {threads, bytes});
}

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
  return free_workspace(size, dtype, threads) +
         padded_bytes(dtype, {size.B, values(), size.H, size.W}) +
         padded_bytes(DType::f32, lines_of(size, values(), threads));
}

std::int64_t PreparedDetector::Core::free_workspace(const ImageSize& size, DType dtype,
                                                    int threads) const {
  return std::max(padded_bytes(dtype, {size.B, qkv_.out(), size.H, size.W}),
                  of_threads(threads, own_workspace(size, dtype, threads)));
}

std::int64_t PreparedDetector::Core::own_workspace(const ImageSize& size, DType dtype,
                                                   int threads) const {
  if (!has_heads_for(size, threads)) return 0;
  return padded_bytes(dtype, {2 * key_dim_ + head_dim_ + kChannelsBetween, size.H, size.W});
}

void PreparedDetector::Core::run(const Scope& scope, const PixelImage& x,
                                 const MutablePixelImage& out, const PixelImage& residual,
                                 PixelSteps& waiting) const {
  const ImageSize size = x.size();
  const MutableTensorView qkv =
      Arena(scope.memory).take(scope.dtype, {size.B, qkv_.out(), size.H, size.W});
  Arena arena(scope.memory + free_workspace(size, scope.dtype, scope.threads));
  const MutableTensorView concat = arena.take(scope.dtype, {size.B, values(), size.H, size.W});
  const MutableTensorView lines = arena.take(DType::f32, lines_of(size, values(), scope.threads));
  if (goes_by_heads(size, scope.attention, scope.threads)) {
    waiting.run();
    run_by_heads(scope, x, concat, lines);
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
  return has_heads_for(size, threads) && gives_some_outputs(qkv_) &&
         !options.query_starts.has_value();
}

bool PreparedDetector::Core::has_heads_for(const ImageSize& size, int threads) const {
  return threads > 1 && size.B > 0 && size.B * heads_ % threads == 0 &&
         size.H * size.W >= kPixelsByHeads;
}

// A thread takes a head from x to the sum of attention and pe: what it computes stays in its cache,
// and there is nothing to wait for in between.
void PreparedDetector::Core::run_by_heads(const Scope& scope, const PixelImage& x,
                                          const MutableTensorView& concat,
                                          const MutableTensorView& lines) const {
  const ImageSize size = x.size();
  const std::int64_t each = 2 * key_dim_ + head_dim_;
  const std::int64_t apart = own_workspace(size, scope.dtype, scope.threads);
  parallel_ranges(size.B * heads_, 0, scope.threads, [&](std::int64_t item, int worker) {
    const std::int64_t b = item / heads_, h = item % heads_;
    Laps::Clock clock = scope.clock->beside(scope.threads);
    Scope inner = scope;
    inner.threads = 1;
    inner.attention = options_of_head(scope.attention, b, h);
    inner.clock = &clock;
    const MutableTensorView slot =
        Arena(scope.memory + worker * apart).take(scope.dtype, {1, each, size.H, size.W});
    make_head(scope, x, {b, h, worker}, slot);
    clock.lap("qkv");
    attend(inner, slot, concat.slice(0, b, b + 1).slice(1, h * head_dim_, (h + 1) * head_dim_),
           {h, h + 1}, static_cast<float*>(lines.select(0, worker).data()));
  });
  scope.clock->skip();
}

// qkv = q, k and v of one head, [1, 2·key_dim + head_dim, H, W].
void PreparedDetector::Core::make_head(const Scope& scope, const PixelImage& x, const Head& head,
                                       const MutableTensorView& qkv) const {
  const std::int64_t first = head.h * (2 * key_dim_ + head_dim_);
  if (!x.is_in_pieces()) {
    const TensorView image = x.plain().slice(0, head.b, head.b + 1);
    return run_some_outputs(qkv_, first, image.permute({0, 2, 3, 1}), qkv.permute({0, 2, 3, 1}),
                            scope.dtype, 1);
  }
  const MutablePixelImage out(qkv);
  const PixelPieces pieces(x.size(), scope.threads);
  // From those on that the thread wrote itself: it has them.
  const std::int64_t own = pieces.all() * head.worker / scope.threads;
  for (std::int64_t n = 0; n < pieces.of_image(); ++n) {
    const PixelRange piece = pieces[(own + n) % pieces.of_image()];
    run_some_outputs(qkv_, first, x.pixels(head.b, piece, head.worker),
                     out.pixels(0, piece, head.worker), scope.dtype, 1);
  }
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
                                     const MutablePixelImage& out, const PixelImage& residual,
                                     PixelSteps& waiting) const {
  if (proj_.has_value()) {
    waiting.add({&proj_, concat, out, Activation::none, residual, "proj"});
    return;
  }
  const auto add = [&](const TensorView& from, const TensorView& and_from,
                       const MutableTensorView& to) {
    if (and_from.has_value()) {
      run_add(from, and_from, to, scope.dtype, scope.threads);
    } else {
      copy(from, to);
    }
  };
  if (out.is_in_pieces()) {
    const PixelPieces pieces(out.size(), scope.threads);
    for (std::int64_t n = 0; n < pieces.all(); ++n) {
      const std::int64_t b = n / pieces.of_image();
      const PixelRange piece = pieces[n % pieces.of_image()];
      add(PixelImage(concat).pixels(b, piece, 0), residual.pixels(b, piece, 0),
          out.pixels(b, piece, 0));
    }
  } else {
    add(concat, residual.plain(), out.plain());
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
  const std::int64_t hidden = hidden_bytes(size, dtype, threads);
  return padded_bytes(dtype, {size.B, channels(), size.H, size.W}) +
         attention_.workspace(size, dtype, threads) +
         (hidden <= attention_.free_workspace(size, dtype, threads) ? 0 : hidden);
}

// From one thread's hidden channels, of a piece, to the next one's: what it had for itself in the
// attention it has again.
std::int64_t PreparedPsaBlock::Core::hidden_apart(const ImageSize& size, DType dtype,
                                                  int threads) const {
  return std::max(padded_bytes(dtype, {expand_.out(), PixelPieces(size, threads).most_pixels()}),
                  attention_.own_workspace(size, dtype, threads));
}

// All of them at once, or of all threads and the piece that they share.
std::int64_t PreparedPsaBlock::Core::hidden_bytes(const ImageSize& size, DType dtype,
                                                  int threads) const {
  const std::int64_t all = padded_bytes(dtype, {size.B, expand_.out(), size.H, size.W});
  const PixelPieces pieces(size, threads);
  if (!pieces.worth()) return all;
  return std::max(all, of_threads(threads, hidden_apart(size, dtype, threads)) +
                           padded_bytes(dtype, {expand_.out(), pieces.shared_pixels()}));
}

void PreparedPsaBlock::Core::run(const Scope& scope, const PixelImage& x,
                                 const MutablePixelImage& out, PixelSteps& waiting) const {
  const ImageSize size = x.size();
  Arena arena(scope.memory);
  const Dims shape{size.B, channels(), size.H, size.W};
  MutablePixelImage y(arena.take(scope.dtype, shape));
  const Scope inner = scope.behind(padded_bytes(scope.dtype, shape));
  if (out.dtype() == scope.dtype) y = out;  // no rounding in between
  const PixelImage none;
  attention_.run(inner, x, y, shortcut_ ? x : none, waiting);
  // What the attention works in is free when the feed-forward runs, but for what its last step
  // reads.
  const bool fits = hidden_bytes(size, scope.dtype, scope.threads) <=
                    attention_.free_workspace(size, scope.dtype, scope.threads);
  const std::int64_t behind = fits ? 0 : attention_.workspace(size, scope.dtype, scope.threads);
  const auto hidden = MutablePixelImage::apart(
      Arena(inner.memory + behind).take(scope.dtype, {size.B, expand_.out(), size.H, size.W}),
      hidden_apart(size, scope.dtype, scope.threads));
  waiting.add({&expand_, y, hidden, Activation::silu, {}, "ffn.expand"});
  waiting.add({&reduce_, hidden, out, Activation::none, shortcut_ ? y : none, "ffn.reduce"});
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
  return halves_bytes(size, dtype, threads) + most;
}

std::int64_t PreparedC2psa::Core::halves_bytes(const ImageSize& size, DType dtype,
                                               int threads) const {
  const std::int64_t between = PixelPieces(size, threads).worth() ? kChannelsBetween : 0;
  return padded_bytes(dtype, {size.B, cv1_.out() + between, size.H, size.W});
}

void PreparedC2psa::Core::run(const Scope& scope, const TensorView& x,
                              const MutableTensorView& out) const {
  const ImageSize size{x.dim(0), x.dim(2), x.dim(3)};
  const std::int64_t channels = cv1_.out();
  // The halves a and b lie in one buffer and the blocks rewrite b where it is: it is the concat.
  MutablePixelImage halves(
      Arena(scope.memory).take(scope.dtype, {size.B, channels, size.H, size.W}));
  // As PixelSteps will decide.
  if (PixelPieces(size, scope.threads).worth() && PixelImage(x).is_flat() &&
      PixelImage(out).is_flat()) {
    halves = MutablePixelImage::in_pieces(halves.plain());
  }
  const MutablePixelImage b = halves.channels_of(channels / 2, channels);
  PixelSteps waiting(scope);
  waiting.add({&cv1_, x, halves, Activation::silu, {}, "cv1"});
  const Scope inner = scope.behind(halves_bytes(size, scope.dtype, scope.threads));
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
