#include <algorithm>
#include <memory>

#include "blocks/detector_run.h"
#include "ops/activation.h"
#include "ops/conv.h"

namespace qkv {
namespace {

Dims with_channels(const TensorView& x, std::int64_t channels) {
  return {x.dim(0), channels, x.dim(2), x.dim(3)};
}

void check_channels(const Refuse& refuse, std::string_view subject, std::int64_t expected,
                    std::int64_t found) {
  if (found != expected) {
    refuse.value(subject, fmt::format("{} channels, as the block's input has", expected),
                 fmt::format("{}", found));
  }
}

}  // namespace

void add_inputs(Inputs& inputs, std::string_view prefix, const PsaBlockWeights& weights) {
  add_inputs(inputs, fmt::format("{}attn.", prefix), weights.attention);
  inputs.add(fmt::format("{}expand", prefix), weights.expand);
  inputs.add(fmt::format("{}reduce", prefix), weights.reduce);
}

void PsaBlockRun::check(const Refuse& refuse, std::string_view prefix,
                        const PsaBlockWeights& weights, std::int64_t channels) {
  const auto name = [&](std::string_view part) { return fmt::format("{}{}", prefix, part); };
  const std::int64_t attended =
      DetectorRun::check(refuse, name("attn."), weights.attention, channels);
  check_channels(refuse, name("attn.proj.weight"), channels, attended);
  const LinearWeights expand = check_pointwise(refuse, name("expand."), weights.expand, channels);
  const LinearWeights reduce =
      check_pointwise(refuse, name("reduce."), weights.reduce, expand.weight.dim(0));
  check_channels(refuse, name("reduce.weight"), channels, reduce.weight.dim(0));
}

PsaBlockRun::PsaBlockRun(const Call& call, const PsaBlockWeights& weights, const TensorView& x,
                         const MutableTensorView& out)
    : call_(call),
      weights_(weights),
      x_(x),
      out_(out),
      branch_(call.dtype, x.shape()),
      residual_(call.dtype, x.shape()),
      hidden_(call.dtype, with_channels(x, weights.expand.weight.dim(0))) {
  attention_.emplace(call_.inside("attn"), weights.attention, x_, branch_.view());
}

void PsaBlockRun::run() {
  const int threads = call_.options.threads;
  call_.show("input", x_);
  attention_->run();
  if (weights_.shortcut) {
    run_add(x_, branch_, residual_, call_.dtype, threads);
  } else {
    copy(branch_, residual_);
  }
  call_.show("residual", residual_);
  run_pointwise(pointwise_matrix(weights_.expand), residual_, hidden_, call_.dtype, threads);
  call_.show("ffn.expand", hidden_);
  run_activation(Activation::silu, hidden_, hidden_, call_.dtype, threads);
  call_.show("ffn.silu", hidden_);
  run_pointwise(pointwise_matrix(weights_.reduce), hidden_, branch_, call_.dtype, threads);
  call_.show("ffn.reduce", branch_);
  if (weights_.shortcut) {
    run_add(residual_, branch_, out_, call_.dtype, threads);
  } else {
    copy(branch_, out_);
  }
  call_.show("output", out_);
}

void psa_block_forward(const PsaBlockWeights& weights, const TensorView& x,
                       const MutableTensorView& out, const BlockOptions& options) {
  const Call call("psa_block_forward", "x", x, options);
  call.refuse.unless_rank("x", x, 4, "[B, C, H, W]");
  PsaBlockRun::check(call.refuse, "", weights, x.dim(1));
  Inputs inputs;
  inputs.add("x", x);
  add_inputs(inputs, "", weights);
  inputs.add(options.attention);
  inputs.check_output(call.refuse, out, x.shape(), "of x");
  PsaBlockRun(call, weights, x, out).run();
}

std::int64_t c2psa_heads(std::int64_t c) noexcept { return std::max<std::int64_t>(c / 64, 1); }

namespace {

std::string block_name(std::size_t i) { return fmt::format("blocks.{}", i); }

}  // namespace

std::int64_t check_c2psa(const Refuse& refuse, const C2psaWeights& weights, std::int64_t channels) {
  const std::int64_t both = check_pointwise(refuse, "cv1.", weights.cv1, channels).weight.dim(0);
  if (both < 2 || both % 2 != 0) {
    refuse.value("cv1.weight", "an even number of rows, for two halves",
                 fmt::format("{} rows", both));
  }
  for (std::size_t i = 0; i < weights.blocks.size(); ++i) {
    PsaBlockRun::check(refuse, block_name(i) + ".", weights.blocks[i], both / 2);
  }
  return check_pointwise(refuse, "cv2.", weights.cv2, both).weight.dim(0);
}

namespace {

void check_c2psa_out(const Call& call, const C2psaWeights& weights, const TensorView& x,
                     const MutableTensorView& out, std::int64_t channels) {
  Inputs inputs;
  inputs.add("x", x);
  inputs.add("cv1", weights.cv1);
  inputs.add("cv2", weights.cv2);
  for (std::size_t i = 0; i < weights.blocks.size(); ++i) {
    add_inputs(inputs, block_name(i) + ".", weights.blocks[i]);
  }
  inputs.add(call.options.attention);
  inputs.check_output(call.refuse, out, with_channels(x, channels), "[B, c1, H, W]");
}

}  // namespace

void c2psa_forward(const C2psaWeights& weights, const TensorView& x, const MutableTensorView& out,
                   const BlockOptions& options) {
  const Call call("c2psa_forward", "x", x, options);
  call.refuse.unless_rank("x", x, 4, "[B, C, H, W]");
  const std::int64_t channels = check_c2psa(call.refuse, weights, x.dim(1));
  check_c2psa_out(call, weights, x, out, channels);

  const LinearWeights cv1 = pointwise_matrix(weights.cv1), cv2 = pointwise_matrix(weights.cv2);
  const std::int64_t both = cv1.weight.dim(0);
  // The halves a and b lie in one buffer and the blocks rewrite b where it is: it is the concat.
  Tensor halves(call.dtype, with_channels(x, both));
  Tensor mixed(call.dtype, with_channels(x, channels));
  const MutableTensorView b = halves.view().slice(1, both / 2, both);
  std::vector<std::unique_ptr<PsaBlockRun>> blocks;
  for (std::size_t i = 0; i < weights.blocks.size(); ++i) {
    blocks.push_back(
        std::make_unique<PsaBlockRun>(call.inside(block_name(i)), weights.blocks[i], b, b));
  }

  call.show("input", x);
  run_pointwise(cv1, x, halves, call.dtype, options.threads);
  run_activation(Activation::silu, halves, halves, call.dtype, options.threads);
  call.show("cv1", halves);
  for (const auto& block : blocks) block->run();
  call.show("concat", halves);
  run_pointwise(cv2, halves, mixed, call.dtype, options.threads);
  run_activation(Activation::silu, mixed, out, call.dtype, options.threads);
  call.show("output", out);
}

}  // namespace qkv
