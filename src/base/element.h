#pragma once

// One element of any dtype, read and written where it lies. Memory is touched by memcpy only:
// views may be unaligned (a safetensors file promises no alignment).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "qkv/dtype.h"
#include "qkv/tensor.h"

namespace qkv {

template <typename T>
T load(const void* base, std::int64_t index) noexcept {
  const std::byte* at =
      static_cast<const std::byte*>(base) + index * static_cast<std::int64_t>(sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    return *at != std::byte{0};  // any non-zero byte, not only 1, is true
  } else {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }
}

template <typename T>
void store(void* base, std::int64_t index, T value) noexcept {
  std::memcpy(static_cast<std::byte*>(base) + index * static_cast<std::int64_t>(sizeof(T)), &value,
              sizeof(T));
}

// Calls fn with a value-initialised element of the dtype's C++ type, for its type:
//   visit_dtype(view.dtype(), [&](auto tag) { using T = decltype(tag); … });
template <typename Fn>
decltype(auto) visit_dtype(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f32: return fn(float{});
    case DType::f64: return fn(double{});
    case DType::f16: return fn(f16{});
    case DType::bf16: return fn(bf16{});
    case DType::i32: return fn(std::int32_t{});
    case DType::i64: return fn(std::int64_t{});
    case DType::u8: return fn(std::uint8_t{});
    case DType::boolean: break;
  }
  return fn(bool{});
}

// The same for the four floating types; the caller has checked is_float.
template <typename Fn>
decltype(auto) visit_float(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f64: return fn(double{});
    case DType::f16: return fn(f16{});
    case DType::bf16: return fn(bf16{});
    default: return fn(float{});
  }
}

// Element `index` of a float array of a dtype that is known at run time only, as Real (f32 or
// f64). For arguments read now and then, not for inner loops.
template <typename Real>
Real load_real(const TensorView& view, std::int64_t index) noexcept {
  return visit_float(view.dtype(), [&](auto tag) {
    return static_cast<Real>(load<decltype(tag)>(view.data(), index));
  });
}

// Stores a Real rounded once to a float dtype.
template <typename Real>
void store_real(const MutableTensorView& view, std::int64_t index, Real value) noexcept {
  visit_float(view.dtype(),
              [&](auto tag) { store(view.data(), index, static_cast<decltype(tag)>(value)); });
}

// Element `index` of an i32 or i64 array.
inline std::int64_t load_integer(const TensorView& view, std::int64_t index) noexcept {
  return view.dtype() == DType::i32 ? load<std::int32_t>(view.data(), index)
                                    : load<std::int64_t>(view.data(), index);
}

}  // namespace qkv
