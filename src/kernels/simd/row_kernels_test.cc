// Every kernel of the table on every target of this CPU, against the reference in f64.

#include "kernels/simd/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/conv/depthwise.h"
#include "kernels/norm/norm.h"
#include "qkv/norm.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

constexpr double kEps = 0x1p-23;
constexpr double kTiny = 0x1p-126;  // what is smaller may be 0
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kLengths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 26, 50, 64, 113, 203};
constexpr Activation kActivations[] = {Activation::none,       Activation::relu,
                                       Activation::gelu,       Activation::gelu_tanh,
                                       Activation::quick_gelu, Activation::silu};

// Numbers in the middle of a buffer of NaN, one element off any alignment.
class Line {
 public:
  explicit Line(std::int64_t n) : numbers_(static_cast<std::size_t>(n) + 2 * kMargin, kNaN), n_(n) {
    std::fill_n(data(), n, 0.0f);
  }
  explicit Line(const Tensor& values) : Line(values.size()) {
    for (std::int64_t i = 0; i < n_; ++i) {
      data()[i] = static_cast<float>(values.as<double>()[static_cast<std::size_t>(i)]);
    }
  }
  float* data() { return numbers_.data() + kMargin; }
  const float* data() const { return numbers_.data() + kMargin; }
  bool margins_intact() const {
    const auto nan = [](float x) { return std::isnan(x); };
    return std::all_of(numbers_.begin(), numbers_.begin() + kMargin, nan) &&
           std::all_of(numbers_.end() - kMargin, numbers_.end(), nan);
  }

 private:
  static constexpr std::int64_t kMargin = 33;
  std::vector<float> numbers_;
  std::int64_t n_;
};

Tensor reference_of(Activation activation, const Tensor& x) {
  Tensor y(DType::f64, x.shape());
  std::vector<double> scratch(static_cast<std::size_t>(2 * x.size()));
  activation_reference_row(activation, x, y, 0, scratch.data());
  return y;
}

// The size of what is exponentiated.
double exponent(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu: return x * x / 2;
    case Activation::gelu_tanh: return std::abs(1.6 * (x + 0.044715 * x * x * x));
    case Activation::quick_gelu: return std::abs(1.702 * x);
    case Activation::silu: return std::abs(x);
    default: return 0;
  }
}

// As activation.h promises: an exponent w is rounded to some units of its last place, which exp
// turns into a relative error of w of them; 8 for the rest. What is below the smallest normal
// number may be 0, times x.
double bound(Activation activation, double x, double y) {
  return kEps * (8 + 2 * exponent(activation, x)) * std::abs(y) + kTiny * (1 + std::abs(x));
}

TEST(RowKernels, ActivationsOfManyNumbers) {
  const std::int64_t n = 40001;
  Tensor x(DType::f64, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    x.as<double>()[static_cast<std::size_t>(i)] =
        static_cast<float>(static_cast<double>(i - n / 2) / (n / 2) * 20);
  }
  const Line line(x);
  for (const SimdTarget target : simd_targets()) {
    for (const Activation activation : kActivations) {
      Line y(n);
      row_kernels(target).activate(activation, line.data(), n, y.data());
      const Tensor expected = reference_of(activation, x);
      for (std::int64_t i = 0; i < n; ++i) {
        const double at = x.view().at({i}), value = expected.view().at({i});
        ASSERT_NEAR(y.data()[i], value, bound(activation, at, value))
            << name_of(target) << " " << name_of(activation) << " of " << at;
      }
    }
  }
}

TEST(RowKernels, ActivationsOfWhatIsNoOrdinaryNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float x[] = {infinity, kNaN, 3e38f, 0.0f, -0.0f, 1e-40f, -1e5f, -3e38f};
  for (const SimdTarget target : simd_targets()) {
    for (const Activation activation : kActivations) {
      float y[8];
      row_kernels(target).activate(activation, x, 8, y);
      const std::string who = std::string(name_of(target)) + " " + std::string(name_of(activation));
      EXPECT_EQ(y[0], infinity) << who;
      EXPECT_TRUE(std::isnan(y[1])) << who;
      EXPECT_EQ(y[2], 3e38f) << who;
      EXPECT_EQ(y[3], 0.0f) << who;
      EXPECT_EQ(y[4], 0.0f) << who;
      EXPECT_LE(std::abs(y[5]), 1e-40f) << who;
      if (activation == Activation::none) continue;
      EXPECT_EQ(y[6], 0.0f) << who;
      EXPECT_EQ(y[7], 0.0f) << who;
    }
  }
}

TEST(RowKernels, TailsOfElementwise) {
  for (const SimdTarget target : simd_targets()) {
    const RowKernels& kernels = row_kernels(target);
    for (const std::int64_t n : kLengths) {
      const Tensor x = random_tensor({n}, 1, 3), b = random_tensor({n}, 2, 3);
      const Line line(x), other(b);
      for (const Activation activation : kActivations) {
        const Tensor expected = reference_of(activation, x);
        Line y(n), gated(n);
        kernels.activate(activation, line.data(), n, y.data());
        kernels.gated(activation, line.data(), other.data(), n, gated.data());
        for (std::int64_t i = 0; i < n; ++i) {
          const double value = expected.view().at({i}),
                       limit = bound(activation, x.view().at({i}), value);
          ASSERT_NEAR(y.data()[i], value, limit);
          const double product = value * b.view().at({i});
          ASSERT_NEAR(gated.data()[i], product,
                      limit * std::abs(b.view().at({i})) + kEps * std::abs(product) + kTiny);
        }
        EXPECT_TRUE(y.margins_intact() && gated.margins_intact());
      }
      Line sum(n);
      kernels.add(line.data(), other.data(), n, sum.data());
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(sum.data()[i], line.data()[i] + other.data()[i]);
      }
      EXPECT_TRUE(sum.margins_intact());
    }
  }
}

// u = 2⁻²⁴ for each rounding. A sum of n numbers is off by at most n·u·Σ|x|, however it is
// associated, so the mean by n·u·(mean of |x|), and 1/√v by half of (n + 4)·u of itself. (x - mean)
// carries the error of the mean; four more roundings follow.
double norm_bound(const Tensor& x, double normed, double inverse, double weight, double bias) {
  const double n = static_cast<double>(x.size());
  double size = 0;
  for (const double each : x.as<double>()) size += std::abs(each) / n;
  const double u = kEps / 2;
  return u * ((n + 10) * std::abs(normed * weight) + (n + 2) * size * inverse * std::abs(weight) +
              2 * std::abs(bias));
}

void check_norm_of(const RowKernels& kernels, std::int64_t n, NormKind kind, bool weighted,
                   bool biased) {
  const Tensor x = random_tensor({n}, 3, 2), w = random_tensor({n}, 4), b = random_tensor({n}, 5);
  const Line weight(w), bias(b);
  const double eps = 1e-5;
  const NormLines norm{n, weighted ? weight.data() : nullptr, biased ? bias.data() : nullptr,
                       static_cast<float>(eps), kind == NormKind::rms};
  NormWeights weights{weighted ? w.view() : TensorView(), biased ? b.view() : TensorView(),
                      static_cast<float>(eps), kind};
  Tensor expected(DType::f64, {n}), plain(DType::f64, {n});
  std::vector<double> scratch(static_cast<std::size_t>(2 * n));
  norm_reference_row({x, weights, expected}, 0, scratch.data());
  norm_reference_row({x, {{}, {}, static_cast<float>(eps), kind}, plain}, 0, scratch.data());
  double squares = 0, mean = 0;
  for (const double each : x.as<double>()) mean += each / static_cast<double>(n);
  if (kind == NormKind::rms) mean = 0;
  for (const double each : x.as<double>()) squares += (each - mean) * (each - mean);
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + eps);

  const Line from(x);
  Line to(n), in_place(x);
  kernels.norm(norm, from.data(), n, 1, to.data(), n);
  kernels.norm(norm, in_place.data(), n, 1, in_place.data(), n);
  for (std::int64_t i = 0; i < n; ++i) {
    const double limit = norm_bound(x, plain.view().at({i}), inverse,
                                    weighted ? w.view().at({i}) : 1, biased ? b.view().at({i}) : 0);
    ASSERT_NEAR(to.data()[i], expected.view().at({i}), limit) << n << " " << i;
    ASSERT_EQ(to.data()[i], in_place.data()[i]);
  }
  EXPECT_TRUE(to.margins_intact() && in_place.margins_intact());
}

TEST(RowKernels, Norms) {
  for (const SimdTarget target : simd_targets()) {
    SCOPED_TRACE(name_of(target));
    for (const std::int64_t n : kLengths) {
      for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
        for (int flags = 0; flags < 4; ++flags) {
          check_norm_of(row_kernels(target), n, kind, (flags & 1) != 0, (flags & 2) != 0);
        }
      }
    }
  }
}

TEST(RowKernels, NormOfRowsAndOfLargeMean) {
  for (const SimdTarget target : simd_targets()) {
    float x[] = {4095, 4096, 4097, kNaN, 1, 1, 4, kNaN};
    float y[8] = {7, 7, 7, 7, 7, 7, 7, 7};
    row_kernels(target).norm({3, nullptr, nullptr, 0, false}, x, 4, 2, y, 4);
    const float expected[] = {-1.2247449f,  0,          1.2247449f, 7, -0.70710678f,
                              -0.70710678f, 1.4142136f, 7};
    for (int i = 0; i < 8; ++i) EXPECT_NEAR(y[i], expected[i], 1e-6) << name_of(target) << " " << i;
  }
}

// fn(c, h, w) for each number of some planes.
template <typename Fn>
void for_each_place(const Dims& shape, const Fn& fn) {
  for (std::int64_t c = 0; c < shape[1]; ++c) {
    for (std::int64_t h = 0; h < shape[2]; ++h) {
      for (std::int64_t w = 0; w < shape[3]; ++w) fn(c, h, w);
    }
  }
}

// Nine products and a bias: at most ten roundings of the size of what was added up.
// `gaps`: between the lines of x and of y, and between planes.
void check_depthwise_of(const RowKernels& kernels, std::int64_t H, std::int64_t W, bool accumulate,
                        bool gaps) {
  constexpr std::int64_t kPlanes = 3;
  const Dims shape{1, kPlanes, H, W};
  const Tensor x = random_tensor(shape, 6), taps = random_tensor({kPlanes, 3, 3}, 7);
  const Tensor bias = random_tensor({kPlanes}, 8), before = random_tensor(shape, 9);
  Tensor expected(DType::f64, shape), size(DType::f64, shape);
  std::vector<double> scratch(static_cast<std::size_t>(4 * (W + 2)));
  const auto absolute = [](const Tensor& t) {
    Tensor result = t.clone();
    for (double& each : result.as<double>()) each = std::abs(each);
    return result;
  };
  const Tensor ax = absolute(x), at = absolute(taps), ab = absolute(bias);
  for (std::int64_t c = 0; c < kPlanes; ++c) {
    depthwise_reference_plane({x, taps, bias, expected}, 0, c, scratch.data());
    depthwise_reference_plane({ax, at, ab, size}, 0, c, scratch.data());
  }

  const std::int64_t x_stride = W + (gaps ? 5 : 0), y_stride = W + (gaps ? 3 : 0);
  const std::int64_t x_step = H * x_stride + (gaps ? 7 : 0), y_step = H * y_stride + (gaps ? 9 : 0);
  Line from(kPlanes * x_step), to(kPlanes * y_step), all_taps(taps), all_bias(bias);
  std::fill_n(from.data(), kPlanes * x_step, kNaN);
  std::fill_n(to.data(), kPlanes * y_step, kNaN);
  std::vector<bool> written(static_cast<std::size_t>(kPlanes * y_step));
  for_each_place(shape, [&](std::int64_t c, std::int64_t h, std::int64_t w) {
    const std::int64_t at_y = c * y_step + h * y_stride + w;
    from.data()[c * x_step + h * x_stride + w] = static_cast<float>(x.view().at({0, c, h, w}));
    to.data()[at_y] = static_cast<float>(before.view().at({0, c, h, w}));
    written[static_cast<std::size_t>(at_y)] = true;
  });
  Line lines(kDepthwiseLines * depthwise_padded(W));
  kernels.depthwise({kPlanes, H, W, from.data(), x_step, x_stride, all_taps.data(), all_bias.data(),
                     accumulate, to.data(), y_step, y_stride},
                    lines.data());
  for_each_place(shape, [&](std::int64_t c, std::int64_t h, std::int64_t w) {
    const double added = accumulate ? before.view().at({0, c, h, w}) : 0;
    ASSERT_NEAR(to.data()[c * y_step + h * y_stride + w], expected.view().at({0, c, h, w}) + added,
                6 * kEps * (size.view().at({0, c, h, w}) + std::abs(added)));
  });
  for (std::int64_t n = 0; n < kPlanes * y_step; ++n) {
    ASSERT_TRUE(written[static_cast<std::size_t>(n)] || std::isnan(to.data()[n]));
  }
  EXPECT_TRUE(to.margins_intact() && lines.margins_intact());
}

TEST(RowKernels, Depthwise) {
  for (const SimdTarget target : simd_targets()) {
    SCOPED_TRACE(name_of(target));
    for (const std::int64_t W : {1, 2, 3, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 40, 113}) {
      for (const std::int64_t H : {1, 2, 3, 5, 6, 9, 19}) {
        for (const bool gaps : {false, true}) {
          check_depthwise_of(row_kernels(target), H, W, false, gaps);
          check_depthwise_of(row_kernels(target), H, W, true, gaps);
        }
      }
    }
    // The longest one, and a longer one, whose masks are not kept.
    check_depthwise_of(row_kernels(target), 93, 176, true, false);
    check_depthwise_of(row_kernels(target), 130, 127, true, false);
  }
}

// However a plane lies, its numbers are the same.
TEST(RowKernels, DepthwiseHasTheSameBitsWithGaps) {
  for (const SimdTarget target : simd_targets()) {
    SCOPED_TRACE(name_of(target));
    for (const std::int64_t W : {16, 17, 20, 40, 113}) {
      constexpr std::int64_t H = 7;
      const Tensor x = random_tensor({H, W}, 1, 1, DType::f32), taps = random_tensor({9}, 2);
      const Tensor bias = random_tensor({1}, 3);
      const Line all_taps(taps), one_bias(bias);
      Tensor wide(DType::f32, {H, W + 3}), dense(DType::f32, {H, W}), gaps(DType::f32, {H, W + 3});
      copy(x, wide.view().slice(1, 0, W));
      Line lines(kDepthwiseLines * depthwise_padded(W));
      const auto run = [&](const Tensor& from, Tensor& to) {
        row_kernels(target).depthwise(
            {1, H, W, from.as<float>().data(), 0, from.dim(1), all_taps.data(), one_bias.data(),
             false, to.as<float>().data(), 0, to.dim(1)},
            lines.data());
      };
      run(x, dense);
      run(wide, gaps);
      EXPECT_TRUE(same_bits(dense, Tensor::copy_of(gaps.view().slice(1, 0, W), DType::f32)));
    }
  }
}

}  // namespace
}  // namespace qkv::testing
