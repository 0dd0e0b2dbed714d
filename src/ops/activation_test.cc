#include "qkv/activation.h"

#include <gtest/gtest.h>

#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

// Computed apart, by Python's math.erfc, tanh and exp.
TEST(Activation, Values) {
  const Tensor x = tensor_of({-1, 0, 1, 3}, {4});
  Tensor y(DType::f64, {4});
  activation_forward(Activation::relu, x, y);
  expect_values(y, {0, 0, 1, 3}, 0);
  activation_forward(Activation::gelu, x, y);
  expect_values(y, {-0.15865525393145707, 0, 0.84134474606854293, 2.9959503058}, 1e-9);
  activation_forward(Activation::gelu_tanh, x, y);
  expect_values(y, {-0.15880800939, 0, 0.84119199061, 2.9963626079182273}, 1e-9);
  activation_forward(Activation::silu, x, y);
  expect_values(y, {-0.26894142137, 0, 0.73105857863, 2.8577223804}, 1e-9);
  activation_forward(Activation::quick_gelu, x, y);
  expect_values(y, {-0.15420423, 0, 0.84579577, 2.9819286903}, 1e-7);
}

// Dense, strided and 16-bit arguments give what f64 gives.
TEST(Activation, LayoutsAndDtypes) {
  const Tensor x = random_tensor({3, 5, 40}, 1, 2), g = random_tensor({3, 5, 40}, 2, 2);
  Tensor expected(DType::f64, x.shape()), gated(DType::f64, x.shape());
  activation_forward(Activation::gelu, x, expected);
  gated_forward(Activation::silu, g, x, gated);
  const Tensor x32 = Tensor::copy_of(x, DType::f32), g32 = Tensor::copy_of(g, DType::f32);
  Tensor y(DType::f32, x.shape());
  activation_forward(Activation::gelu, x32, y);
  EXPECT_LE(max_difference(y, expected), 1e-6);
  gated_forward(Activation::silu, g32, x32, y);
  EXPECT_LE(max_difference(y, gated), 1e-5);

  const TensorView part = x32.view().slice(2, 3, 30);
  Tensor wide(DType::f32, {3, 5, 50});
  activation_forward(Activation::gelu, part, wide.view().slice(2, 20, 47));
  EXPECT_LE(max_difference(wide.view().slice(2, 20, 47), expected.view().slice(2, 3, 30)), 1e-6);
  Tensor across(DType::f32, {40, 5, 3});
  activation_forward(Activation::gelu, x32, across.view().permute({2, 1, 0}));
  EXPECT_LE(max_difference(across.view().permute({2, 1, 0}), expected), 1e-6);

  Tensor in_place = x32.clone();
  activation_forward(Activation::gelu, in_place, in_place);
  EXPECT_LE(max_difference(in_place, expected), 1e-6);
}

// A line longer than a piece of work, on several threads.
TEST(Activation, LongLines) {
  const Tensor x = random_tensor({2, 50001}, 1, 2, DType::f32);
  Tensor one(DType::f32, x.shape()), three(DType::f32, x.shape()), row(DType::f32, {1, 50001});
  activation_forward(Activation::silu, x, one, 1);
  activation_forward(Activation::silu, x, three, 3);
  EXPECT_TRUE(same_bits(one, three));
  activation_forward(Activation::silu, x.view().slice(0, 1, 2), row);
  EXPECT_EQ(max_difference(row, one.view().slice(0, 1, 2)), 0);
}

TEST(Activation, Refuses) {
  const Tensor x = random_tensor({2, 3}, 1);
  Tensor y = random_tensor({2, 3}, 2), small(DType::f64, {2, 2});
  const auto refused = [&](const char* subject, Activation activation, const TensorView& in,
                           const MutableTensorView& out, int threads) {
    expect_refused(y, "activation_forward", subject,
                   [&] { activation_forward(activation, in, out, threads); });
  };
  refused("x", Activation::relu, {}, y, 0);
  refused("out", Activation::relu, x, small, 0);
  refused("activation", static_cast<Activation>(99), x, y, 0);
  refused("threads", Activation::relu, x, y, -1);
  refused("out", Activation::relu, y.view().transpose(0, 1),
          y.view().transpose(0, 1).slice(1, 0, 1), 0);
  expect_refused(y, "gated_forward", "x", [&] { gated_forward(Activation::silu, x, small, y); });
}

}  // namespace
}  // namespace qkv::testing
