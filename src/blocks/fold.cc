#include <cmath>

#include "ops/refuse.h"
#include "qkv/conv.h"

namespace qkv {
namespace {

void check_norm(const Refuse& refuse, const BatchNorm& norm, std::int64_t channels) {
  refuse.unless_given("norm.mean", norm.mean);
  refuse.unless_given("norm.variance", norm.variance);
  for (const auto& [subject, view] :
       {std::pair{"norm.weight", norm.weight}, std::pair{"norm.bias", norm.bias},
        std::pair{"norm.mean", norm.mean}, std::pair{"norm.variance", norm.variance}}) {
    if (!view.has_value()) continue;
    refuse.unless_float(subject, view);
    refuse.unless_shape(subject, view, {channels}, "[channels]");
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const double spread = norm.variance.at({c}) + norm.eps;
    if (!(spread > 0) || !std::isfinite(spread)) {
      refuse.value(fmt::format("norm.variance[{}]", c), "a finite variance + eps above 0",
                   fmt::format("{} + {}", norm.variance.at({c}), norm.eps));
    }
  }
}

}  // namespace

FoldedConv fold_batch_norm(const ConvWeights& conv, const BatchNorm& norm) {
  constexpr Refuse refuse("fold_batch_norm");
  refuse.unless_given("conv.weight", conv.weight);
  refuse.unless_float("conv.weight", conv.weight);
  if (conv.weight.rank() < 1) refuse.value("conv.weight", "shape [out, …]", "a scalar");
  const std::int64_t channels = conv.weight.dim(0);
  if (conv.bias.has_value()) {
    refuse.unless_float("conv.bias", conv.bias);
    refuse.unless_shape("conv.bias", conv.bias, {channels}, "[out]");
  }
  check_norm(refuse, norm, channels);

  const auto at = [](const TensorView& view, std::int64_t c, double otherwise) {
    return view.has_value() ? view.at({c}) : otherwise;
  };
  // In f64 throughout, and rounded once at the end.
  Tensor weight = Tensor::copy_of(conv.weight, DType::f64);
  Tensor bias(DType::f64, {channels});
  const std::int64_t each = channels == 0 ? 0 : weight.size() / channels;
  double* w = weight.as<double>().data();
  for (std::int64_t c = 0; c < channels; ++c) {
    const double g = at(norm.weight, c, 1) / std::sqrt(norm.variance.at({c}) + norm.eps);
    for (std::int64_t i = 0; i < each; ++i) w[c * each + i] *= g;
    bias.view().set({c}, (at(conv.bias, c, 0) - norm.mean.at({c})) * g + at(norm.bias, c, 0));
  }
  if (conv.weight.dtype() == DType::f64) return {std::move(weight), std::move(bias)};
  return {Tensor::copy_of(weight.view(), DType::f32), Tensor::copy_of(bias.view(), DType::f32)};
}

}  // namespace qkv
