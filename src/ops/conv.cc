#include "ops/conv.h"

#include "kernels/conv/depthwise.h"
#include "ops/compute.h"
#include "ops/linear.h"

namespace qkv {

LinearWeights check_pointwise(const Refuse& refuse, std::string_view name,
                              const ConvWeights& weights, std::int64_t in) {
  const std::string subject = fmt::format("{}weight", name);
  refuse.unless_given(subject, weights.weight);
  const Dims& shape = weights.weight.shape();
  if (shape.rank() == 4 && (shape[2] != 1 || shape[3] != 1)) {
    refuse.value(subject, "a 1×1 convolution [out, in, 1, 1]", to_string(shape));
  }
  const LinearWeights linear = pointwise_matrix(weights);
  check_linear(refuse, name, linear, in);
  return linear;
}

LinearWeights pointwise_matrix(const ConvWeights& weights) {
  const TensorView& w = weights.weight;
  return {w.rank() == 4 ? w.select(3, 0).select(2, 0) : w, weights.bias};
}

void run_pointwise(const LinearWeights& weights, const TensorView& x, const MutableTensorView& out,
                   DType dtype, int threads) {
  run_linear(weights, x.permute({0, 2, 3, 1}), out.permute({0, 2, 3, 1}), dtype, threads);
}

void check_depthwise(const Refuse& refuse, std::string_view name, const ConvWeights& weights,
                     std::int64_t channels) {
  const std::string weight = fmt::format("{}weight", name), bias = fmt::format("{}bias", name);
  refuse.unless_shape(weight, weights.weight, {channels, 1, 3, 3}, "[channels, 1, 3, 3]");
  refuse.unless_float(weight, weights.weight);
  if (!weights.bias.has_value()) return;
  refuse.unless_float(bias, weights.bias);
  refuse.unless_shape(bias, weights.bias, {channels}, "[channels]");
}

void run_depthwise(const ConvWeights& weights, const TensorView& x, const MutableTensorView& out,
                   DType dtype, int threads) {
  const DepthwiseProblem p{x, weights.weight.select(1, 0), weights.bias, out};
  const std::int64_t channels = x.dim(1), W = x.dim(3);
  // Three padded lines in and one out: less than four padded ones.
  compute_items(x.dim(0) * channels, dtype, {4, W + 2}, threads,
                [&](std::int64_t plane, auto* scratch) {
                  depthwise_reference_plane(p, plane / channels, plane % channels, scratch);
                });
}

}  // namespace qkv
