#include <gtest/gtest.h>

#include <cmath>

#include "ops/linear.h"
#include "qkv/linear.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return std::max(x, 0.0);
    case Activation::silu: return x * (1 / (1 + std::exp(-x)));
    case Activation::gelu: return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::quick_gelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::gelu_tanh: break;
  }
  const double pi = std::acos(-1.0);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * std::pow(x, 3))));
}

constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::silu,
                                       Activation::gelu, Activation::gelu_tanh};

TEST(PreparedLinear, IsLinearForwardOfItsWeights) {
  const Tensor x = random_tensor({2, 5, 19}, 1), b = random_tensor({35}, 3);
  const Tensor residual = random_tensor({2, 5, 35}, 4);
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const Tensor w = random_tensor({35, 19}, 2, 1, dtype);
    const PreparedLinear prepared({w, b});
    EXPECT_EQ(prepared.in(), 19);
    EXPECT_EQ(prepared.out(), 35);
    for (const DType input : {DType::f32, DType::f64, DType::bf16}) {
      const Tensor xs = Tensor::copy_of(x.view(), input);
      for (const Activation activation : kActivations) {
        const LinearOptions options{.activation = activation, .residual = residual};
        Tensor expected(DType::f64, {2, 5, 35}), found(DType::f64, {2, 5, 35});
        linear_forward({w, b}, xs, expected, options);
        prepared.forward(xs, found, options);
        EXPECT_TRUE(same_bits(found, expected)) << name_of(dtype) << " " << name_of(input);
      }
    }
  }
}

// |sum| is at most 19 products of numbers around 1; a rounding of it is multiplied by the
// activation's slope, at most 1.13, and the activation's own roundings are a few units.
TEST(PreparedLinear, ActivationAndResidualAreTheirDefinitions) {
  const Tensor x = random_tensor({5, 19}, 1), w = random_tensor({35, 19}, 2);
  const Tensor residual = random_tensor({5, 35}, 4);
  Tensor plain(DType::f64, {5, 35});
  const PreparedLinear prepared({w, {}});
  prepared.forward(x, plain);
  for (const Activation activation : kActivations) {
    Tensor y = residual.clone();
    prepared.forward(x, y, {.activation = activation, .residual = y});
    for (std::int64_t r = 0; r < 5; ++r) {
      for (std::int64_t o = 0; o < 35; ++o) {
        const double expected =
            activated(activation, plain.view().at({r, o})) + residual.view().at({r, o});
        EXPECT_NEAR(y.view().at({r, o}), expected, 64 * 0x1p-52 * 20) << name_of(activation);
      }
    }
  }
}

TEST(PreparedLinear, SeveralMapsSideBySide) {
  const Tensor x = random_tensor({7, 12}, 1);
  const Tensor q = random_tensor({8, 12}, 2), k = random_tensor({3, 12}, 3),
               v = random_tensor({20, 12}, 4), b = random_tensor({3}, 5);
  const PreparedLinear all({{q, {}}, {k, b}, {v, {}}});
  Tensor y(DType::f64, {7, 31}), part(DType::f64, {7, 3});
  all.forward(x, y);
  linear_forward({k, b}, x, part);
  EXPECT_EQ(max_difference(y.view().slice(1, 8, 11), part), 0);
  Tensor last(DType::f64, {7, 20});
  linear_forward({v, {}}, x, last);
  EXPECT_EQ(max_difference(y.view().slice(1, 11, 31), last), 0);
}

TEST(PreparedLinear, StorageRoundsOnce) {
  const Tensor x = random_tensor({4, 6}, 1, 1, DType::f32), w = random_tensor({5, 6}, 2);
  for (const auto& [storage, dtype] : {std::pair{WeightStorage::bf16, DType::bf16},
                                       {WeightStorage::f16, DType::f16},
                                       {WeightStorage::f32, DType::f32},
                                       {WeightStorage::f64, DType::f64}}) {
    const PreparedLinear prepared({w, {}}, {.storage = storage});
    const Tensor rounded = Tensor::copy_of(w.view(), dtype);
    Tensor a(DType::f32, {4, 5}), b(DType::f32, {4, 5});
    prepared.forward(x, a);
    linear_forward({rounded, {}}, x, b);
    EXPECT_TRUE(same_bits(a, b)) << name_of(storage);
    EXPECT_GE(prepared.bytes(), 30 * size_of(dtype));
  }
}

// Some outputs of an image are those of all of them, wherever they begin in a panel.
TEST(PreparedLinear, SomeOutputs) {
  constexpr std::int64_t in = 230, out = 150, H = 5, W = 17;
  const Tensor w = random_tensor({out, in}, 1), b = random_tensor({out}, 2);
  const Tensor image = random_tensor({2, in, H, W}, 3), narrow = Tensor::copy_of(image, DType::f32);
  for (const SimdTarget target : simd_targets()) {
    for (const WeightStorage storage :
         {WeightStorage::f64, WeightStorage::f32, WeightStorage::bf16}) {
      const PreparedLinear prepared({w, b}, {.storage = storage, .target = target});
      ASSERT_TRUE(gives_some_outputs(prepared));
      for (const Tensor* x : {&image, &narrow}) {
        const TensorView pixels = x->view().permute({0, 2, 3, 1});
        Tensor all(x->dtype(), {2, out, H, W});
        run_linear(prepared, pixels, all.view().permute({0, 2, 3, 1}), x->dtype(), 1);
        for (const std::int64_t first : {0, 1, 23, 24, 63, 64, 65, 101, 148}) {
          for (const std::int64_t count : {2, 11, 49, 87}) {
            if (first + count > out) continue;
            for (const int threads : {1, 3}) {
              Tensor some(x->dtype(), {2, count, H, W});
              run_some_outputs(prepared, first, pixels, some.view().permute({0, 2, 3, 1}),
                               x->dtype(), threads);
              EXPECT_EQ(max_difference(some, all.view().slice(1, first, first + count)), 0)
                  << name_of(target) << ", " << name_of(storage) << ": " << first << " + " << count;
            }
          }
        }
      }
    }
  }
  EXPECT_FALSE(gives_some_outputs(PreparedLinear({w, b}, {.storage = WeightStorage::i8})));
  EXPECT_FALSE(gives_some_outputs(PreparedLinear({w, b}, {.backend = LinearBackend::reference})));
}

TEST(PreparedLinear, CopiesShareAndOutliveTheViews) {
  PreparedLinear copy;
  EXPECT_FALSE(copy.has_value());
  EXPECT_EQ(copy.in(), 0);
  EXPECT_EQ(copy.bytes(), 0u);
  const Tensor x = random_tensor({2, 3}, 1);
  Tensor expected(DType::f64, {2, 4}), found(DType::f64, {2, 4});
  {
    const Tensor w = random_tensor({4, 3}, 2);
    linear_forward({w, {}}, x, expected);
    const PreparedLinear prepared({w, {}});
    copy = prepared;
    EXPECT_EQ(&copy.packed(), &prepared.packed());
  }
  copy.forward(x, found);
  EXPECT_TRUE(same_bits(found, expected));
  EXPECT_NE(copy.describe(2).find("3 -> 4"), std::string::npos);
}

TEST(PreparedLinear, Refuses) {
  Tensor x = random_tensor({4, 6}, 1), w = random_tensor({5, 6}, 2), y(DType::f64, {4, 5});
  const Tensor whole(DType::i32, {5, 6}), b = random_tensor({4}, 3);
  const auto unprepared = [&](const char* subject, std::initializer_list<LinearWeights> weights) {
    expect_refused(y, "PreparedLinear", subject, [&] { PreparedLinear p(weights); });
  };
  unprepared("weights", {});
  unprepared("weight", {{}});
  unprepared("weight", {{whole, {}}});
  unprepared("bias", {{w, b}});
  unprepared("weights[1].weight", {{w, {}}, {x.view().slice(1, 0, 5), {}}});
  const PreparedLinear prepared({w, {}});
  const auto refused = [&](const char* subject, const TensorView& in, const MutableTensorView& out,
                           const LinearOptions& options = {}) {
    expect_refused(y, "PreparedLinear", subject, [&] { prepared.forward(in, out, options); });
  };
  refused("x", {}, y);
  refused("x", whole, y);
  refused("x", x.view().slice(1, 0, 5), y);
  refused("out", x, {});
  refused("out", x, y.view().slice(1, 0, 4));
  refused("out", x, MutableTensorView(x.view().data(), DType::f64, {4, 5}));
  refused("residual", x, y, {.residual = whole});
  refused("residual", x, y, {.residual = y.view().slice(0, 0, 3)});
  refused("out", x, y, {.residual = TensorView(y.view().data(), DType::f64, {4, 5}, {1, 4})});
  refused("threads", x, y, {.threads = -1});
  expect_refused(y, "PreparedLinear", "weights", [&] { PreparedLinear().forward(x, y); });
}

}  // namespace
}  // namespace qkv::testing
