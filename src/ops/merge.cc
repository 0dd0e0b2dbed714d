#include "qkv/merge.h"

#include <cmath>
#include <limits>

#include "base/element.h"
#include "base/parallel.h"
#include "ops/onnx_attention_check.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("merge_attention");
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check(std::span<const AttentionPart> parts, const MutableTensorView& out,
           const MutableTensorView& lse) {
  kRefuse.unless_rank("out", out, 4, "[B, Hq, Tq, Dv]");
  kRefuse.unless_float("out", out);
  kRefuse.unless_writable("out", out);
  const Dims rows{out.dim(0), out.dim(1), out.dim(2)};
  if (lse.has_value()) {
    kRefuse.unless_shape("lse", lse, rows, "[B, Hq, Tq]");
    kRefuse.unless_float("lse", lse);
    kRefuse.unless_writable("lse", lse);
    kRefuse.if_overlap("lse", lse, "out", out);
  }
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const std::string name = fmt::format("parts[{}].out", n), l = fmt::format("parts[{}].lse", n);
    kRefuse.unless_shape(name, parts[n].out, out.shape(), "[B, Hq, Tq, Dv]");
    kRefuse.unless_float(name, parts[n].out);
    kRefuse.unless_shape(l, parts[n].lse, rows, "[B, Hq, Tq]");
    kRefuse.unless_float(l, parts[n].lse);
    if (!same_window(out, parts[n].out)) kRefuse.if_overlap("out", out, name, parts[n].out);
    kRefuse.if_overlap("out", out, l, parts[n].lse);
    if (!lse.has_value()) continue;
    kRefuse.if_overlap("lse", lse, name, parts[n].out);
    if (!same_window(lse, parts[n].lse)) kRefuse.if_overlap("lse", lse, l, parts[n].lse);
  }
}

// `weights` has a number for each part.
void merge_row(std::span<const AttentionPart> parts, const MutableTensorView& out,
               const MutableTensorView& lse, std::int64_t b, std::int64_t h, std::int64_t t,
               double* weights) {
  const auto at = [&](const TensorView& x) {
    return b * x.stride(0) + h * x.stride(1) + t * x.stride(2);
  };
  double largest = -kInfinity;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    weights[n] = load_real<double>(parts[n].lse, at(parts[n].lse));
    if (!(weights[n] <= largest)) largest = weights[n];
  }
  double sum = 0;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    // A part without keys: also when no part has any, and the difference would be NaN.
    weights[n] = weights[n] == -kInfinity ? 0 : std::exp(weights[n] - largest);
    sum += weights[n];
  }
  for (std::int64_t d = 0; d < out.dim(3); ++d) {
    double x = 0;
    for (std::size_t n = 0; n < parts.size(); ++n) {
      const TensorView& part = parts[n].out;
      if (weights[n] != 0) x += weights[n] * load_real<double>(part, at(part) + d * part.stride(3));
    }
    store_real(out, at(out) + d * out.stride(3), sum == 0 ? 0 : x / sum);
  }
  if (lse.has_value()) store_real(lse, at(lse), sum == 0 ? -kInfinity : largest + std::log(sum));
}

}  // namespace

void merge_attention(std::span<const AttentionPart> parts, const MutableTensorView& out,
                     const MutableTensorView& lse, int threads) {
  check(parts, out, lse);
  const std::int64_t Hq = out.dim(1), Tq = out.dim(2), rows = out.dim(0) * Hq * Tq;
  const auto count = static_cast<std::int64_t>(parts.size());
  Tensor weights(DType::f64, {worker_count(rows, threads), count});
  double* all = weights.as<double>().data();
  parallel_for(rows, threads, [&](std::int64_t n, int worker) {
    merge_row(parts, out, lse, n / Tq / Hq, n / Tq % Hq, n % Tq, all + worker * count);
  });
}

}  // namespace qkv
