#include "io/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "io/report.h"

namespace qkv::io {
namespace {

constexpr std::uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50;
constexpr std::uint32_t kEndMagic = 0x06054b50, kEnd64Magic = 0x06064b50;
constexpr std::uint32_t kLocator64Magic = 0x07064b50, kDescriptorMagic = 0x08074b50;
constexpr std::uint64_t kEndSize = 22, kEnd64Size = 56, kLocator64Size = 20;

constexpr std::uint16_t kEncrypted = 1u << 0, kDescriptorFollows = 1u << 3;
constexpr std::uint16_t kStrongEncryption = 1u << 6, kMaskedHeader = 1u << 13;

// "Look in the ZIP64 field": a number that does not fit.
constexpr std::uint16_t kIn64Short = 0xffff;
constexpr std::uint32_t kIn64 = 0xffffffff;

// Reads fields one after the other from a part of the file; refuses to pass its end.
class Cursor {
 public:
  Cursor(Bytes part, std::string_view where, std::string_view subject)
      : part_(part), where_(where), subject_(subject) {}

  template <typename T>
  T number() {
    const T value = little_endian<T>(bytes(sizeof(T)), 0);
    return value;
  }
  Bytes bytes(std::uint64_t count) {
    if (count > part_.size()) {
      refuse(where_, subject_, fmt::format("{} more bytes", count),
             fmt::format("{}", part_.size()));
    }
    const Bytes taken = part_.first(count);
    part_ = part_.subspan(count);
    return taken;
  }
  void skip(std::uint64_t count) { bytes(count); }
  std::uint64_t remaining() const noexcept { return part_.size(); }

 private:
  Bytes part_;
  std::string_view where_, subject_;
};

struct Directory {
  std::uint64_t count, offset, size;
};

// The ZIP64 end record, right before its locator, which is right before the end record.
Directory read_end64(Bytes file, std::string_view where) {
  constexpr std::uint64_t kTail = kEnd64Size + kLocator64Size + kEndSize;
  if (file.size() < kTail) refuse(where, "ZIP64 end record", "one", "none: the file is too short");
  const std::uint64_t at = file.size() - kTail;
  Cursor cursor(file.subspan(at, kEnd64Size + kLocator64Size), where, "ZIP64 end record");
  const bool right_magic = cursor.number<std::uint32_t>() == kEnd64Magic;
  const bool right_size = cursor.number<std::uint64_t>() == kEnd64Size - 12;
  cursor.skip(2 + 2);  // versions
  const auto disk = cursor.number<std::uint32_t>(), directory_disk = cursor.number<std::uint32_t>();
  const auto count_here = cursor.number<std::uint64_t>();
  Directory directory{};
  directory.count = cursor.number<std::uint64_t>();
  directory.size = cursor.number<std::uint64_t>();
  directory.offset = cursor.number<std::uint64_t>();
  const bool right_locator =
      cursor.number<std::uint32_t>() == kLocator64Magic && cursor.number<std::uint32_t>() == 0 &&
      cursor.number<std::uint64_t>() == at && cursor.number<std::uint32_t>() == 1;
  if (!right_magic || !right_size || !right_locator || disk != 0 || directory_disk != 0 ||
      count_here != directory.count) {
    refuse(where, "ZIP64 end record", "one of an archive in one part, before the end record",
           "something else");
  }
  return directory;
}

// Whether a ZIP64 locator stands before the end record.
bool has_end64(Bytes file) {
  return file.size() >= kEndSize + kLocator64Size &&
         little_endian<std::uint32_t>(file, file.size() - kEndSize - kLocator64Size) ==
             kLocator64Magic;
}

Directory find_directory(Bytes file, std::string_view where) {
  if (file.size() < kEndSize) {
    refuse(where, "end record of the zip archive", fmt::format("{} bytes", kEndSize),
           fmt::format("a file of {}", file.size()));
  }
  const std::uint64_t end_at = file.size() - kEndSize;
  Cursor cursor(file.subspan(end_at), where, "end record");
  const auto magic = cursor.number<std::uint32_t>();
  const auto disk = cursor.number<std::uint16_t>(), directory_disk = cursor.number<std::uint16_t>();
  const auto count_here = cursor.number<std::uint16_t>(), count = cursor.number<std::uint16_t>();
  const auto size = cursor.number<std::uint32_t>(), offset = cursor.number<std::uint32_t>();
  const auto comment = cursor.number<std::uint16_t>();
  if (magic != kEndMagic || comment != 0) {
    refuse(where, "end record of the zip archive", "it at the very end, and no comment",
           "something else (not a .npz file, or cut off, or with bytes added)");
  }
  if (disk != 0 || directory_disk != 0 || count_here != count) {
    refuse(where, "end record", "an archive in one part", "one in several");
  }
  Directory directory{count, offset, size};
  std::uint64_t directory_end = end_at;
  const bool saturated = count == kIn64Short || size == kIn64 || offset == kIn64;
  if (saturated || has_end64(file)) {
    // libzip writes it for one large member, too, when the numbers here would do.
    directory = read_end64(file, where);
    directory_end -= kEnd64Size + kLocator64Size;
    if ((count != kIn64Short && count != directory.count) ||
        (size != kIn64 && size != directory.size) ||
        (offset != kIn64 && offset != directory.offset)) {
      refuse(where, "end record", "the numbers of the ZIP64 end record", "others");
    }
  }
  if (directory.offset > directory_end || directory.size != directory_end - directory.offset) {
    refuse(where, "central directory", fmt::format("it to end at byte {}", directory_end),
           fmt::format("{} bytes at {}", directory.size, directory.offset));
  }
  return directory;
}

// The field of `extra` with the ZIP64 numbers, empty when there is none.
Bytes find_zip64(Bytes extra, std::string_view where, std::string_view subject) {
  constexpr std::uint16_t kZip64 = 1;
  std::optional<Bytes> found;
  Cursor cursor(extra, where, subject);
  while (cursor.remaining() != 0) {
    const auto id = cursor.number<std::uint16_t>();
    const Bytes field = cursor.bytes(cursor.number<std::uint16_t>());
    if (id != kZip64) continue;
    if (found) refuse(where, subject, "one ZIP64 field", "two");
    found = field;
  }
  return found.value_or(Bytes{});
}

void check_member(const ZipEntry& entry, std::string_view where, const std::string& subject) {
  if (entry.flags & (kEncrypted | kStrongEncryption | kMaskedHeader)) {
    refuse(where, subject, "a member that is not encrypted", "an encrypted one");
  }
  if (entry.method != ZipEntry::kStored && entry.method != ZipEntry::kDeflated) {
    refuse(where, subject, "compression method 0 (stored) or 8 (deflated)",
           fmt::format("{}", entry.method));
  }
  if (entry.method == ZipEntry::kStored && entry.size != entry.compressed_size) {
    refuse(where, subject, "one size for a stored member",
           fmt::format("{} and {}", entry.compressed_size, entry.size));
  }
}

ZipEntry read_central(Cursor& cursor, std::string_view where) {
  ZipEntry entry;
  if (cursor.number<std::uint32_t>() != kCentralMagic) {
    refuse(where, "central directory", "the header of a member", "something else");
  }
  cursor.skip(2 + 2);  // versions
  entry.flags = cursor.number<std::uint16_t>();
  entry.method = cursor.number<std::uint16_t>();
  cursor.skip(2 + 2);  // time, date
  entry.crc = cursor.number<std::uint32_t>();
  entry.compressed_size = cursor.number<std::uint32_t>();
  entry.size = cursor.number<std::uint32_t>();
  const auto name_size = cursor.number<std::uint16_t>(),
             extra_size = cursor.number<std::uint16_t>();
  const auto comment_size = cursor.number<std::uint16_t>(), disk = cursor.number<std::uint16_t>();
  cursor.skip(2 + 4);  // attributes
  entry.header_offset = cursor.number<std::uint32_t>();
  entry.name = as_text(cursor.bytes(name_size));
  const Bytes extra = cursor.bytes(extra_size);
  cursor.skip(comment_size);

  const std::string subject = fmt::format("central header of {}", in_quotes(entry.name));
  if (disk != 0) refuse(where, subject, "an archive in one part", "one in several");
  Cursor zip64(find_zip64(extra, where, subject), where, subject);
  for (std::uint64_t* number : {&entry.size, &entry.compressed_size, &entry.header_offset}) {
    if (*number == kIn64) *number = zip64.number<std::uint64_t>();
  }
  check_member(entry, where, subject);
  return entry;
}

// Whether CRC and sizes stand after the data, in one of the four forms that writers use: with or
// without a magic number, sizes in 4 or 8 bytes. Returns the bytes they take, 0 for "they do not".
std::uint64_t match_descriptor(Bytes after, const ZipEntry& entry) {
  for (const std::uint64_t magic : {4, 0}) {
    for (const std::uint64_t width : {8, 4}) {
      const std::uint64_t total = magic + 4 + 2 * width;
      if (after.size() < total) continue;
      if (magic != 0 && little_endian<std::uint32_t>(after, 0) != kDescriptorMagic) continue;
      if (little_endian<std::uint32_t>(after, magic) != entry.crc) continue;
      const auto size_at = [&](std::uint64_t offset) -> std::uint64_t {
        return width == 8 ? little_endian<std::uint64_t>(after, offset)
                          : little_endian<std::uint32_t>(after, offset);
      };
      if (size_at(magic + 4) == entry.compressed_size && size_at(magic + 4 + width) == entry.size) {
        return total;
      }
    }
  }
  return 0;
}

// Compares the header that stands before the data with the central one, and finds the data.
// Returns where the member ends. `members` is the file up to the directory.
std::uint64_t read_local(Bytes members, ZipEntry& entry, std::string_view where) {
  const std::string subject = fmt::format("local header of {}", in_quotes(entry.name));
  if (entry.header_offset > members.size()) {
    refuse(where, subject, fmt::format("it before byte {}", members.size()),
           fmt::format("at {}", entry.header_offset));
  }
  Cursor cursor(members.subspan(entry.header_offset), where, subject);
  const auto differs = [&](std::string_view what) {
    refuse(where, subject, fmt::format("the {} of the central header", what), "another one");
  };
  if (cursor.number<std::uint32_t>() != kLocalMagic) differs("offset");
  cursor.skip(2);  // version
  if (cursor.number<std::uint16_t>() != entry.flags) differs("flags");
  if (cursor.number<std::uint16_t>() != entry.method) differs("method");
  cursor.skip(2 + 2);  // time, date
  const auto crc = cursor.number<std::uint32_t>();
  std::uint64_t compressed_size = cursor.number<std::uint32_t>();
  std::uint64_t size = cursor.number<std::uint32_t>();
  const auto name_size = cursor.number<std::uint16_t>(),
             extra_size = cursor.number<std::uint16_t>();
  if (as_text(cursor.bytes(name_size)) != entry.name) differs("name");
  // NumPy always uses ZIP64 here, and in the directory only where it has to.
  Cursor zip64(find_zip64(cursor.bytes(extra_size), where, subject), where, subject);
  if (size == kIn64) size = zip64.number<std::uint64_t>();
  if (compressed_size == kIn64) compressed_size = zip64.number<std::uint64_t>();

  if (entry.compressed_size > cursor.remaining()) {
    refuse(where, subject, fmt::format("{} bytes of data", entry.compressed_size),
           fmt::format("{} before the central directory", cursor.remaining()));
  }
  entry.data_offset = members.size() - cursor.remaining();
  const std::uint64_t data_end = entry.data_offset + entry.compressed_size;
  const bool deferred = entry.flags & kDescriptorFollows;
  if (!(deferred && crc == 0) && crc != entry.crc) differs("CRC");
  if (!(deferred && size == 0) && size != entry.size) differs("size");
  if (!(deferred && compressed_size == 0) && compressed_size != entry.compressed_size) {
    differs("compressed size");
  }
  if (!deferred) return data_end;
  const std::uint64_t descriptor = match_descriptor(members.subspan(data_end), entry);
  if (descriptor == 0) {
    refuse(where, fmt::format("data descriptor of {}", in_quotes(entry.name)),
           "CRC and sizes of the central header", "others");
  }
  return data_end + descriptor;
}

}  // namespace

std::vector<ZipEntry> read_zip_directory(Bytes file, std::string_view where) {
  const Directory directory = find_directory(file, where);
  Cursor cursor(file.subspan(directory.offset, directory.size), where, "central directory");
  const Bytes members = file.first(directory.offset);
  std::vector<ZipEntry> entries;  // grows as headers are really there, not as declared
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    ZipEntry entry = read_central(cursor, where);
    const std::uint64_t end = read_local(members, entry, where);
    ranges.emplace_back(entry.header_offset, end);
    entries.push_back(std::move(entry));
  }
  if (cursor.remaining() != 0) {
    refuse(where, "central directory", fmt::format("{} members alone", directory.count),
           fmt::format("{} more bytes", cursor.remaining()));
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      refuse(where, "central directory", "members that do not overlap",
             fmt::format("one that begins at {} inside another that ends at {}", ranges[i].first,
                         ranges[i - 1].second));
    }
  }
  return entries;
}

}  // namespace qkv::io
