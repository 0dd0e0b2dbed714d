// The panel kernel against the reference in f64, on every target of this CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/linear/onednn.h"
#include "qkv/linear.h"
#include "tests/block_trace.h"
#include "tests/effort.h"

namespace qkv::testing {
namespace {

// A tensor inside a larger one that is full of NaN: what is read past its rows is seen, and so is
// what is written there.
struct Padded {
  Tensor all;
  MutableTensorView view;

  Padded(DType dtype, std::int64_t rows, std::int64_t columns)
      : all(dtype, {rows + 2, columns + 3}),
        view(all.view().slice(0, 1, rows + 1).slice(1, 1, columns + 1)) {
    fill();
  }
  void fill() {
    for (std::int64_t r = 0; r < all.dim(0); ++r) {
      for (std::int64_t c = 0; c < all.dim(1); ++c) all.view().set({r, c}, std::nan(""));
    }
  }
  // NaN everywhere but in the view.
  bool intact() const {
    for (std::int64_t r = 0; r < all.dim(0); ++r) {
      for (std::int64_t c = 0; c < all.dim(1); ++c) {
        const bool inside = r >= 1 && r < all.dim(0) - 1 && c >= 1 && c < all.dim(1) - 2;
        if (!inside && !std::isnan(all.view().at({r, c}))) return false;
      }
    }
    return true;
  }
};

// A chain of `in` multiply-adds errs by at most in·u/(1 - in·u) ≈ 1.01·in·u of Σ|x·w|, u the
// rounding unit; bias, residual and activation add a few roundings of numbers no larger than
// |sum| + |bias| + |residual|, hence 8 more, and an activation is steeper than 1 by less than 1.13.
double tolerance(std::int64_t in, DType compute, double magnitude) {
  const double unit = compute == DType::f64 ? 0x1p-53 : 0x1p-24;
  return 1.13 * 1.01 * (static_cast<double>(in) + 8) * unit * magnitude + 1e-300;
}

struct Case {
  std::int64_t rows, in, out;
};

struct Problem {
  Tensor x, w, b, residual;
  Tensor exact, magnitude;  // f64: the result, and the size of what was added up for it

  Problem(const Case& c, DType dtype, Activation activation, bool bias, bool add)
      : x(random_tensor({c.rows, c.in}, 1, 1, dtype)),
        w(random_tensor({c.out, c.in}, 2, 1, dtype)) {
    if (bias) b = random_tensor({c.out}, 3, 1, dtype);
    if (add) residual = random_tensor({c.rows, c.out}, 4, 1, dtype);
    exact = Tensor(DType::f64, {c.rows, c.out});
    magnitude = Tensor(DType::f64, {c.rows, c.out});
    linear_forward({w, b}, x, exact,
                   {.activation = activation,
                    .residual = residual,
                    .accumulate = Accumulate::f64,
                    .backend = LinearBackend::reference});
    const auto absolute = [](const Tensor& t) {
      Tensor copy = Tensor::copy_of(t.view(), DType::f64);
      for (double& v : copy.as<double>()) v = std::abs(v);
      return copy;
    };
    linear_forward(
        {absolute(w), bias ? absolute(b) : Tensor()}, absolute(x), magnitude,
        {.residual = add ? absolute(residual) : Tensor(), .backend = LinearBackend::reference});
  }

  void expect_close(const TensorView& y, DType compute, const char* what) const {
    for (std::int64_t r = 0; r < exact.dim(0); ++r) {
      for (std::int64_t o = 0; o < exact.dim(1); ++o) {
        const double bound = tolerance(x.dim(1), compute, magnitude.view().at({r, o}));
        ASSERT_NEAR(y.at({r, o}), exact.view().at({r, o}), bound)
            << what << ", " << to_string(x.shape()) << " -> " << w.dim(0) << " at " << r << ", "
            << o;
      }
    }
  }
};

void expect_right(const Case& c, DType dtype, Activation activation, SimdTarget target) {
  SCOPED_TRACE(std::string(name_of(target)) + " " + std::string(name_of(activation)));
  const Problem p(c, dtype, activation, c.rows % 4 != 2, c.out % 2 == 1);
  Padded x(dtype, c.rows, c.in), w(dtype, c.out, c.in), y(dtype, c.rows, c.out);
  copy(p.x, x.view);
  copy(p.w, w.view);
  LinearOptions options{
      .activation = activation, .residual = p.residual, .target = target, .threads = 1};
  linear_forward({w.view, p.b}, x.view, y.view, options);
  p.expect_close(y.view, dtype, "unprepared");
  EXPECT_TRUE(y.intact());
  const Tensor bits = Tensor::copy_of(y.view);

  // Prepared: the same bits, and so over a transposed (channel-first) input and output.
  const PreparedLinear prepared({w.view, p.b}, {.target = target});
  y.fill();
  prepared.forward(x.view, y.view, options);
  EXPECT_TRUE(y.intact());
  EXPECT_TRUE(same_bits(Tensor::copy_of(y.view), bits)) << "prepared";
  Padded xt(dtype, c.in, c.rows), yt(dtype, c.out, c.rows);
  copy(p.x.view().transpose(0, 1), xt.view);
  Tensor zt;  // the residual as it comes, and channel-first, too
  LinearOptions turned = options;
  if (p.residual.view().has_value()) {
    zt = Tensor::copy_of(p.residual.view().transpose(0, 1));
    turned.residual = zt.view().transpose(0, 1);
  }
  for (const LinearOptions& each : {options, turned}) {
    yt.fill();
    prepared.forward(xt.view.transpose(0, 1), yt.view.transpose(0, 1), each);
    EXPECT_TRUE(yt.intact());
    EXPECT_TRUE(same_bits(Tensor::copy_of(yt.view.transpose(0, 1)), bits)) << "channels";
  }
  yt.fill();
  linear_forward({w.view, p.b}, x.view, yt.view.transpose(0, 1), options);
  EXPECT_TRUE(same_bits(Tensor::copy_of(yt.view.transpose(0, 1)), bits)) << "channels out";
  y.fill();
  prepared.forward(xt.view.transpose(0, 1), y.view, options);
  EXPECT_TRUE(same_bits(Tensor::copy_of(y.view), bits)) << "channels in";
}

// Around the widths of tiles (rows 4 and 6, vectors up to 16 lanes, panels up to 64) and of units.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> found;
    for (const std::int64_t rows : {1, 2, 3, 5, 6, 7, 20, 97})
      for (const std::int64_t out : {1, 3, 15, 16, 17, 31, 47, 63, 64, 65, 113, 203})
        found.push_back({rows, (rows * 7 + out) % 40 + 1, out});
    for (const std::int64_t in : {1, 2, 113, 767, 768, 769, 1537}) found.push_back({7, in, 33});
    found.push_back({193, 64, 130});
    // Pixels that end with half a vector of 16.
    for (const std::int64_t rows : {8, 24, 40, 56, 104})
      for (const std::int64_t out : {2, 7, 13, 65}) found.push_back({rows, rows + 3, out});
    found.push_back({56, 601, 33});
    return found;
  }();
  return all;
}

class PanelTargets : public ::testing::TestWithParam<SimdTarget> {};

TEST_P(PanelTargets, IsTheReferenceAtEveryEdge) {
  int n = 0;
  for (const Case& c : cases()) {
    if (++n % kStride != 0) continue;
    const auto activation = static_cast<Activation>(n % 6);
    for (const DType dtype : {DType::f32, DType::f64}) {
      expect_right(c, dtype, activation, GetParam());
      if (HasFatalFailure()) return;
    }
  }
}

// 16-bit weights are converted exactly, in the loop (few rows) or before it (many).
TEST_P(PanelTargets, StoredNarrow) {
  for (const std::int64_t rows : {1, 5, 40}) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const Tensor x = random_tensor({rows, 50}, 1, 1, DType::f32);
      const Tensor w = random_tensor({130, 50}, 2, 1, dtype);
      const Tensor wide = Tensor::copy_of(w.view(), DType::f32);
      Tensor a(DType::f32, {rows, 130}), b(DType::f32, {rows, 130});
      PreparedLinear({w, {}}, {.target = GetParam()}).forward(x, a);
      PreparedLinear({wide, {}}, {.target = GetParam()}).forward(x, b);
      EXPECT_TRUE(same_bits(a, b)) << name_of(dtype) << " " << rows;
    }
  }
}

// Every f16 and bf16 number goes through the loop that converts; infinities and NaN as well.
TEST_P(PanelTargets, EveryNarrowNumber) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Tensor w(dtype, {65536 / 16, 16});
    auto* bits = static_cast<std::uint16_t*>(w.view().data());
    for (int n = 0; n < 65536; ++n) bits[n] = static_cast<std::uint16_t>(n);
    const PreparedLinear prepared({w, {}}, {.target = GetParam()});
    for (std::int64_t i = 0; i < 16; i += 5) {
      // A column of the matrix alone: zeros times infinities would be NaN.
      const PreparedLinear column({w.view().slice(1, i, i + 1), {}}, {.target = GetParam()});
      const Tensor one = tensor_of({1}, {1, 1}, DType::f32);
      Tensor y(DType::f32, {1, 65536 / 16});
      column.forward(one, y);
      for (std::int64_t o = 0; o < y.dim(1); ++o) {
        const double expected = w.view().at({o, i}), found = y.view().at({0, o});
        ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
            << name_of(dtype) << " " << o * 16 + i;
      }
    }
  }
}

// [B, T, in] with gaps between sequences, heads apart: rows that have no one step.
TEST_P(PanelTargets, RowsThatAreNotEvenlyApart) {
  const Tensor w = random_tensor({70, 24}, 2, 1, DType::f32);
  Tensor x_all = random_tensor({3, 9, 2, 24}, 1, 1, DType::f32), y_all(DType::f32, {3, 11, 3, 70});
  const TensorView x = x_all.view().slice(1, 0, 5);
  const MutableTensorView y = y_all.view().slice(1, 2, 7).slice(2, 0, 2);
  const LinearOptions options{.residual = y, .target = GetParam()};
  linear_forward({w, {}}, x, y, options);
  const Tensor dense_x = Tensor::copy_of(x);
  Tensor dense_y(DType::f32, {3, 5, 2, 70});
  linear_forward({w, {}}, dense_x, dense_y, {.target = GetParam()});
  EXPECT_EQ(max_difference(y, dense_y), 0);
  EXPECT_EQ(y_all.view().at({0, 1, 0, 0}), 0);
  // Images of a batch with a gap between them, channels first.
  Tensor images = random_tensor({2, 30, 3, 7}, 3, 1, DType::f32), out(DType::f32, {2, 80, 3, 7});
  const TensorView part = images.view().slice(1, 3, 27);
  const MutableTensorView into = out.view().slice(1, 5, 75);
  linear_forward({w, {}}, part.permute({0, 2, 3, 1}), into.permute({0, 2, 3, 1}),
                 {.target = GetParam()});
  Tensor expected(DType::f32, {2, 3, 7, 70});
  linear_forward({w, {}}, Tensor::copy_of(part.permute({0, 2, 3, 1})), expected,
                 {.target = GetParam()});
  EXPECT_EQ(max_difference(into.permute({0, 2, 3, 1}), expected), 0);
}

// A row's bits do not depend on how many rows come with it, nor on threads.
TEST_P(PanelTargets, BitsOfARowAreItsOwn) {
  const Tensor x = random_tensor({203, 100}, 1, 1, DType::f32);
  const Tensor w = random_tensor({300, 100}, 2, 1, DType::f32);
  const PreparedLinear prepared({w, {}}, {.target = GetParam()});
  Tensor all(DType::f32, {203, 300}), again(DType::f32, {203, 300}), one(DType::f32, {1, 300});
  prepared.forward(x, all, {.threads = 1});
  for (const int threads : {2, 3, 5}) {
    prepared.forward(x, again, {.threads = threads});
    EXPECT_TRUE(same_bits(all, again)) << threads;
  }
  for (const std::int64_t row : {0, 97, 202}) {
    prepared.forward(x.view().slice(0, row, row + 1), one);
    EXPECT_EQ(max_difference(one, all.view().slice(0, row, row + 1)), 0) << row;
  }
}

TEST_P(PanelTargets, ActivationsOfHardNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> numbers = {0.0,          -0.0, 1e-30, -1e-30, 1e30, -1e30, inf,
                                 std::nan(""), 88,   -88,   -104,   3e38, -3e38};
  for (double v = -12; v <= 12; v += 1.0 / 64) numbers.push_back(v);
  const auto n = static_cast<std::int64_t>(numbers.size());
  const Tensor x = tensor_of({1}, {1, 1}, DType::f32);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor w = Tensor::copy_of(TensorView::of(numbers, {n, 1}), dtype);
    const Tensor xs = Tensor::copy_of(x.view(), dtype);
    for (const Activation activation :
         {Activation::relu, Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
      Tensor y(dtype, {1, n}), expected(DType::f64, {1, n});
      linear_forward({w, {}}, xs, y, {.activation = activation, .target = GetParam()});
      linear_forward({w, {}}, xs, expected,
                     {.activation = activation,
                      .accumulate = Accumulate::f64,
                      .backend = LinearBackend::reference});
      for (std::int64_t i = 0; i < n; ++i) {
        const double e = expected.view().at({0, i}), f = y.view().at({0, i});
        const double v = w.view().at({i, 0});
        if (std::isnan(e) || std::isinf(e)) {
          EXPECT_TRUE(f == e || (std::isnan(e) && std::isnan(f))) << v;
          continue;
        }
        // A few roundings of a factor in [0, 1], times v.
        const double unit = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
        EXPECT_NEAR(f, e, 4 * unit * std::abs(v)) << name_of(activation) << " of " << v;
      }
    }
  }
}

// What the bytes stand for, computed in f64 from their own definition.
Tensor byte_result(const Tensor& x, const Tensor& w, const Tensor& b) {
  const std::int64_t rows = x.dim(0), in = x.dim(1), out = w.dim(0);
  Tensor y(DType::f32, {rows, out});
  for (std::int64_t r = 0; r < rows; ++r) {
    float low = 0, high = 0;
    for (std::int64_t i = 0; i < in; ++i) {
      low = std::min(low, x.as<float>()[static_cast<std::size_t>(r * in + i)]);
      high = std::max(high, x.as<float>()[static_cast<std::size_t>(r * in + i)]);
    }
    const float factor = 255.0f / (high - low), scale = (high - low) / 255.0f;
    const long zero = std::lrint(-low * factor);
    for (std::int64_t o = 0; o < out; ++o) {
      float largest = 0;
      for (std::int64_t i = 0; i < in; ++i)
        largest = std::max(largest, std::abs(w.as<float>()[static_cast<std::size_t>(o * in + i)]));
      const float weight_scale = largest / 127;
      long sum = 0;
      for (std::int64_t i = 0; i < in; ++i) {
        const float xi = x.as<float>()[static_cast<std::size_t>(r * in + i)];
        const float wi = w.as<float>()[static_cast<std::size_t>(o * in + i)];
        const long byte = std::clamp(std::lrint(xi * factor) + zero, 0L, 255L);
        sum += (byte - zero) * std::lrint(wi / weight_scale);
      }
      const float value = static_cast<float>(sum) * (scale * weight_scale);
      y.view().set({r, o}, value + b.as<float>()[static_cast<std::size_t>(o)]);
    }
  }
  return y;
}

// Integer sums are exact, and what follows is the same operations in the same order: bit for bit
// the definition, on every target.
TEST_P(PanelTargets, BytesAreTheirDefinition) {
  for (const Case& c : {Case{1, 1, 1},
                        {1, 768, 200},
                        {2, 3, 5},
                        {3, 4, 16},
                        {5, 5, 63},
                        {6, 63, 64},
                        {7, 64, 65},
                        {20, 113, 113},
                        {97, 203, 70}}) {
    const Tensor x = random_tensor({c.rows, c.in}, 1, 1, DType::f32);
    const Tensor w = random_tensor({c.out, c.in}, 2, 1, DType::f32);
    const Tensor b = random_tensor({c.out}, 3, 1, DType::f32);
    const PreparedLinear prepared({w, b}, {.storage = WeightStorage::i8, .target = GetParam()});
    Padded xs(DType::f32, c.rows, c.in), y(DType::f32, c.rows, c.out);
    copy(x, xs.view);
    prepared.forward(xs.view, y.view);
    EXPECT_TRUE(y.intact());
    EXPECT_TRUE(same_bits(Tensor::copy_of(y.view), byte_result(x, w, b)))
        << c.rows << " " << c.in << " " << c.out;
    Tensor first(DType::f32, {c.out, c.rows});
    prepared.forward(x, first.view().transpose(0, 1), {.threads = 3});
    EXPECT_EQ(max_difference(first.view().transpose(0, 1), y.view), 0);
  }
}

// Weights off by 1/254 of the largest of their output, x by 1/510 of its row's range.
TEST_P(PanelTargets, BytesErrAsStated) {
  const Case c{33, 768, 130};
  const Tensor x = random_tensor({c.rows, c.in}, 1, 1, DType::f32);
  const Tensor w = random_tensor({c.out, c.in}, 2, 1, DType::f32);
  Tensor exact(DType::f64, {c.rows, c.out}), y(DType::f64, {c.rows, c.out});
  linear_forward({w, {}}, x, exact, {.accumulate = Accumulate::f64});
  PreparedLinear({w, {}}, {.storage = WeightStorage::i8, .target = GetParam()}).forward(x, y);
  double error = 0, size = 0;
  for (std::size_t i = 0; i < y.as<double>().size(); ++i) {
    error += std::pow(y.as<double>()[i] - exact.as<double>()[i], 2);
    size += std::pow(exact.as<double>()[i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.015);
  EXPECT_GT(std::sqrt(error / size), 0.002);  // it is bytes that were multiplied
}

TEST_P(PanelTargets, BytesOfHardRows) {
  const float inf = std::numeric_limits<float>::infinity();
  Tensor x = random_tensor({6, 20}, 1, 1, DType::f32);
  const auto row = [&](std::int64_t r) {
    return x.as<float>().subspan(static_cast<std::size_t>(r * 20), 20);
  };
  row(0)[7] = std::nanf("");
  row(1)[3] = inf;
  std::fill(row(2).begin(), row(2).end(), 0.0f);
  std::fill(row(3).begin(), row(3).end(), 1e-40f);
  row(4)[0] = 3e38f;
  row(4)[1] = -3e38f;
  const Tensor w = random_tensor({9, 20}, 2, 1, DType::f32),
               b = random_tensor({9}, 3, 1, DType::f32);
  Tensor y(DType::f32, {6, 9});
  PreparedLinear({w, b}, {.storage = WeightStorage::i8, .target = GetParam()}).forward(x, y);
  for (std::int64_t o = 0; o < 9; ++o) {
    EXPECT_TRUE(std::isnan(y.view().at({0, o})));
    EXPECT_TRUE(std::isnan(y.view().at({1, o})));
    EXPECT_EQ(y.view().at({2, o}), b.view().at({o}));
    EXPECT_EQ(y.view().at({3, o}), b.view().at({o}));
    EXPECT_TRUE(std::isnan(y.view().at({4, o})));
    EXPECT_TRUE(std::isfinite(y.view().at({5, o})));
  }
}

TEST(PanelBytes, Refuses) {
  const Tensor w(DType::f32, {1, 65537}), y(DType::f32, {1});
  expect_refused(y, "PreparedLinear", "storage", [&] {
    PreparedLinear({w, {}}, {.storage = WeightStorage::i8});
  });
  expect_refused(y, "PreparedLinear", "backend", [&] {
    PreparedLinear({w.view().slice(1, 0, 9), {}},
                   {.storage = WeightStorage::i8, .backend = LinearBackend::reference});
  });
}

// oneDNN against the reference in f64: within the bound of any order of summation.
TEST(OneDnn, IsTheReference) {
  if (!OneDnnLinear::available()) {
    const Tensor w(DType::f32, {3, 4}), y(DType::f32, {1});
    expect_refused(y, "PreparedLinear", "backend", [&] {
      PreparedLinear({w, {}}, {.backend = LinearBackend::onednn});
    });
    GTEST_SKIP() << "built without oneDNN";
  }
  int n = 0;
  for (const Case& c : {Case{1, 64, 48}, {7, 33, 17}, {64, 128, 100}, {197, 100, 65}}) {
    for (const Activation activation : {Activation::none, Activation::relu, Activation::silu,
                                        Activation::gelu, Activation::gelu_tanh}) {
      ++n;
      const Problem p(c, DType::f32, activation, n % 2 == 1, n % 3 == 0);
      const PreparedLinear prepared({p.w, p.b}, {.backend = LinearBackend::onednn});
      EXPECT_NE(prepared.describe(c.rows).find("oneDNN"), std::string::npos);
      Tensor y(DType::f32, {c.rows, c.out});
      prepared.forward(p.x, y, {.activation = activation, .residual = p.residual});
      p.expect_close(y, DType::f32, "oneDNN");
      // What it does not take, our own kernel computes.
      Tensor first(DType::f32, {c.out, c.rows});
      prepared.forward(p.x, first.view().transpose(0, 1),
                       {.activation = activation, .residual = p.residual});
      p.expect_close(first.view().transpose(0, 1), DType::f32, "beside oneDNN");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PanelTargets, ::testing::ValuesIn(simd_targets()),
                         [](const auto& target) { return std::string(name_of(target.param)); });

}  // namespace
}  // namespace qkv::testing
