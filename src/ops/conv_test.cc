#include "ops/conv.h"

#include <gtest/gtest.h>

#include "ops/activation.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

// Lines and columns of 1 and 2 have all or most of their neighbours outside.
TEST(Depthwise, IsItsDefinitionForEverySmallImage) {
  for (const std::int64_t H : {1, 2, 3, 5}) {
    for (const std::int64_t W : {1, 2, 3, 7}) {
      const Tensor x = random_tensor({2, 3, H, W}, 1), w = random_tensor({3, 1, 3, 3}, 2);
      const Tensor bias = random_tensor({3}, 3);
      Tensor y(DType::f64, {2, 3, H, W});
      run_depthwise({w, bias}, x, y, DType::f64, 0);
      for (std::int64_t n = 0; n < y.size(); ++n) {
        const std::int64_t v = n % W, u = n / W % H, c = n / W / H % 3, b = n / W / H / 3;
        double expected = bias.view().at({c});
        for (std::int64_t i = -1; i <= 1; ++i) {
          for (std::int64_t j = -1; j <= 1; ++j) {
            if (u + i < 0 || u + i >= H || v + j < 0 || v + j >= W) continue;
            expected += x.view().at({b, c, u + i, v + j}) * w.view().at({c, 0, i + 1, j + 1});
          }
        }
        ASSERT_NEAR(y.view().at({b, c, u, v}), expected, 1e-14) << H << "×" << W;
      }
    }
  }
}

TEST(Depthwise, NothingOutsideTheImageIsRead) {
  // The image is the middle of a larger one that is NaN elsewhere.
  Tensor large(DType::f32, {1, 1, 6, 6});
  for (float& value : large.as<float>()) value = std::nanf("");
  const MutableTensorView image = large.view().slice(2, 2, 4).slice(3, 2, 4);
  const Tensor ones = tensor_of({1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 3, 3});
  copy(tensor_of({1, 2, 3, 4}, {1, 1, 2, 2}), image);
  Tensor y(DType::f32, {1, 1, 2, 2});
  run_depthwise({ones, {}}, image, y, DType::f32, 0);
  expect_values(y, {10, 10, 10, 10}, 0);
}

TEST(Silu, Values) {
  const Tensor x = tensor_of({0, 1, -1, 100, -100, -1e4, 1e4}, {7}, DType::f32);
  Tensor y(DType::f32, {7});
  run_activation(Activation::silu, x, y, DType::f32, 0);
  expect_values(y, {0, 0.7310586, -0.2689414, 100, 0, 0, 1e4}, 1e-6);
}

TEST(Add, MixesDtypes) {
  const Tensor a = tensor_of({1, 2}, {2}, DType::f16), b = tensor_of({0.25, 0.5}, {2});
  Tensor y(DType::f32, {2});
  run_add(a, b, y, DType::f32, 0);
  expect_values(y, {1.25, 2.5}, 0);
}

}  // namespace
}  // namespace qkv::testing
