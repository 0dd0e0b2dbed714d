#include "ops/norm.h"

#include <cmath>

#include "kernels/norm/norm.h"
#include "kernels/rows.h"
#include "ops/compute.h"

namespace qkv {
namespace {

bool same_elements(const TensorView& x, const TensorView& out) {
  return x.data() == out.data() && x.dtype() == out.dtype() && x.strides() == out.strides();
}

}  // namespace

void check_norm(const Refuse& refuse, std::string_view name, const NormWeights& weights,
                std::int64_t n) {
  for (const auto& [part, view] :
       {std::pair{"weight", weights.weight}, std::pair{"bias", weights.bias}}) {
    if (!view.has_value()) continue;
    const std::string subject = fmt::format("{}{}", name, part);
    refuse.unless_float(subject, view);
    refuse.unless_shape(subject, view, {n}, "[n]");
  }
  if (!std::isfinite(weights.eps) || weights.eps < 0) {
    refuse.value(fmt::format("{}eps", name), "a finite number, 0 or more",
                 fmt::format("{}", weights.eps));
  }
}

void run_norm(const NormWeights& weights, const TensorView& x, const MutableTensorView& out,
              DType dtype, int threads) {
  const NormProblem p{x, weights, out};
  compute_items(row_count(x), dtype, {2, x.dim(-1)}, threads,
                [&](std::int64_t row, auto* scratch) { norm_reference_row(p, row, scratch); });
}

void norm_forward(const NormWeights& weights, const TensorView& x, const MutableTensorView& out,
                  const LinearOptions& options) {
  constexpr Refuse refuse("norm_forward");
  refuse.unless_given("x", x);
  refuse.unless_float("x", x);
  if (x.rank() < 1) refuse.value("x", "at least one dimension [..., n]", "a scalar");
  check_norm(refuse, "", weights, x.dim(-1));
  refuse.unless_shape("out", out, x.shape(), "of x");
  refuse.unless_float("out", out);
  refuse.unless_writable("out", out);
  if (!same_elements(x, out)) refuse.if_overlap("out", out, "x", x);
  refuse.if_overlap("out", out, "weight", weights.weight);
  refuse.if_overlap("out", out, "bias", weights.bias);
  if (options.threads < 0) {
    refuse.value("threads", "0 (default) or more", fmt::format("{}", options.threads));
  }
  run_norm(weights, x, out, compute_dtype(x, options.accumulate), options.threads);
}

}  // namespace qkv
