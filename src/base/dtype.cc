#include "qkv/dtype.h"

#include <bit>

namespace qkv {

std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::f16: return 2;
    case DType::bf16: return 2;
    case DType::i32: return 4;
    case DType::i64: return 8;
    case DType::u8: return 1;
    case DType::boolean: return 1;
  }
  return 0;
}

std::string_view name_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::boolean: return "bool";
  }
  return "?";
}

namespace {

// Rounds an f64 to a binary format of 16 bits with `kExponent` exponent and `kMantissa` mantissa
// bits. Every f32 is an f64, so one routine serves both sources, and f64 is never rounded twice.
template <int kExponent, int kMantissa>
std::uint16_t round_to_16(double value) noexcept {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr std::uint64_t kInfinity = ((1u << kExponent) - 1u) << kMantissa;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000u);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  if (magnitude > 0x7ff0'0000'0000'0000u) {  // NaN: quiet, with what fits of its payload
    const std::uint64_t payload = magnitude >> (52 - kMantissa) & ((1u << kMantissa) - 1u);
    return static_cast<std::uint16_t>(sign | kInfinity | 1u << (kMantissa - 1) | payload);
  }
  const int exponent = static_cast<int>(magnitude >> 52) - 1023 + kBias;
  if (exponent > (1 << kExponent) - 2) return static_cast<std::uint16_t>(sign | kInfinity);
  std::uint64_t mantissa = (magnitude & 0x000f'ffff'ffff'ffffu) | std::uint64_t{1} << 52;
  int shift = 52 - kMantissa;
  std::uint64_t result = 0;
  if (exponent <= 0) {  // a denormal of the target
    shift += 1 - exponent;
    if (shift > 53) return sign;  // below half of the least denormal
    result = mantissa >> shift;
  } else {
    // The hidden bit carries into the exponent field, hence exponent - 1.
    result = (mantissa >> shift) + (static_cast<std::uint64_t>(exponent - 1) << kMantissa);
  }
  const std::uint64_t rest = mantissa & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (result & 1u))) ++result;  // may carry into infinity: right
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace

f16::f16(float value) noexcept : f16(static_cast<double>(value)) {}
f16::f16(double value) noexcept : bits(round_to_16<5, 10>(value)) {}

f16::operator float() const noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) {
    // A signalling NaN becomes quiet, as hardware conversions make it.
    const std::uint32_t quiet = mantissa ? 0x0040'0000u : 0u;
    return std::bit_cast<float>(sign | 0x7f80'0000u | quiet | mantissa << 13);
  }
  if (exponent == 0) {  // zero or denormal: mantissa · 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

bf16::bf16(float value) noexcept : bf16(static_cast<double>(value)) {}
bf16::bf16(double value) noexcept : bits(round_to_16<8, 7>(value)) {}

bf16::operator float() const noexcept {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  const bool nan = (wide & 0x7fff'ffffu) > 0x7f80'0000u;
  return std::bit_cast<float>(nan ? wide | 0x0040'0000u : wide);
}

}  // namespace qkv
