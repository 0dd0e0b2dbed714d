#include "base/crc32.h"

#include <gtest/gtest.h>

#include <string_view>

namespace qkv {
namespace {

std::uint32_t crc_of(std::string_view text) { return crc32(std::as_bytes(std::span(text))); }

TEST(Crc32, KnownValues) {
  EXPECT_EQ(crc_of(""), 0u);
  EXPECT_EQ(crc_of("123456789"), 0xcbf43926u);  // the check value of the algorithm
  EXPECT_EQ(crc_of("The quick brown fox jumps over the lazy dog"), 0x414fa339u);
  EXPECT_EQ(crc_of(std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                    "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                                    32)),
            0x190a55adu);
}

}  // namespace
}  // namespace qkv
