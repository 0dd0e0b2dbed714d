#pragma once

// Numbers in files, all of them little-endian, and sizes made of them.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/checked.h"

namespace qkv::io {

using Bytes = std::span<const std::byte>;

static_assert(std::endian::native == std::endian::little,
              "elements are mapped as they lie in the file: little-endian");

// The unsigned number at an offset; the caller has checked that it is inside.
template <typename T>
T little_endian(Bytes bytes, std::uint64_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

inline std::string_view as_text(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline Bytes as_bytes(std::string_view text) noexcept {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Product of the extents (none negative) times `unit`. No result when it passes 63 bits, and also
// not when it would without the extents of 0: strides of such a shape would overflow.
template <typename Extents>
std::optional<std::int64_t> checked_product(const Extents& extents, std::int64_t unit) noexcept {
  std::optional<std::int64_t> product = unit;
  bool empty = false;
  for (std::int64_t extent : extents) {
    empty = empty || extent == 0;
    if (extent != 0) product = checked_mul(*product, extent);
    if (!product) return std::nullopt;
  }
  return empty ? 0 : product;
}

}  // namespace qkv::io
