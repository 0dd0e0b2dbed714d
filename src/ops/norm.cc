#include "ops/norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/norm/norm.h"
#include "kernels/rows.h"
#include "kernels/simd/row_kernels.h"
#include "ops/compute.h"
#include "ops/lines.h"

namespace qkv {
namespace {

bool same_elements(const TensorView& x, const TensorView& out) {
  return x.data() == out.data() && x.dtype() == out.dtype() && x.strides() == out.strides();
}

// Elements of a piece of work: some microseconds.
constexpr std::int64_t kPiece = 1 << 14;

// A weight of [n], or none, that the vectorised kernel can read where it lies.
bool is_line(const TensorView& view) { return !view.has_value() || has_f32_lines(view); }

const float* line_of(const TensorView& view) {
  return view.has_value() ? static_cast<const float*>(view.data()) : nullptr;
}

void run_lines(const NormWeights& weights, const TensorView& x, const MutableTensorView& out,
               int threads) {
  const std::int64_t n = x.dim(-1), rows = row_count(x);
  if (rows == 0 || n == 0) return;
  const NormLines norm{n, line_of(weights.weight), line_of(weights.bias),
                       static_cast<float>(weights.eps), weights.kind == NormKind::rms};
  const RowKernels& kernels = row_kernels();
  const std::int64_t together = std::max<std::int64_t>(1, kPiece / n);
  parallel_ranges((rows + together - 1) / together, 0, threads, [&](std::int64_t item, int) {
    for (std::int64_t row = item * together; row < std::min(rows, (item + 1) * together); ++row) {
      kernels.norm(norm, line_at(x, row * n), 0, 1, line_at(out, row * n), 0);
    }
  });
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
  if (dtype == DType::f32 && has_f32_lines(x) && has_f32_lines(out) && is_line(weights.weight) &&
      is_line(weights.bias)) {
    return run_lines(weights, x, out, threads);
  }
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
