#include "qkv/vision.h"

#include <algorithm>
#include <cstring>

#include "base/element.h"
#include "blocks/prepared/layer_core.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("PreparedVision");

Tensor own(const TensorView& view) {
  return Tensor::copy_of(view, view.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

// Patches of an image as rows: to[b·n + y·columns + x, c·p·p + u·p + v], in the dtype of `to`.
void cut_patches(const TensorView& pixels, std::int64_t p, const MutableTensorView& to,
                 int threads) {
  const std::int64_t C = pixels.dim(1), lines = pixels.dim(2) / p, columns = pixels.dim(3) / p;
  const bool plain = pixels.dtype() == to.dtype() && pixels.stride(3) == 1;
  const std::int64_t size = static_cast<std::int64_t>(size_of(to.dtype()));
  parallel_for(pixels.dim(0) * lines, threads, [&](std::int64_t item, int) {
    const std::int64_t b = item / lines, y = item % lines;
    for (std::int64_t c = 0; c < C; ++c) {
      for (std::int64_t u = 0; u < p; ++u) {
        const TensorView line = pixels.select(0, b).select(0, c).select(0, y * p + u);
        for (std::int64_t x = 0; x < columns; ++x) {
          const std::int64_t row = item * columns + x, column = (c * p + u) * p;
          auto* target = static_cast<std::byte*>(to.data()) + (row * to.stride(0) + column) * size;
          if (plain) {
            std::memcpy(target, static_cast<const std::byte*>(line.data()) + x * p * size,
                        static_cast<std::size_t>(p * size));
          } else {
            copy(line.slice(0, x * p, x * p + p), MutableTensorView(target, to.dtype(), {p}));
          }
        }
      }
    }
  });
}

}  // namespace

class PreparedVision::Core {
 public:
  Core(const VisionWeights& weights, const PrepareOptions& options);

  std::int64_t classes() const noexcept { return head_.has_value() ? head_.out() : width(); }
  Dims image() const noexcept { return {channels_, height_, width_}; }
  std::int64_t weight_bytes() const noexcept;
  std::int64_t workspace(std::int64_t B, DType dtype) const;
  void run(const Scope& scope, const TensorView& pixels, const MutableTensorView& scores) const;
  void describe(BlockPlan& plan, std::int64_t B) const;
  WorkspacePool& pool() const noexcept { return pool_; }

 private:
  std::int64_t width() const noexcept { return patch_.out(); }
  std::int64_t patches() const noexcept { return (height_ / size_) * (width_ / size_); }
  std::int64_t tokens() const noexcept { return patches() + first_; }
  // Tokens of the last layer that the head reads.
  std::int64_t wanted() const noexcept { return pooling_ == Pooling::first ? 1 : tokens(); }
  void embed(const Scope& scope, const TensorView& pixels, const MutableTensorView& tokens) const;
  void pool_tokens(const Scope& scope, const MutableTensorView& x,
                   const MutableTensorView& pooled) const;
  void check(const VisionWeights& weights) const;

  std::int64_t channels_, size_, height_, width_;
  std::int64_t first_ = 0;  // 1 if there is a CLS
  PreparedLinear patch_, head_;
  Tensor cls_;        // [width], its position added; or none
  Tensor positions_;  // [patches, width], or none
  std::vector<std::unique_ptr<const PreparedEncoderLayer::Core>> layers_;
  OwnNorm norm_;
  Pooling pooling_;
  bool norm_pooled_;
  mutable WorkspacePool pool_;
};

void PreparedVision::Core::check(const VisionWeights& w) const {
  check_positive(kRefuse, "channels", w.channels);
  check_positive(kRefuse, "patch_size", w.patch_size);
  constexpr std::int64_t kMost = 1 << 20;  // pixels a side: products of three such numbers fit
  for (const auto& [name, extent] : {std::pair{"height", w.height}, std::pair{"width", w.width}}) {
    if (extent < w.patch_size || extent > kMost || extent % w.patch_size != 0) {
      kRefuse.value(name, fmt::format("a multiple of the patch's {} pixels", w.patch_size),
                    fmt::format("{}", extent));
    }
  }
  if (w.channels > kMost) kRefuse.value("channels", "a sane number", fmt::format("{}", w.channels));
  const std::int64_t width =
      check_linear(kRefuse, "patch.", w.patch, w.channels * w.patch_size * w.patch_size);
  const std::int64_t tokens =
      (w.height / w.patch_size) * (w.width / w.patch_size) + (w.cls.has_value() ? 1 : 0);
  if (w.cls.has_value()) {
    kRefuse.unless_shape("cls", w.cls, {width}, "[width]");
    kRefuse.unless_float("cls", w.cls);
  }
  if (w.positions.has_value()) {
    kRefuse.unless_shape("positions", w.positions, {tokens, width}, "[tokens, width]");
    kRefuse.unless_float("positions", w.positions);
  }
  if (w.pooling == Pooling::first && !w.cls.has_value()) {
    kRefuse.value("pooling", "the mean, as there is no CLS", "the first token");
  }
  check_norm(kRefuse, "norm.", w.norm, width);
  if (w.head.weight.has_value()) check_linear(kRefuse, "head.", w.head, width);
}

PreparedVision::Core::Core(const VisionWeights& w, const PrepareOptions& options)
    : channels_(w.channels),
      size_(w.patch_size),
      height_(w.height),
      width_(w.width),
      pooling_(w.pooling),
      norm_pooled_(w.norm_pooled) {
  check(w);
  patch_ = PreparedLinear(w.patch, options);
  if (w.cls.has_value()) {
    first_ = 1;
    cls_ = Tensor::copy_of(w.cls, DType::f64);
    for (std::int64_t i = 0; w.positions.has_value() && i < width(); ++i) {
      cls_.as<double>()[static_cast<std::size_t>(i)] += w.positions.at({0, i});
    }
  }
  if (w.positions.has_value()) {
    positions_ = own(w.positions.slice(0, first_, first_ + patches()));
  }
  for (std::size_t i = 0; i < w.layers.size(); ++i) {
    try {
      layers_.push_back(std::make_unique<const PreparedEncoderLayer::Core>(w.layers[i], options));
    } catch (const Error& error) {
      throw Error(error.kind(), "PreparedVision", fmt::format("layers.{}.{}", i, error.subject()),
                  error.expected(), error.found());
    }
    if (layers_.back()->width() != width()) {
      kRefuse.value(fmt::format("layers.{}", i), fmt::format("a layer of width {}", width()),
                    fmt::format("{}", layers_.back()->width()));
    }
  }
  norm_ = OwnNorm(w.norm);
  if (w.head.weight.has_value()) head_ = PreparedLinear(w.head, options);
}

std::int64_t PreparedVision::Core::weight_bytes() const noexcept {
  std::int64_t bytes = static_cast<std::int64_t>(patch_.bytes() + head_.bytes()) + norm_.bytes() +
                       (cls_.size() + positions_.size()) * 4;
  for (const auto& layer : layers_) bytes += layer->weight_bytes();
  return bytes;
}

std::int64_t PreparedVision::Core::workspace(std::int64_t B, DType dtype) const {
  std::int64_t inner = padded_bytes(dtype, {B * patches(), patch_.in()});
  for (const auto& layer : layers_) inner = std::max(inner, layer->workspace(B, tokens(), dtype));
  return 2 * padded_bytes(dtype, {B, tokens(), width()}) + padded_bytes(dtype, {B, width()}) +
         inner;
}

void PreparedVision::Core::embed(const Scope& scope, const TensorView& pixels,
                                 const MutableTensorView& tokens) const {
  const std::int64_t B = pixels.dim(0), n = patches();
  Arena arena(scope.memory);
  const MutableTensorView rows = arena.take(scope.dtype, {B * n, patch_.in()});
  cut_patches(pixels, size_, rows, scope.threads);
  scope.clock->lap("patches");
  TensorView positions;
  if (positions_.view().has_value()) {
    positions = positions_.view().broadcast_to({B, n, width()});
  }
  run_linear(patch_, TensorView(rows).unflatten(0, {B, n}), tokens.slice(1, first_, first_ + n),
             scope.dtype, scope.threads, {Activation::none, positions});
  for (std::int64_t b = 0; b < B * first_; ++b) {
    copy(cls_.view(), tokens.select(0, b).select(0, 0));
  }
  scope.clock->lap("embedding");
}

// pooled [B, width], normed. x is overwritten.
void PreparedVision::Core::pool_tokens(const Scope& scope, const MutableTensorView& x,
                                       const MutableTensorView& pooled) const {
  const auto norm = [&](const MutableTensorView& view, const MutableTensorView& to) {
    run_norm(norm_.view(), view, to, scope.dtype, scope.threads);
  };
  if (pooling_ == Pooling::first) return norm(x.select(1, 0), pooled);
  if (!norm_pooled_) norm(x, x);
  const std::int64_t n = patches();
  for (std::int64_t b = 0; b < x.dim(0); ++b) {
    for (std::int64_t i = 0; i < width(); ++i) {
      double sum = 0;
      for (std::int64_t t = 0; t < n; ++t) {
        sum += load_real<double>(x, b * x.stride(0) + (first_ + t) * x.stride(1) + i * x.stride(2));
      }
      pooled.set({b, i}, sum / static_cast<double>(n));
    }
  }
  if (norm_pooled_) norm(pooled, pooled);
}

void PreparedVision::Core::run(const Scope& scope, const TensorView& pixels,
                               const MutableTensorView& scores) const {
  const std::int64_t B = pixels.dim(0);
  const Dims shape{B, tokens(), width()};
  Arena arena(scope.memory);
  MutableTensorView x = arena.take(scope.dtype, shape), next = arena.take(scope.dtype, shape);
  const MutableTensorView pooled = arena.take(scope.dtype, {B, width()});
  const Scope inner =
      scope.behind(2 * padded_bytes(scope.dtype, shape) + padded_bytes(scope.dtype, {B, width()}));
  embed(inner, pixels, x);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size();
    layers_[i]->run(inner, x, last ? next.slice(1, 0, wanted()) : next);
    std::swap(x, next);
  }
  pool_tokens(inner, x, pooled);
  if (head_.has_value()) {
    run_linear(head_, pooled, scores, scope.dtype, scope.threads);
  } else {
    copy(pooled, scores);
  }
  scope.clock->lap("head");
}

void PreparedVision::Core::describe(BlockPlan& plan, std::int64_t B) const {
  describe_product(plan, "embedding", patch_, B * patches());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size();
    layers_[i]->describe(plan, fmt::format("{}.", i), B, tokens(), last ? wanted() : tokens(), {});
  }
  if (head_.has_value()) describe_product(plan, "head", head_, B);
}

PreparedVision::PreparedVision(const VisionWeights& weights, const PrepareOptions& options)
    : core_(std::make_shared<const Core>(weights, options)) {}

std::int64_t PreparedVision::classes() const noexcept { return core_->classes(); }
Dims PreparedVision::image() const noexcept { return core_->image(); }

void PreparedVision::forward(const TensorView& pixels, const MutableTensorView& scores,
                             const VisionOptions& options) const {
  BlockOptions block;
  block.threads = options.threads;
  block.profile = options.profile;
  const Call call("PreparedVision", "pixels", pixels, block);
  const Dims image = core_->image();
  call.refuse.unless_rank("pixels", pixels, 4, "[B, C, H, W]");
  const std::int64_t B = pixels.dim(0);
  call.refuse.unless_shape("pixels", pixels, {B, image[0], image[1], image[2]}, "[B, C, H, W]");
  call.refuse.unless_shape("scores", scores, {B, core_->classes()}, "[B, classes]");
  call.refuse.unless_float("scores", scores);
  call.refuse.unless_writable("scores", scores);
  call.refuse.if_overlap("scores", scores, "pixels", pixels);
  WorkspacePool::Lease memory = core_->pool().borrow(core_->workspace(B, call.dtype));
  Laps laps(options.profile);
  Laps::Clock clock(laps, 1);
  AttentionOptions attention;
  attention.threads = options.threads;
  core_->run({call.dtype, options.threads, attention, memory.data(), &clock}, pixels, scores);
}

BlockPlan PreparedVision::plan(std::int64_t B, const VisionOptions& options) const {
  if (B < 0) kRefuse.value("B", "0 or more", fmt::format("{}", B));
  BlockPlan plan;
  plan.threads = options.threads > 0 ? options.threads : num_threads();
  plan.workspace = core_->workspace(B, DType::f32);
  plan.weights = core_->weight_bytes();
  core_->describe(plan, B);
  return plan;
}

}  // namespace qkv
