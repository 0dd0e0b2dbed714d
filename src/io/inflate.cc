#include "io/inflate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "io/report.h"

#if QKV_WITH_NPZ
#include "io/zip_error.h"
#endif

namespace qkv::io {

#if QKV_WITH_NPZ

namespace {

constexpr std::string_view kReadable = "a zip archive that libzip reads";

struct CloseMember {
  void operator()(zip_file_t* file) const noexcept { zip_fclose(file); }
};

// Room for a member. The size is within the limits of NpzOptions, and still only a claim: memory
// that is never written to costs nothing, so a false one costs what was really inflated.
std::shared_ptr<std::byte> allocate(std::uint64_t size) {
  constexpr std::uint64_t kAlignment = 64;  // of the elements too, as NumPy pads its header to it
  void* memory = std::aligned_alloc(kAlignment, (size / kAlignment + 1) * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

void check_same(zip_t* archive, std::size_t index, const ZipEntry& entry, std::string_view where) {
  zip_stat_t seen;
  zip_stat_init(&seen);
  if (zip_stat_index(archive, index, ZIP_FL_ENC_RAW, &seen) != 0) {
    refuse_zip(where, "directory", kReadable, zip_get_error(archive));
  }
  constexpr zip_uint64_t kWanted =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_CRC | ZIP_STAT_COMP_METHOD;
  if ((seen.valid & kWanted) != kWanted || entry.name != seen.name || entry.size != seen.size ||
      entry.compressed_size != seen.comp_size || entry.crc != seen.crc ||
      entry.method != seen.comp_method) {
    refuse(where, "directory", "one reading of it", "another one by libzip");
  }
}

}  // namespace

void require_npz_support(std::string_view) {}

Inflater::Inflater(Bytes file, const std::vector<ZipEntry>& entries, std::string_view where)
    : entries_(entries) {
  const auto deflated = [](const ZipEntry& entry) { return entry.method == ZipEntry::kDeflated; };
  if (std::none_of(entries.begin(), entries.end(), deflated)) return;
  ZipError error;
  zip_source_t* source = zip_source_buffer_create(file.data(), file.size(), 0, &error.value);
  if (source == nullptr) refuse_zip(where, "directory", kReadable, &error.value);
  archive_ = zip_open_from_source(source, ZIP_RDONLY, &error.value);
  if (archive_ == nullptr) {
    zip_source_free(source);
    refuse_zip(where, "directory", kReadable, &error.value);
  }
}

Inflater::~Inflater() {
  if (archive_ != nullptr) zip_discard(archive_);
}

std::shared_ptr<std::byte> Inflater::inflate(std::size_t index, std::string_view where) {
  constexpr std::uint64_t kStep = std::uint64_t{16} << 20;
  const ZipEntry& entry = entries_[index];
  const std::lock_guard lock(mutex_);
  check_same(archive_, index, entry, where);
  const std::unique_ptr<zip_file_t, CloseMember> member(zip_fopen_index(archive_, index, 0));
  if (member == nullptr) refuse_zip(where, "data", kReadable, zip_get_error(archive_));
  const auto read = [&](std::byte* to, std::uint64_t count) {
    const zip_int64_t done = zip_fread(member.get(), to, count);
    if (done < 0) refuse_zip(where, "data", kReadable, zip_file_get_error(member.get()));
    return static_cast<std::uint64_t>(done);
  };
  std::shared_ptr<std::byte> bytes = allocate(entry.size);
  std::uint64_t done = 0;
  while (done < entry.size) {
    const std::uint64_t count = read(bytes.get() + done, std::min(kStep, entry.size - done));
    if (count == 0) break;
    done += count;
  }
  std::byte one_more;
  if (done < entry.size || read(&one_more, 1) != 0) {
    refuse(where, "data", fmt::format("{} bytes when inflated, as declared", entry.size),
           done < entry.size ? fmt::format("{}", done) : "more");
  }
  return bytes;
}

#else  // without libzip

void require_npz_support(std::string_view where) {
  refuse(where, "format", "a build of qkv with libzip, to read and write .npz", "one without");
}

Inflater::Inflater(Bytes, const std::vector<ZipEntry>& entries, std::string_view where)
    : entries_(entries) {
  require_npz_support(where);
}

Inflater::~Inflater() = default;

std::shared_ptr<std::byte> Inflater::inflate(std::size_t, std::string_view where) {
  require_npz_support(where);
  return nullptr;
}

#endif

}  // namespace qkv::io
