#include "qkv/norm.h"

#include <gtest/gtest.h>

#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

TEST(Norm, LayerAndRms) {
  const Tensor x = tensor_of({1, 2, 3, 6}, {1, 4}), w = tensor_of({1, 1, 2, 1}, {4});
  const Tensor b = tensor_of({0, 0, 0, 10}, {4});
  Tensor y(DType::f64, {1, 4});
  norm_forward({w, b, 0.5}, x, y);  // mean 3, variance 3.5
  expect_values(y, {-1, -0.5, 0, 11.5}, 1e-15);
  norm_forward({{}, {}, 3.5, NormKind::rms}, x, y);  // mean of squares 12.5
  expect_values(y, {0.25, 0.5, 0.75, 1.5}, 1e-15);
}

TEST(Norm, InPlaceAndStrided) {
  const Tensor x = random_tensor({2, 3, 5}, 1, 1, DType::f32);
  Tensor y(DType::f32, {2, 3, 5}), z = x.clone();
  norm_forward({}, x, y);
  norm_forward({}, z, z);
  EXPECT_TRUE(same_bits(y, z));
  Tensor across = Tensor::copy_of(x.view().permute({2, 0, 1}));
  const MutableTensorView view = across.view().permute({1, 2, 0});
  norm_forward({}, view, view);
  // Other loops, other roundings: (n + 10)·|y| + (n + 2)·|x|/deviation units of 2⁻²⁴, both below 4.
  EXPECT_LE(max_difference(view, y), 22 * 4 * 0x1p-24);
}

// A large mean must not eat the differences.
TEST(Norm, LargeMean) {
  const Tensor x = tensor_of({4095, 4096, 4097}, {1, 3}, DType::f32);
  Tensor y(DType::f32, {1, 3});
  norm_forward({{}, {}, 0}, x, y);
  expect_values(y, {-std::sqrt(1.5), 0, std::sqrt(1.5)}, 1e-6);
}

TEST(Norm, Refuses) {
  Tensor x = random_tensor({2, 4}, 1), y(DType::f64, {2, 4});
  const Tensor three = tensor_of({1, 2, 3}, {3});
  const auto refused = [&](const char* subject, const NormWeights& w, const TensorView& in,
                           const MutableTensorView& out) {
    expect_refused(y, "norm_forward", subject, [&] { norm_forward(w, in, out); });
  };
  refused("x", {}, {}, y);
  refused("weight", {three, {}}, x, y);
  refused("bias", {{}, three}, x, y);
  refused("eps", {{}, {}, -1}, x, y);
  refused("eps", {{}, {}, std::nan("")}, x, y);
  refused("out", {}, x, y.view().slice(0, 0, 1));
  refused("out", {}, x.view().slice(0, 0, 1), x.view().slice(0, 0, 1).slice(1, 0, 3));
  refused("out", {}, x, MutableTensorView(x.view().data(), DType::f64, {2, 4}, {1, 2}));
}

}  // namespace
}  // namespace qkv::testing
