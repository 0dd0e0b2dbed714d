#pragma once

// One token's numbers, into and out of the form that a cache keeps them in.

#include <cstddef>
#include <cstdint>

#include "qkv/dtype.h"
#include "qkv/kv_cache.h"

namespace qkv {

std::int64_t size_of(KVStorage storage) noexcept;  // bytes of one number

// The scale of token n; null where there are none.
template <typename Float>
Float* scale_at(Float* scales, std::int64_t n) noexcept {
  return scales == nullptr ? nullptr : scales + n;
}

// to[i] = from[i·stride], i < n, rounded once to the storage type. `from` is of a float dtype and
// may be unaligned. int8: *scale = max|from| / 127 and to[i] = round(from[i] / *scale); a row with
// NaN or infinity gets a scale of NaN, one without a number above 2⁻¹¹⁵ a scale of 0. Otherwise
// `scale` is not touched.
void store_kv_row(const void* from, DType dtype, std::int64_t stride, std::int64_t n,
                  KVStorage storage, void* to, float* scale) noexcept;

// to[i] = from[i], i < n, widened to f32; int8: multiplied by *scale.
void load_kv_row(const void* from, KVStorage storage, const float* scale, std::int64_t n,
                 float* to) noexcept;

}  // namespace qkv
