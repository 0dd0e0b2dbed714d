#include "ops/conv.h"

#include <algorithm>

#include "kernels/conv/depthwise.h"
#include "kernels/simd/row_kernels.h"
#include "ops/compute.h"
#include "ops/linear.h"
#include "ops/lines.h"

namespace qkv {
namespace {

constexpr std::int64_t kItemPixels = 1 << 13;  // of planes: some microseconds

}  // namespace

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
  const std::int64_t channels = x.dim(1), W = x.dim(3);
  if (dtype == DType::f32 && has_fast_depthwise(weights, x, out)) {
    Tensor scratch(DType::f32, {worker_count(x.dim(0) * channels, threads), kDepthwiseLines,
                                depthwise_padded(W)});
    return run_fast_depthwise(weights, x.unflatten(1, {1, channels}),
                              out.unflatten(1, {1, channels}), false, threads,
                              scratch.as<float>().data());
  }
  const DepthwiseProblem p{x, weights.weight.select(1, 0), weights.bias, out};
  // Three padded lines in and one out: less than four padded ones.
  compute_items(x.dim(0) * channels, dtype, {4, W + 2}, threads,
                [&](std::int64_t plane, auto* scratch) {
                  depthwise_reference_plane(p, plane / channels, plane % channels, scratch);
                });
}

bool has_fast_depthwise(const ConvWeights& weights, const TensorView& x,
                        const MutableTensorView& out) {
  return has_f32_lines(x) && has_f32_lines(out) && has_f32_lines(weights.weight) &&
         weights.weight.is_dense() && (!weights.bias.has_value() || has_f32_lines(weights.bias));
}

void run_fast_depthwise(const ConvWeights& weights, const TensorView& x,
                        const MutableTensorView& out, bool accumulate, int threads,
                        float* scratch) {
  const RowKernels& kernels = row_kernels();
  const std::int64_t each = x.dim(2), channels = x.dim(1) * each, H = x.dim(3), W = x.dim(4);
  const std::int64_t planes = x.dim(0) * channels;
  if (H == 0 || W == 0) return;
  const float* taps = static_cast<const float*>(weights.weight.data());
  const float* bias =
      weights.bias.has_value() ? static_cast<const float*>(weights.bias.data()) : nullptr;
  const std::int64_t together = std::max<std::int64_t>(1, kItemPixels / (H * W));
  parallel_ranges(
      (planes + together - 1) / together, 0, threads, [&](std::int64_t item, int worker) {
        const std::int64_t end = std::min(planes, (item + 1) * together);
        DepthwisePlanes some;
        for (std::int64_t i = item * together; i < end; i += some.count) {
          const std::int64_t b = i / channels, c = i % channels;
          const auto begin = [&](const TensorView& view) {
            return b * view.stride(0) + c / each * view.stride(1) + c % each * view.stride(2);
          };
          some = {std::min(end - i, each - c % each),
                  H,
                  W,
                  static_cast<const float*>(x.data()) + begin(x),
                  x.stride(2),
                  x.stride(3),
                  taps + c * 9,
                  bias != nullptr ? bias + c : nullptr,
                  accumulate,
                  static_cast<float*>(out.data()) + begin(out),
                  out.stride(2),
                  out.stride(3)};
          kernels.depthwise(some, scratch + worker * kDepthwiseLines * depthwise_padded(W));
        }
      });
}

}  // namespace qkv
