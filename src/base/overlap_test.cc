#include "base/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace qkv {
namespace {

// The bytes that a view reaches, one by one; `twice` if some byte is reached by two indices.
std::set<std::ptrdiff_t> bytes_of(const TensorView& v, const std::byte* base, bool& twice) {
  std::set<std::ptrdiff_t> result;
  for (std::int64_t n = 0; n < v.size(); ++n) {
    std::int64_t rest = n, offset = 0;
    for (int d = v.rank() - 1; d >= 0; --d) {
      offset += rest % v.dim(d) * v.stride(d);
      rest /= v.dim(d);
    }
    const auto size = static_cast<std::ptrdiff_t>(size_of(v.dtype()));
    const auto start = static_cast<const std::byte*>(v.data()) - base + offset * size;
    for (std::ptrdiff_t b = 0; b < size; ++b) twice = !result.insert(start + b).second || twice;
  }
  return result;
}

TEST(Overlap, AgreesWithCountingBytes) {
  std::mt19937 random(1);
  std::vector<std::byte> memory(4096);
  const auto number = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const auto view = [&] {
    Dims shape, strides;
    for (int d = number(0, 4); d > 0; --d) {
      shape.push_back(number(0, 4) == 0 ? number(0, 1) : number(1, 4));
      strides.push_back(number(-12, 12));
    }
    const DType dtype = static_cast<DType>(number(0, 7));
    return TensorView(memory.data() + 2048 + number(-100, 100), dtype, shape, strides);
  };
  int overlapping = 0, itself = 0;
  for (int n = 0; n < 20'000; ++n) {
    const TensorView a = view(), b = view();
    bool a_twice = false, b_twice = false, shared = false;
    const auto in_a = bytes_of(a, memory.data(), a_twice);
    for (auto byte : bytes_of(b, memory.data(), b_twice)) shared = shared || in_a.count(byte);
    ASSERT_EQ(views_overlap(a, b), shared) << to_string(a.shape()) << to_string(a.strides());
    ASSERT_EQ(overlaps_itself(a), a_twice) << to_string(a.shape()) << to_string(a.strides());
    overlapping += shared;
    itself += a_twice;
  }
  // Both answers were asked for often.
  EXPECT_GT(overlapping, 2000);
  EXPECT_GT(itself, 2000);
}

TEST(Overlap, LargeInterleavedViewsAreDecidedQuickly) {
  // q and v thirds of a packed [B, T, 3, H, D] buffer of many gigabytes (never touched).
  const Dims shape{64, 12, 4096, 64}, strides{4096 * 3 * 768, 64, 3 * 768, 1};
  auto* at = reinterpret_cast<float*>(0x1000'0000'0000);
  EXPECT_FALSE(views_overlap(TensorView(at, DType::f32, shape, strides),
                             TensorView(at + 1536, DType::f32, shape, strides)));
  EXPECT_TRUE(views_overlap(TensorView(at, DType::f32, shape, strides),
                            TensorView(at + 767, DType::f32, shape, strides)));
  EXPECT_FALSE(overlaps_itself(TensorView(at, DType::f32, shape, strides)));
}

TEST(Overlap, StrangeLayoutsAreRefusedRatherThanSearchedForEver) {
  const Dims shape{1 << 20, 1 << 20, 1 << 20}, strides{1009, 1013, 1019};
  auto* at = reinterpret_cast<float*>(0x1000'0000'0000);
  EXPECT_TRUE(overlaps_itself(TensorView(at, DType::f32, shape, strides)));
}

}  // namespace
}  // namespace qkv
