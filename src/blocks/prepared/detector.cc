#include "blocks/prepared/detector_core.h"
#include "qkv/prepared.h"

namespace qkv {
namespace {

// x [B, channels, H, W], out [B, out_channels, H, W].
ImageSize check_images(const Call& call, const TensorView& x, std::int64_t channels,
                       const MutableTensorView& out, std::int64_t out_channels) {
  call.refuse.unless_rank("x", x, 4, "[B, C, H, W]");
  if (x.dim(1) != channels) {
    call.refuse.value("x", fmt::format("shape [B, {}, H, W]", channels), to_string(x.shape()));
  }
  call.refuse.unless_shape("out", out, {x.dim(0), out_channels, x.dim(2), x.dim(3)},
                           "[B, C, H, W]");
  check_prepared_call(call, x, out);
  return {x.dim(0), x.dim(2), x.dim(3)};
}

ImageSize image_or_refuse(const Dims& x, std::int64_t channels) {
  constexpr Refuse refuse("plan");
  if (x.rank() != 4 || x[0] < 0 || x[1] != channels || x[2] < 0 || x[3] < 0) {
    refuse.value("x", fmt::format("shape [B, {}, H, W]", channels), to_string(x));
  }
  element_count(x);
  return {x[0], x[2], x[3]};
}

// All images at once, on all threads, when the attentions inside are checked.
template <class Core, typename Run>
void run_images(const Call& call, const Core& core, const ImageSize& size, Run&& run) {
  Tensor wide;
  AttentionOptions attention = inner_options(call, wide);
  core.check(call, size, attention);
  // Asked once: somebody may change the default meanwhile.
  const int threads = worker_count(std::int64_t{1} << 62, call.options.threads);
  if (attention.threads == 0) attention.threads = threads;
  const std::int64_t bytes = core.workspace(size, call.dtype, threads);
  WorkspacePool::Lease memory = core.pool().borrow(bytes);
  Laps laps(call.options.profile);
  Laps::Clock clock(laps, 1);
  run(Scope{call.dtype, threads, attention, memory.data(), &clock});
}

template <class Core>
BlockPlan start_plan(const Core& core, const ImageSize& size, const BlockOptions& options) {
  BlockPlan plan;
  plan.threads = options.threads > 0 ? options.threads : num_threads();
  plan.workspace = core.workspace(size, DType::f32, plan.threads);
  plan.weights = core.weight_bytes();
  return plan;
}

std::int64_t channels_of(const Refuse& refuse, std::string_view name, const ConvWeights& conv) {
  refuse.unless_given(name, conv.weight);
  if (conv.weight.rank() < 2) {
    refuse.value(name, "shape [out, in, 1, 1]", to_string(conv.weight.shape()));
  }
  return conv.weight.dim(1);
}

constexpr Refuse kDetector("PreparedDetector"), kPsaBlock("PreparedPsaBlock");

}  // namespace

PreparedDetector::PreparedDetector(const DetectorWeights& weights, const PrepareOptions& options)
    : core_(std::make_shared<const Core>(
          kDetector, "", weights, channels_of(kDetector, "qkv.weight", weights.qkv), options)) {}

void PreparedDetector::forward(const TensorView& x, const MutableTensorView& out,
                               const BlockOptions& options) const {
  const Call call("PreparedDetector", "x", x, options);
  const ImageSize size = check_images(call, x, core_->channels(), out, core_->out_channels());
  run_images(call, *core_, size, [&](const Scope& scope) {
    PixelSteps steps(scope);
    core_->run(scope, x, out, {}, steps);
    steps.run();
  });
}

BlockPlan PreparedDetector::plan(const Dims& x, const BlockOptions& options) const {
  const ImageSize size = image_or_refuse(x, core_->channels());
  BlockPlan plan = start_plan(*core_, size, options);
  core_->describe(plan, "", size, options.attention);
  return plan;
}

PreparedPsaBlock::PreparedPsaBlock(const PsaBlockWeights& weights, const PrepareOptions& options)
    : core_(std::make_shared<const Core>(
          kPsaBlock, "", weights, channels_of(kPsaBlock, "attn.qkv.weight", weights.attention.qkv),
          options)) {}

void PreparedPsaBlock::forward(const TensorView& x, const MutableTensorView& out,
                               const BlockOptions& options) const {
  const Call call("PreparedPsaBlock", "x", x, options);
  const ImageSize size = check_images(call, x, core_->channels(), out, core_->channels());
  run_images(call, *core_, size, [&](const Scope& scope) {
    PixelSteps steps(scope);
    core_->run(scope, x, out, steps);
    steps.run();
  });
}

BlockPlan PreparedPsaBlock::plan(const Dims& x, const BlockOptions& options) const {
  const ImageSize size = image_or_refuse(x, core_->channels());
  BlockPlan plan = start_plan(*core_, size, options);
  core_->describe(plan, "", size, options.attention);
  return plan;
}

PreparedC2psa::PreparedC2psa(const C2psaWeights& weights, const PrepareOptions& options)
    : core_(std::make_shared<const Core>(weights, options)) {}

void PreparedC2psa::forward(const TensorView& x, const MutableTensorView& out,
                            const BlockOptions& options) const {
  const Call call("PreparedC2psa", "x", x, options);
  const ImageSize size = check_images(call, x, core_->channels(), out, core_->out_channels());
  run_images(call, *core_, size, [&](const Scope& scope) { core_->run(scope, x, out); });
}

BlockPlan PreparedC2psa::plan(const Dims& x, const BlockOptions& options) const {
  const ImageSize size = image_or_refuse(x, core_->channels());
  BlockPlan plan = start_plan(*core_, size, options);
  core_->describe(plan, size, options.attention);
  return plan;
}

}  // namespace qkv
