// Format: PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (central directory) and
// 4.3.16 (end of it).

#include "explain/worksheet/zip.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <span>

#include "base/crc32.h"
#include "qkv/error.h"

namespace qkv::worksheet {
namespace {

// Little-endian numbers behind one another.
class Record {
 public:
  Record& u16(std::size_t value) { return number(value, 2); }
  Record& u32(std::size_t value) { return number(value, 4); }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& number(std::size_t value, int size) {
    for (int n = 0; n < size; ++n) bytes_ += static_cast<char>((value >> (8 * n)) & 0xff);
    return *this;
  }
  std::string bytes_;
};

constexpr std::size_t kVersion = 20, kStored = 0, kMidnight = 0, kFirstDay = 1 << 5 | 1;

// What the local header and the directory's entry have in common.
void describe(Record& record, const ZipMember& member) {
  record.u16(kVersion).u16(0).u16(kStored).u16(kMidnight).u16(kFirstDay);
  record.u32(crc32(std::as_bytes(std::span(member.content))))
      .u32(member.content.size())
      .u32(member.content.size());
  record.u16(member.name.size()).u16(0);
}

}  // namespace

std::string zip(const std::vector<ZipMember>& members) {
  std::string archive, directory;
  for (const ZipMember& member : members) {
    Record local, central;
    local.u32(0x04034b50);
    describe(local, member);
    central.u32(0x02014b50).u16(kVersion);
    describe(central, member);
    central.u16(0).u16(0).u16(0).u32(0).u32(archive.size());
    directory += central.bytes() + member.name;
    archive += local.bytes() + member.name + member.content;
  }
  constexpr std::size_t kLargest = std::numeric_limits<std::uint32_t>::max();
  if (archive.size() + directory.size() > kLargest || members.size() > 0xffff) {
    throw Error(ErrorKind::value, "zip", "archive", "less than 4 GiB in 65535 members",
                fmt::format("{} bytes in {}", archive.size() + directory.size(), members.size()));
  }
  Record end;
  end.u32(0x06054b50).u16(0).u16(0).u16(members.size()).u16(members.size());
  end.u32(directory.size()).u32(archive.size()).u16(0);
  return archive + directory + end.bytes();
}

}  // namespace qkv::worksheet
