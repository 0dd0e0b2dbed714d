#include "qkv/linear.h"

#include <gtest/gtest.h>

#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

double by_hand(const Tensor& x, const Tensor& w, const Tensor& b, std::int64_t row,
               std::int64_t o) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.dim(-1); ++i) sum += x.view().at({row, i}) * w.view().at({o, i});
  return sum + b.view().at({o});
}

// Sums run from the first term to the last: in f64 the bits of plain loops, whatever the tile.
TEST(Linear, IsItsDefinitionAtEveryEdgeOfATile) {
  for (const std::int64_t rows : {1, 2, 63, 64, 65, 130}) {
    for (const std::int64_t in : {1, 3, 17}) {
      for (const std::int64_t out : {1, 2, 15, 16, 17, 35}) {
        const Tensor x = random_tensor({rows, in}, 1), w = random_tensor({out, in}, 2);
        const Tensor b = random_tensor({out}, 3);
        Tensor y(DType::f64, {rows, out});
        linear_forward({w, b}, x, y, {.backend = LinearBackend::reference});
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t o = 0; o < out; ++o) {
            ASSERT_EQ(y.view().at({r, o}), by_hand(x, w, b, r, o))
                << rows << " " << in << " " << out;
          }
        }
      }
    }
  }
}

TEST(Linear, AnyLayoutGivesTheSameBits) {
  const Tensor x = random_tensor({2, 3, 5, 7}, 1, 1, DType::f32);
  const Tensor w = random_tensor({9, 7}, 2, 1, DType::f32), b = random_tensor({9}, 3);
  Tensor dense(DType::f32, {2, 3, 5, 9});
  linear_forward({w, b}, x, dense);
  // Channels first, weights (in, out), a bias with gaps.
  const Tensor x_first = Tensor::copy_of(x.view().permute({0, 3, 1, 2}));
  const Tensor w_in_out = Tensor::copy_of(w.view().transpose(0, 1));
  Tensor b_gaps(DType::f64, {9, 2});
  copy(b, b_gaps.view().select(1, 1));
  Tensor y_first(DType::f32, {2, 9, 3, 5});
  linear_forward({w_in_out.view().transpose(0, 1), b_gaps.view().select(1, 1)},
                 x_first.view().permute({0, 2, 3, 1}), y_first.view().permute({0, 2, 3, 1}));
  EXPECT_EQ(max_difference(y_first.view().permute({0, 2, 3, 1}), dense), 0);
}

TEST(Linear, UnalignedViewsWork) {
  const Tensor x = random_tensor({3, 5}, 1, 1, DType::f32),
               w = random_tensor({4, 5}, 2, 1, DType::f32);
  Tensor y(DType::f32, {3, 4});
  linear_forward({w, {}}, x, y);
  std::vector<std::byte> a(61), b(81), c(49);
  std::memcpy(a.data() + 1, x.as<float>().data(), 60);
  std::memcpy(b.data() + 1, w.as<float>().data(), 80);
  linear_forward({TensorView(b.data() + 1, DType::f32, {4, 5}), {}},
                 TensorView(a.data() + 1, DType::f32, {3, 5}),
                 MutableTensorView(c.data() + 1, DType::f32, {3, 4}));
  EXPECT_EQ(std::memcmp(c.data() + 1, y.as<float>().data(), 48), 0);
}

TEST(Linear, DtypesOfItsArguments) {
  const Tensor x = random_tensor({4, 6}, 1), w = random_tensor({5, 6}, 2);
  Tensor exact(DType::f64, {4, 5});
  linear_forward({w, {}}, x, exact);
  // f32 inputs hold the same numbers; accumulating in f64 gives the same sums.
  Tensor wide(DType::f64, {4, 5}), rounded(DType::f32, {4, 5}), natural(DType::f64, {4, 5});
  const Tensor x32 = Tensor::copy_of(x.view(), DType::f32);
  linear_forward({w, {}}, x32, wide, {.accumulate = Accumulate::f64});
  EXPECT_TRUE(same_bits(wide, exact));
  linear_forward({w, {}}, x32, rounded, {.accumulate = Accumulate::f64});
  EXPECT_TRUE(same_bits(rounded, Tensor::copy_of(exact.view(), DType::f32)));
  linear_forward({w, {}}, x32, natural);
  EXPECT_LE(max_difference(natural, exact), 6 * 0x1p-23 * 10);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor narrow = Tensor::copy_of(x.view(), dtype);
    const Tensor same = Tensor::copy_of(narrow.view(), DType::f32);
    Tensor a(dtype, {4, 5}), b(dtype, {4, 5});
    linear_forward({w, {}}, narrow, a);
    linear_forward({w, {}}, same, b);
    EXPECT_TRUE(same_bits(a, b));
  }
}

TEST(Linear, EmptyDimensions) {
  const Tensor w = random_tensor({3, 4}, 1), b = tensor_of({1, 2, 3}, {3});
  Tensor none(DType::f64, {0, 4}), y_none(DType::f64, {0, 3});
  EXPECT_NO_THROW(linear_forward({w, b}, none, y_none));
  // A sum of nothing, and a bias.
  const Tensor w0(DType::f64, {3, 0}), x0(DType::f64, {2, 0});
  Tensor y(DType::f64, {2, 3});
  linear_forward({w0, b}, x0, y);
  expect_values(y, {1, 2, 3, 1, 2, 3}, 0);
}

TEST(Linear, Refuses) {
  Tensor x = random_tensor({4, 6}, 1), w = random_tensor({5, 6}, 2), y(DType::f64, {4, 5});
  const Tensor whole(DType::i32, {5, 6}), b = random_tensor({4}, 3);
  const auto refused = [&](const char* subject, const LinearWeights& weights, const TensorView& in,
                           const MutableTensorView& out, const LinearOptions& options = {}) {
    expect_refused(y, "linear_forward", subject,
                   [&] { linear_forward(weights, in, out, options); });
  };
  refused("x", {w, {}}, {}, y);
  refused("x", {w, {}}, whole, y);
  refused("x", {w, {}}, x.view().select(0, 0).select(0, 0), y);
  refused("weight", {{}, {}}, x, y);
  refused("weight", {whole, {}}, x, y);
  refused("weight", {w.view().transpose(0, 1), {}}, x, y);
  refused("weight", {w.view().select(0, 0), {}}, x, y);
  refused("bias", {w, b}, x, y);
  refused("out", {w, {}}, x, {});
  refused("out", {w, {}}, x, y.view().slice(1, 0, 4));
  refused("out", {w, {}}, x, MutableTensorView(y.view().data(), DType::f64, {4, 5}, {0, 1}));
  refused("out", {w, {}}, x, MutableTensorView(x.view().data(), DType::f64, {4, 5}));
  refused("out", {w, {}}, x, MutableTensorView(w.view().data(), DType::f64, {4, 5}));
  refused("threads", {w, {}}, x, y, {.threads = -1});
}

}  // namespace
}  // namespace qkv::testing
