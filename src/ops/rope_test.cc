#include "qkv/rope.h"

#include <gtest/gtest.h>

#include <complex>
#include <numbers>

#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

TEST(RopeFrequencies, FallGeometrically) {
  const std::vector<double> f = rope_frequencies(8, 10000);
  ASSERT_EQ(f.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(f[i], std::pow(10.0, -static_cast<double>(i)));
  }
  const std::vector<double> slow =
      rope_frequencies(8, 10000, {.kind = RopeScalingKind::linear, .factor = 4});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(slow[i], f[i] / 4);
}

// The three ranges of Llama 3.1's own settings: short turns as they are, long ones stretched by 8,
// the ones between by the formula of its reference, written here in wavelengths.
TEST(RopeFrequencies, Llama3) {
  const RopeScaling scaling{RopeScalingKind::llama3, 8, 1, 4, 8192};
  const std::vector<double> plain = rope_frequencies(128, 500000);
  const std::vector<double> f = rope_frequencies(128, 500000, scaling);
  int kept = 0, stretched = 0, mixed = 0;
  for (std::size_t i = 0; i < f.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 8192 / 4.0) {
      EXPECT_EQ(f[i], plain[i]);
      ++kept;
    } else if (wavelength > 8192 / 1.0) {
      EXPECT_EQ(f[i], plain[i] / 8);
      ++stretched;
    } else {
      const double smooth = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(f[i] / ((1 - smooth) * plain[i] / 8 + smooth * plain[i]), 1, 1e-14);
      ++mixed;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(stretched, 20);
  EXPECT_GT(mixed, 4);
}

TEST(RopeFrequencies, Refuses) {
  const Tensor none(DType::f64, {1});
  const auto refused = [&](const char* subject, auto&& fn) {
    expect_refused(none, "rope_frequencies", subject, fn);
  };
  for (const std::int64_t width : {-2, 0, 1, 7, 65538}) {
    refused("width", [&] { (void)rope_frequencies(width); });
  }
  for (const double base : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    refused("base", [&] { (void)rope_frequencies(8, base); });
  }
  refused("scaling.factor", [] { (void)rope_frequencies(8, 1e4, {RopeScalingKind::linear, 0}); });
  refused("scaling.high_freq_factor", [] {
    (void)rope_frequencies(8, 1e4, {RopeScalingKind::llama3, 8, 4, 4});
  });
  refused("scaling.original_context", [] {
    (void)rope_frequencies(8, 1e4, {RopeScalingKind::llama3, 8, 1, 4, 0});
  });
}

// Pairs as complex numbers, turned by exp(i·p·f): the definition, sharing nothing with the op.
double turned_error(RopePairing pairing, std::int64_t D, std::int64_t R, DType dtype) {
  const std::int64_t B = 2, H = 3, T = 5, P = 11, half = R / 2;
  const Tensor x = random_tensor({B, H, T, D}, 7, 1, dtype);
  const std::vector<std::int64_t> positions{0, 1, 2, 3, 10, 9, 4, 4, 0, 7};
  Tensor cos(DType::f64, {P, half}), sin(DType::f64, {P, half}), out(dtype, x.shape());
  const std::vector<double> f = rope_frequencies(R);
  rope_table(f, 0, cos, sin);
  rope_forward({cos, sin, TensorView::of(positions, {B, T})}, x, out, pairing);
  double worst = 0;
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t t = 0; t < T; ++t) {
        for (std::int64_t i = 0; i < half; ++i) {
          const bool apart = pairing == RopePairing::half_split;
          const std::int64_t a = apart ? i : 2 * i, c = apart ? i + half : 2 * i + 1;
          const auto p = static_cast<double>(positions[static_cast<std::size_t>(b * T + t)]);
          const std::complex<double> turned =
              std::complex<double>(x.view().at({b, h, t, a}), x.view().at({b, h, t, c})) *
              std::polar(1.0, p * f[static_cast<std::size_t>(i)]);
          worst = std::max(worst, std::abs(out.view().at({b, h, t, a}) - turned.real()));
          worst = std::max(worst, std::abs(out.view().at({b, h, t, c}) - turned.imag()));
        }
        for (std::int64_t c = R; c < D; ++c) {
          EXPECT_EQ(out.view().at({b, h, t, c}), x.view().at({b, h, t, c}));
        }
      }
    }
  }
  return worst;
}

TEST(Rope, TurnsPairs) {
  for (const RopePairing pairing : {RopePairing::half_split, RopePairing::interleaved}) {
    for (const auto& [D, R] :
         {std::pair{2, 2}, std::pair{8, 8}, std::pair{9, 4}, std::pair{66, 64}}) {
      // |x| < 4: two products and a sum, and a rounded table; for f32, 4·eps·4 and the roundings of
      // polar's own argument are far below.
      EXPECT_LE(turned_error(pairing, D, R, DType::f64), 16 * 0x1p-52) << D << ' ' << R;
      EXPECT_LE(turned_error(pairing, D, R, DType::f32), 16 * 0x1p-23) << D << ' ' << R;
      // One rounding of up to 4·√2 to 8 bits.
      EXPECT_LE(turned_error(pairing, D, R, DType::bf16), 6 * 0x1p-8) << D << ' ' << R;
    }
  }
}

// The point of it: a product of a turned query and a turned key depends on their distance.
TEST(Rope, ProductsDependOnDistance) {
  const Tensor x = random_tensor({1, 2, 1, 16}, 3);
  const auto product = [&](std::int64_t first, std::int64_t second) {
    const std::vector<double> f = rope_frequencies(16);
    Tensor q(DType::f64, x.shape()), cos(DType::f64, {1, 8}), sin(DType::f64, {1, 8});
    rope_table(f, first, cos, sin);
    rope_forward({cos, sin}, x, q);
    Tensor k(DType::f64, x.shape());
    rope_table(f, second, cos, sin);
    rope_forward({cos, sin}, x, k);
    double sum = 0;
    for (std::int64_t c = 0; c < 16; ++c)
      sum += q.view().at({0, 0, 0, c}) * k.view().at({0, 1, 0, c});
    return sum;
  };
  EXPECT_NEAR(product(3, 5), product(1003, 1005), 1e-11);
  EXPECT_GT(std::abs(product(3, 5) - product(3, 6)), 1e-3);
}

TEST(Rope, InPlaceStridedAndThreads) {
  const Tensor x = random_tensor({2, 7, 4, 8}, 1, 1, DType::f32);  // [B, T, H, D]
  Tensor cos(DType::f32, {7, 4}), sin(DType::f32, {7, 4});
  rope_table(rope_frequencies(8), 100, cos, sin);
  const TensorView heads = x.view().permute({0, 2, 1, 3});
  Tensor once(DType::f32, {2, 4, 7, 8});
  rope_forward({cos, sin}, heads, once, RopePairing::half_split, {.threads = 1});
  Tensor in_place = x.clone();
  const MutableTensorView same = in_place.view().permute({0, 2, 1, 3});
  rope_forward({cos, sin}, same, same, RopePairing::half_split, {.threads = 3});
  EXPECT_TRUE(same_bits(Tensor::copy_of(same), once));
  // Angles per sequence, and without a batch.
  Tensor wide(DType::f32, {2, 7, 4}), wide_sin(DType::f32, {2, 7, 4});
  copy(cos.view().broadcast_to({2, 7, 4}), wide);
  copy(sin.view().broadcast_to({2, 7, 4}), wide_sin);
  Tensor again(DType::f32, {2, 4, 7, 8});
  rope_forward({wide, wide_sin}, heads, again);
  EXPECT_TRUE(same_bits(again, once));
  rope_forward({cos, sin}, heads.select(0, 1), again.view().select(0, 0));
  EXPECT_EQ(max_difference(again.view().select(0, 0), once.view().select(0, 1)), 0);
}

TEST(Rope, Refuses) {
  const Tensor x = random_tensor({1, 2, 3, 4}, 1);
  Tensor y(DType::f64, {1, 2, 3, 4}), cos(DType::f64, {3, 2}), sin(DType::f64, {3, 2});
  const Tensor wide(DType::f64, {3, 3}), one(DType::f64, {3, 1});
  const auto refused = [&](const char* subject, const RopeAngles& angles, const TensorView& in,
                           const MutableTensorView& out) {
    expect_refused(y, "rope_forward", subject, [&] { rope_forward(angles, in, out); });
  };
  refused("x", {cos, sin}, {}, y);
  refused("x", {cos, sin}, x.view().select(0, 0).select(0, 0), y.view().select(0, 0).select(0, 0));
  refused("out", {cos, sin}, x, y.view().slice(2, 0, 2));
  refused("cos", {{}, sin}, x, y);
  refused("cos", {wide, wide}, x, y);
  refused("sin", {cos, one}, x, y);
  refused("cos", {cos, sin}, x.view().slice(2, 0, 2), y.view().slice(2, 0, 2));
  const std::vector<std::int64_t> high{0, 1, 3}, low{0, -1, 0}, few{0, 1};
  refused("positions[0, 2]", {cos, sin, TensorView::of(high)}, x, y);
  refused("positions[0, 1]", {cos, sin, TensorView::of(low)}, x, y);
  refused("positions", {cos, sin, TensorView::of(few)}, x, y);
  refused("out", {cos, sin}, y,
          MutableTensorView(y.view().data(), DType::f64, {1, 2, 3, 4}, {24, 4, 8, 1}));
}

}  // namespace
}  // namespace qkv::testing
