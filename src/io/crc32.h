#pragma once

#include <cstdint>

#include "io/bytes.h"

namespace qkv::io {

// The CRC of zip, gzip and PNG: polynomial 0x04c11db7, bits reflected, start and result inverted.
std::uint32_t crc32(Bytes bytes) noexcept;

}  // namespace qkv::io
