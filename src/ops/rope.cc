#include "qkv/rope.h"

#include <cmath>
#include <numbers>

#include "base/element.h"
#include "kernels/rope/rope.h"
#include "ops/compute.h"
#include "ops/refuse.h"
#include "ops/rope.h"

namespace qkv {
namespace {

constexpr std::int64_t kWidest = 65536;

void check_scaling(const Refuse& refuse, const RopeScaling& scaling) {
  const auto positive = [&](std::string_view name, double value) {
    if (!std::isfinite(value) || value <= 0) {
      refuse.value(fmt::format("scaling.{}", name), "a finite number above 0",
                   fmt::format("{}", value));
    }
  };
  if (scaling.kind == RopeScalingKind::none) return;
  positive("factor", scaling.factor);
  if (scaling.kind == RopeScalingKind::linear) return;
  positive("original_context", scaling.original_context);
  positive("low_freq_factor", scaling.low_freq_factor);
  positive("high_freq_factor", scaling.high_freq_factor);
  if (scaling.low_freq_factor >= scaling.high_freq_factor) {
    refuse.value("scaling.high_freq_factor",
                 fmt::format("above low_freq_factor, {}", scaling.low_freq_factor),
                 fmt::format("{}", scaling.high_freq_factor));
  }
}

double scaled(double frequency, const RopeScaling& scaling) {
  if (scaling.kind == RopeScalingKind::none) return frequency;
  if (scaling.kind == RopeScalingKind::linear) return frequency / scaling.factor;
  // Turns that the original context holds: many are kept, few are stretched.
  const double turns = scaling.original_context * frequency / (2 * std::numbers::pi);
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  const double kept =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

// A view with one more dimension in front, of extent 1.
template <typename View>
View with_batch(const View& view) {
  Dims shape{1}, strides{0};
  for (int i = 0; i < view.rank(); ++i) {
    shape.push_back(view.dim(i));
    strides.push_back(view.stride(i));
  }
  return View(view.data(), view.dtype(), shape, strides);
}

void check_positions(const Refuse& refuse, const TensorView& positions, std::int64_t P) {
  for (std::int64_t b = 0; b < positions.dim(0); ++b) {
    for (std::int64_t t = 0; t < positions.dim(1); ++t) {
      const std::int64_t position =
          load_integer(positions, b * positions.stride(0) + t * positions.stride(1));
      if (position < 0 || position >= P) {
        refuse.value(fmt::format("positions[{}, {}]", b, t),
                     fmt::format("a row of the table, in [0, {})", P), fmt::format("{}", position));
      }
    }
  }
}

// cos and sin as the kernel wants them, and positions [B, T].
void resolve_angles(const Refuse& refuse, const RopeAngles& angles, RopeProblem& p) {
  const std::int64_t B = p.x.dim(0), T = p.x.dim(2);
  for (const auto& [name, view] : {std::pair{"cos", &angles.cos}, std::pair{"sin", &angles.sin}}) {
    refuse.unless_given(name, *view);
    refuse.unless_float(name, *view);
    if (view->rank() < 2 || view->rank() > 3) {
      refuse.value(name, "shape [P, R/2], [T, R/2] or [B, T, R/2]", to_string(view->shape()));
    }
    if (view->dim(-1) > p.x.dim(3) / 2) {
      refuse.value(
          name, fmt::format("at most {} angles for heads of width {}", p.x.dim(3) / 2, p.x.dim(3)),
          to_string(view->shape()));
    }
  }
  refuse.unless_shape("sin", angles.sin, angles.cos.shape(), "of cos");
  if (angles.positions.has_value()) {
    refuse.unless_rank("cos", angles.cos, 2, "[P, R/2]");
    refuse.unless_dtype("positions", angles.positions, {DType::i32, DType::i64});
    const TensorView given =
        angles.positions.rank() == 1 ? with_batch(angles.positions) : angles.positions;
    if (given.rank() != 2 || given.dim(1) != T || (given.dim(0) != 1 && given.dim(0) != B)) {
      refuse.value("positions", fmt::format("shape [{}, {}] or [{}]", B, T, T),
                   to_string(angles.positions.shape()));
    }
    p.positions = given.broadcast_to({B, T});
    check_positions(refuse, given, angles.cos.dim(0));
    p.cos = angles.cos;
    p.sin = angles.sin;
    return;
  }
  const std::int64_t half = angles.cos.dim(-1);
  const bool batched = angles.cos.rank() == 3;
  refuse.unless_shape("cos", angles.cos, batched ? Dims{B, T, half} : Dims{T, half},
                      batched ? "[B, T, R/2]" : "[T, R/2]");
  p.cos = angles.cos.broadcast_to({B, T, half});
  p.sin = angles.sin.broadcast_to({B, T, half});
}

bool same_elements(const TensorView& x, const TensorView& out) {
  return x.data() == out.data() && x.dtype() == out.dtype() && x.strides() == out.strides();
}

}  // namespace

std::vector<double> rope_frequencies(std::int64_t width, double base, const RopeScaling& scaling) {
  constexpr Refuse refuse("rope_frequencies");
  if (width < 2 || width % 2 != 0 || width > kWidest) {
    refuse.value("width", fmt::format("an even number in [2, {}]", kWidest),
                 fmt::format("{}", width));
  }
  if (!std::isfinite(base) || base <= 0) {
    refuse.value("base", "a finite number above 0", fmt::format("{}", base));
  }
  check_scaling(refuse, scaling);
  std::vector<double> result;
  for (std::int64_t i = 0; i < width / 2; ++i) {
    const double power = static_cast<double>(2 * i) / static_cast<double>(width);
    result.push_back(scaled(std::pow(base, -power), scaling));
  }
  return result;
}

void rope_table(const std::vector<double>& frequencies, std::int64_t first,
                const MutableTensorView& cos, const MutableTensorView& sin) {
  constexpr Refuse refuse("rope_table");
  const auto half = static_cast<std::int64_t>(frequencies.size());
  refuse.unless_rank("cos", cos, 2, "[P, R/2]");
  refuse.unless_shape("cos", cos, {cos.dim(0), half}, "[P, R/2]");
  refuse.unless_shape("sin", sin, cos.shape(), "of cos");
  for (const auto& [name, view] : {std::pair{"cos", &cos}, std::pair{"sin", &sin}}) {
    refuse.unless_dtype(name, *view, {DType::f32, DType::f64});
    refuse.unless_writable(name, *view);
  }
  refuse.if_overlap("cos", cos, "sin", sin);
  for (std::int64_t p = 0; p < cos.dim(0); ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(first + p) * frequencies[static_cast<std::size_t>(i)];
      store_real(cos, p * cos.stride(0) + i * cos.stride(1), std::cos(angle));
      store_real(sin, p * sin.stride(0) + i * sin.stride(1), std::sin(angle));
    }
  }
}

void check_rope(const Refuse& refuse, const RopeAngles& angles, const TensorView& x,
                const MutableTensorView& out, RopeProblem& p) {
  refuse.unless_given("x", x);
  refuse.unless_float("x", x);
  if (x.rank() != 3 && x.rank() != 4) {
    refuse.value("x", "shape [B, H, T, D] or [H, T, D]", to_string(x.shape()));
  }
  refuse.unless_shape("out", out, x.shape(), "of x");
  refuse.unless_float("out", out);
  refuse.unless_writable("out", out);
  p.x = x.rank() == 3 ? with_batch(x) : x;
  p.y = x.rank() == 3 ? with_batch(out) : out;
  resolve_angles(refuse, angles, p);
  if (!same_elements(x, out)) refuse.if_overlap("out", out, "x", x);
  refuse.if_overlap("out", out, "cos", angles.cos);
  refuse.if_overlap("out", out, "sin", angles.sin);
  refuse.if_overlap("out", out, "positions", angles.positions);
}

void run_rope(const RopeProblem& p, DType dtype, int threads) {
  compute_items(p.x.dim(0) * p.x.dim(2), dtype, {2, p.x.dim(3)}, threads,
                [&](std::int64_t item, auto* scratch) { rope_reference_token(p, item, scratch); });
}

void rope_forward(const RopeAngles& angles, const TensorView& x, const MutableTensorView& out,
                  RopePairing pairing, const LinearOptions& options) {
  constexpr Refuse refuse("rope_forward");
  RopeProblem p;
  p.pairing = pairing;
  check_rope(refuse, angles, x, out, p);
  if (options.threads < 0) {
    refuse.value("threads", "0 (default) or more", fmt::format("{}", options.threads));
  }
  run_rope(p, compute_dtype(x, options.accumulate), options.threads);
}

}  // namespace qkv
