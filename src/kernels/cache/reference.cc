#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/element.h"
#include "kernels/cache/store.h"

namespace qkv {
namespace {

template <typename T, typename Stored>
void convert(const void* from, std::int64_t stride, std::int64_t n, void* to) noexcept {
  if constexpr (std::is_same_v<T, Stored>) {
    if (stride == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, Stored>) {
      store<T>(to, i, load<T>(from, i * stride));  // no conversion: keeps a NaN's payload
    } else if constexpr (std::is_same_v<T, double>) {
      store(to, i, static_cast<Stored>(load<T>(from, i * stride)));
    } else {
      store(to, i, static_cast<Stored>(static_cast<float>(load<T>(from, i * stride))));
    }
  }
}

template <typename T>
void quantize(const void* from, std::int64_t stride, std::int64_t n, void* to,
              float* scale) noexcept {
  float largest = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(load<T>(from, i * stride));
    finite = finite && std::isfinite(x);
    largest = std::max(largest, std::abs(x));
  }
  constexpr float kSmallest = 0x1p-115f;  // 127 / it is still a number
  const bool zero = !finite || largest < kSmallest;
  *scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : largest / 127;
  const float inverse = zero ? 0.0f : 127 / largest;
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = zero ? 0.0f : static_cast<float>(load<T>(from, i * stride));
    const float rounded = std::clamp(std::nearbyint(x * inverse), -127.0f, 127.0f);
    store(to, i, static_cast<std::int8_t>(rounded));
  }
}

}  // namespace

std::int64_t size_of(KVStorage storage) noexcept {
  return storage == KVStorage::f32 ? 4 : storage == KVStorage::int8 ? 1 : 2;
}

void store_kv_row(const void* from, DType dtype, std::int64_t stride, std::int64_t n,
                  KVStorage storage, void* to, float* scale) noexcept {
  visit_float(dtype, [&](auto tag) {
    using T = decltype(tag);
    switch (storage) {
      case KVStorage::f32: return convert<T, float>(from, stride, n, to);
      case KVStorage::f16: return convert<T, f16>(from, stride, n, to);
      case KVStorage::bf16: return convert<T, bf16>(from, stride, n, to);
      case KVStorage::int8: return quantize<T>(from, stride, n, to, scale);
    }
  });
}

void load_kv_row(const void* from, KVStorage storage, const float* scale, std::int64_t n,
                 float* to) noexcept {
  const auto widen = [&](auto tag) {
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = static_cast<float>(load<decltype(tag)>(from, i));
    }
  };
  switch (storage) {
    case KVStorage::f32: return widen(float{});
    case KVStorage::f16: return widen(f16{});
    case KVStorage::bf16: return widen(bf16{});
    case KVStorage::int8: widen(std::int8_t{});
  }
  for (std::int64_t i = 0; i < n; ++i) to[i] *= *scale;
}

}  // namespace qkv
