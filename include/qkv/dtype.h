#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "qkv/export.h"

namespace qkv {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8, boolean };

// Bytes of one element.
QKV_API std::size_t size_of(DType dtype) noexcept;

// "f32", "f64", "f16", "bf16", "i32", "i64", "u8", "bool".
QKV_API std::string_view name_of(DType dtype) noexcept;

// f32, f64, f16 or bf16.
constexpr bool is_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

// IEEE binary16 and bfloat16 as storage. Arithmetic happens in f32 or f64; the conversion from a
// wider type rounds to nearest, ties to even, in one step (also from f64), keeps NaN a NaN and
// overflows to infinity.
struct f16 {
  std::uint16_t bits = 0;
  f16() = default;
  QKV_API explicit f16(float value) noexcept;
  QKV_API explicit f16(double value) noexcept;
  QKV_API operator float() const noexcept;
};

struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  QKV_API explicit bf16(float value) noexcept;
  QKV_API explicit bf16(double value) noexcept;
  QKV_API operator float() const noexcept;
};

// The DType of a C++ type: dtype_of<float> == DType::f32.
template <typename T>
inline constexpr DType dtype_of = DType{0xff};  // no element type: fails wherever it is used
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

}  // namespace qkv
