#pragma once

// A PNG made by hand, for tests: chunks, and a zlib stream of one stored block.

#include <cstdint>
#include <string>

#include "base/crc32.h"
#include "io/bytes.h"

namespace qkv::io {

inline void append_big(std::string& to, std::uint32_t n) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(n >> shift);
}

inline std::string chunk(const std::string& type, const std::string& data) {
  std::string all;
  append_big(all, static_cast<std::uint32_t>(data.size()));
  all += type + data;
  append_big(all, crc32(as_bytes(type + data)));
  return all;
}

inline std::string stored(const std::string& data) {
  std::string all = "\x78\x01\x01";
  const auto n = static_cast<std::uint16_t>(data.size());
  for (const std::uint16_t word : {n, static_cast<std::uint16_t>(~n)}) {
    all += static_cast<char>(word & 255);
    all += static_cast<char>(word >> 8);
  }
  std::uint32_t a = 1, b = 0;
  for (const char c : data) {
    a = (a + static_cast<std::uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  all += data;
  append_big(all, b << 16 | a);
  return all;
}

inline const std::string kSignature = "\x89PNG\r\n\x1a\n";

inline std::string header(std::uint32_t width, std::uint32_t height, int bits, int type) {
  std::string data;
  append_big(data, width);
  append_big(data, height);
  for (const int byte : {bits, type, 0, 0, 0}) data += static_cast<char>(byte);
  return chunk("IHDR", data);
}

// `rows` as in the file: each with a filter byte of 0 before it.
inline std::string png(std::uint32_t width, std::uint32_t height, int bits, int type,
                       const std::string& rows, const std::string& extra = "") {
  return kSignature + header(width, height, bits, type) + extra + chunk("IDAT", stored(rows)) +
         chunk("IEND", "");
}

}  // namespace qkv::io
