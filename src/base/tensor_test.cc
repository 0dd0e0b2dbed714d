#include "qkv/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "qkv/error.h"

namespace qkv {
namespace {

Tensor iota(const Dims& shape, DType dtype = DType::f32) {
  Tensor result(DType::i64, shape);
  std::iota(result.as<std::int64_t>().begin(), result.as<std::int64_t>().end(), 0);
  return Tensor::copy_of(result, dtype);
}

TEST(Dims, HoldUpToEight) {
  Dims dims{1, 2, 3};
  EXPECT_EQ(dims.rank(), 3);
  EXPECT_EQ(dims[-1], 3);
  EXPECT_EQ(to_string(dims), "[1, 2, 3]");
  EXPECT_THROW((Dims{1, 2, 3, 4, 5, 6, 7, 8, 9}), Error);
}

TEST(ElementCount, RefusesWhatDoesNotFit) {
  const std::int64_t big = std::int64_t{1} << 32;
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 0, 5}), 0);
  EXPECT_THROW(element_count({2, -1}), Error);
  EXPECT_THROW(element_count({big, big}), Error);
  EXPECT_THROW(element_count({big, big, 0}), Error);
}

TEST(TensorView, RefusesStridesThatWrap) {
  float x = 0;
  const std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
  EXPECT_THROW(TensorView(&x, DType::f32, {3}, {far}), Error);
  EXPECT_THROW(TensorView(&x, DType::f32, {2, 2}, {far / 2, far}), Error);
  EXPECT_THROW(TensorView(&x, DType::f32, {2}, {1, 1}), Error);
  EXPECT_NO_THROW(TensorView(&x, DType::f32, {1}, {far}));
}

TEST(TensorView, NotGivenIsNotEmpty) {
  EXPECT_FALSE(TensorView().has_value());
  EXPECT_TRUE(TensorView(nullptr, DType::f32, {0}).has_value());
  EXPECT_EQ(TensorView().size(), 0);
  EXPECT_FALSE(Tensor().view().has_value());
}

TEST(TensorView, OfSpans) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const auto view = TensorView::of(values, {2, 3});
  EXPECT_EQ(view.at({1, 0}), 4);
  EXPECT_THROW(TensorView::of(values, {2, 4}), Error);
}

TEST(TensorView, AtChecksItsIndex) {
  const Tensor t = iota({2, 3});
  EXPECT_EQ(t.view().at({1, 2}), 5);
  EXPECT_THROW(t.view().at({2, 0}), Error);
  EXPECT_THROW(t.view().at({0, -1}), Error);
  EXPECT_THROW(t.view().at({0}), Error);
}

TEST(TensorView, ViewsOfTheSameElements) {
  const Tensor t = iota({2, 3, 4});
  const TensorView v = t;
  EXPECT_EQ(v.permute({2, 0, 1}).at({3, 1, 2}), v.at({1, 2, 3}));
  EXPECT_EQ(v.transpose(0, -1).shape(), (Dims{4, 3, 2}));
  EXPECT_EQ(v.slice(1, 1, 3).at({1, 0, 0}), v.at({1, 1, 0}));
  EXPECT_EQ(v.slice(1, 3, 3).size(), 0);
  EXPECT_EQ(v.select(1, 2).shape(), (Dims{2, 4}));
  EXPECT_EQ(v.select(1, 2).at({1, 3}), v.at({1, 2, 3}));
  EXPECT_EQ(v.unflatten(2, {2, 2}).at({1, 2, 1, 0}), v.at({1, 2, 2}));
  EXPECT_EQ(v.flatten(0, 1).at({4, 1}), v.at({1, 1, 1}));
  EXPECT_EQ(v.flatten(0, 2).shape(), (Dims{24}));
  EXPECT_EQ(v.select(0, 0).select(0, 0).broadcast_to({2, 4}).at({1, 3}), 3);
}

TEST(TensorView, ViewsThatStridesDoNotAllow) {
  const Tensor t = iota({2, 3, 4});
  const TensorView v = t;
  EXPECT_THROW(v.permute({0, 1}), Error);
  EXPECT_THROW(v.permute({0, 1, 1}), Error);
  EXPECT_THROW(v.permute({0, 1, 3}), Error);
  EXPECT_THROW(v.slice(1, 2, 4), Error);
  EXPECT_THROW(v.slice(1, -1, 2), Error);
  EXPECT_THROW(v.slice(3, 0, 1), Error);
  EXPECT_THROW(v.select(0, 2), Error);
  EXPECT_THROW(v.unflatten(2, {3, 2}), Error);
  EXPECT_THROW(v.transpose(0, 1).flatten(0, 1), Error);
  EXPECT_THROW(v.broadcast_to({2, 2, 4}), Error);
  EXPECT_THROW(v.broadcast_to({3, 4}), Error);
}

TEST(TensorView, FlattenSeesThroughExtentsOfOne) {
  const Tensor t = iota({2, 1, 3});
  const TensorView odd(t.view().data(), DType::f32, {2, 1, 3}, {3, 999, 1});
  EXPECT_EQ(odd.flatten(0, 2).at({4}), 4);
  EXPECT_TRUE(odd.is_dense());
  EXPECT_EQ(t.view().slice(2, 0, 1).flatten(1, 2).shape(), (Dims{2, 1}));
  EXPECT_EQ(t.view().slice(2, 0, 1).flatten(0, 2).at({1}), 3);
}

TEST(Tensor, IsAlignedZeroedAndMoves) {
  Tensor t(DType::f32, {3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.view().data()) % Tensor::kAlignment, 0u);
  for (float x : t.as<float>()) EXPECT_EQ(x, 0);
  t.as<float>()[0] = 7;
  const Tensor moved = std::move(t);
  EXPECT_EQ(moved.as<float>()[0], 7);
  EXPECT_FALSE(t.view().has_value());  // NOLINT: a moved-from tensor owns nothing
  EXPECT_EQ(t.size(), 0);              // NOLINT
  EXPECT_THROW(moved.as<double>(), Error);
}

TEST(Tensor, RefusesSizesThatOverflow) {
  EXPECT_THROW(Tensor(DType::f64, {std::int64_t{1} << 61}), Error);
  EXPECT_THROW(Tensor(DType::f32, {1, -1}), Error);
}

TEST(Tensor, MoreThanThereIsThrowsBadAlloc) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers' operator new ends the process instead of throwing";
#endif
  EXPECT_THROW(Tensor(DType::u8, {std::numeric_limits<std::int64_t>::max() - 64}), std::bad_alloc);
}

TEST(Copy, BetweenAllDtypes) {
  const DType all[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                       DType::i32, DType::i64, DType::u8};
  for (DType from : all) {
    for (DType to : all) {
      const Tensor source = iota({3, 5}, from);
      const Tensor target = Tensor::copy_of(source.view().transpose(0, 1), to);
      EXPECT_EQ(target.dtype(), to);
      EXPECT_EQ(target.view().at({4, 2}), 14);
    }
  }
  const Tensor flags = Tensor::copy_of(iota({3}), DType::boolean);
  EXPECT_FALSE(flags.as<bool>()[0]);
  EXPECT_TRUE(flags.as<bool>()[2]);
}

TEST(Copy, RefusesNumbersThatDoNotFit) {
  const auto copies = [](double value, DType to) {
    const double values[] = {value};
    return Tensor::copy_of(TensorView::of(values), to);
  };
  EXPECT_THROW(copies(0.5, DType::i32), Error);
  EXPECT_THROW(copies(std::nan(""), DType::i64), Error);
  EXPECT_THROW(copies(0x1p63, DType::i64), Error);
  EXPECT_THROW(copies(256, DType::u8), Error);
  EXPECT_THROW(copies(-1, DType::u8), Error);
  EXPECT_EQ(copies(-0x1p63, DType::i64).as<std::int64_t>()[0],
            std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(std::isinf(copies(1e300, DType::f32).as<float>()[0]));
}

TEST(Copy, ReadsUnalignedAndReversed) {
  std::vector<std::byte> bytes(1 + 4 * sizeof(double));
  const MutableTensorView odd(bytes.data() + 1, DType::f64, {4});
  for (std::int64_t i = 0; i < 4; ++i) odd.set({i}, static_cast<double>(i));
  const TensorView reversed(bytes.data() + 1 + 3 * sizeof(double), DType::f64, {4}, {-1});
  const Tensor dense = Tensor::copy_of(reversed);
  EXPECT_EQ(dense.as<double>()[0], 3);
  EXPECT_EQ(dense.as<double>()[3], 0);
}

TEST(Copy, NeedsTheSameShape) {
  const Tensor a(DType::f32, {2, 3});
  Tensor b(DType::f32, {3, 2});
  EXPECT_THROW(copy(a, b), Error);
}

}  // namespace
}  // namespace qkv
