#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace qkv {

// The CRC of zip, gzip and PNG: polynomial 0x04c11db7, bits reflected, start and result inverted.
std::uint32_t crc32(std::span<const std::byte> bytes) noexcept;

}  // namespace qkv
