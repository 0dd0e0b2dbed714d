#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/bytes.h"

namespace qkv::io {

// A member of a zip archive, as its directory and its own header agree.
struct ZipEntry {
  enum Method : std::uint16_t { kStored = 0, kDeflated = 8 };

  std::string name;
  std::uint16_t flags = 0;
  std::uint16_t method = kStored;
  std::uint32_t crc = 0;
  std::uint64_t compressed_size = 0;
  std::uint64_t size = 0;
  std::uint64_t header_offset = 0;
  std::uint64_t data_offset = 0;
};

// The central directory of an archive (PKWARE's APPNOTE 6.3, ZIP64 included), in its order.
//
//   { local header, name, extra, data, [data descriptor] } …      one for each member
//   { central header, name, extra, comment } …
//   [ ZIP64 end record, ZIP64 locator ]  end record               where reading begins
//
// An archive tells each thing twice and leaves room between its parts, so that two readers may see
// two different archives in it. Here it has one reading or is refused: the end record is the end
// of the file, the directory ends where it begins, local and central header say the same, and no
// byte belongs to two members. Refused as well: encryption, methods other than the two above,
// archives in several parts. Data is not looked at.
std::vector<ZipEntry> read_zip_directory(Bytes file, std::string_view where);

}  // namespace qkv::io
