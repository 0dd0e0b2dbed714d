#include "qkv/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace qkv {
namespace {

// The value of a 16-bit pattern by the definition of the format.
double decode(unsigned bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1u << mantissa_bits) - 1u);
  const double sign = bits & 0x8000u ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

template <typename T>
class SixteenBits : public ::testing::Test {};
using Formats = ::testing::Types<f16, bf16>;
TYPED_TEST_SUITE(SixteenBits, Formats);

template <typename T>
constexpr int kExponent = std::is_same_v<T, f16> ? 5 : 8;

template <typename T>
T from_bits(unsigned bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

TYPED_TEST(SixteenBits, AllValuesWidenExactlyAndComeBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const double expected = decode(bits, kExponent<TypeParam>, 15 - kExponent<TypeParam>);
    const float wide = from_bits<TypeParam>(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(TypeParam(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), expected) << bits;
    ASSERT_EQ(std::signbit(wide), std::signbit(expected)) << bits;
    ASSERT_EQ(TypeParam(wide).bits, bits);
    ASSERT_EQ(TypeParam(static_cast<double>(wide)).bits, bits);
  }
}

// Between every two neighbours: below, at and above the middle.
TYPED_TEST(SixteenBits, RoundToNearestTiesToEven) {
  const unsigned infinity = ((1u << kExponent<TypeParam>)-1u) << (15 - kExponent<TypeParam>);
  for (unsigned bits = 0; bits < infinity; ++bits) {
    const int mantissa = 15 - kExponent<TypeParam>;
    const double low = decode(bits, kExponent<TypeParam>, mantissa);
    // The neighbour of the largest number is where it would be with a wider exponent.
    const double high = bits + 1 < infinity
                            ? decode(bits + 1, kExponent<TypeParam>, mantissa)
                            : 2 * low - decode(bits - 1, kExponent<TypeParam>, mantissa);
    const double middle = (low + high) / 2;  // exact: one more bit
    const unsigned even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(TypeParam(middle).bits, even) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0)).bits, bits) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, HUGE_VAL)).bits, bits + 1) << bits;
    ASSERT_EQ(TypeParam(-middle).bits, even | 0x8000u) << bits;
  }
}

TYPED_TEST(SixteenBits, ExtremesOfF64) {
  EXPECT_TRUE(std::isinf(static_cast<float>(TypeParam(std::numeric_limits<double>::max()))));
  EXPECT_EQ(TypeParam(std::numeric_limits<double>::denorm_min()).bits, 0);
  EXPECT_EQ(TypeParam(-std::numeric_limits<double>::denorm_min()).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::nan("")))));
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::boolean), 1u);
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::boolean), "bool");
}

}  // namespace
}  // namespace qkv
