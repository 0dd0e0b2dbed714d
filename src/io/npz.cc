#include "qkv/npz.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/crc32.h"
#include "io/inflate.h"
#include "io/input_file.h"
#include "io/npy_format.h"
#include "io/report.h"
#include "io/zip_directory.h"

namespace qkv {
namespace {

using io::Bytes;
using io::in_quotes;
using io::refuse;
using io::ZipEntry;

// A key is the member's name without ".npy"; any bytes but those that are no text.
std::string key_of(const ZipEntry& entry, std::string_view where) {
  if (!io::is_utf8(entry.name) || entry.name.find('\0') != std::string::npos) {
    refuse(where, "name of a member", "text in UTF-8", in_quotes(entry.name));
  }
  std::string_view name = entry.name;
  if (name.ends_with(".npy")) name.remove_suffix(4);
  return std::string(name);
}

void check_limits(const std::vector<ZipEntry>& entries, const NpzOptions& options,
                  std::string_view where) {
  std::uint64_t left = options.max_inflated_bytes;
  for (const ZipEntry& entry : entries) {
    if (entry.method != ZipEntry::kDeflated) continue;
    if (entry.size > left) {
      refuse(where, "size of all members, inflated",
             fmt::format("at most {} bytes (NpzOptions::max_inflated_bytes)",
                         options.max_inflated_bytes),
             fmt::format("more, with {} for {}", entry.size, in_quotes(entry.name)));
    }
    left -= entry.size;
    // Negated, so that a limit of NaN refuses.
    const auto size = static_cast<double>(entry.size);
    if (!(size <= options.max_ratio * static_cast<double>(entry.compressed_size))) {
      refuse(where, fmt::format("size of {}, inflated", in_quotes(entry.name)),
             fmt::format("at most {} times the deflated one (NpzOptions::max_ratio)",
                         options.max_ratio),
             fmt::format("{} from {}", entry.size, entry.compressed_size));
    }
  }
}

}  // namespace

struct NpzFile::Contents {
  std::shared_ptr<const io::InputFile> file;
  std::vector<ZipEntry> entries;
  std::vector<std::string> names;                           // keys, one for each entry
  std::unordered_map<std::string_view, std::size_t> index;  // of a key, in both
  std::unique_ptr<io::Inflater> inflater;
};

bool npz_supported() noexcept { return io::Inflater::kSupported; }

NpzFile::NpzFile(const std::filesystem::path& path, const NpzOptions& options) {
  auto contents = std::make_shared<Contents>();
  io::require_npz_support(path.string());
  contents->file = io::InputFile::open(path, options.access);
  const std::string& where = contents->file->name();
  contents->entries = io::read_zip_directory(contents->file->bytes(), where);
  check_limits(contents->entries, options, where);
  for (const ZipEntry& entry : contents->entries) contents->names.push_back(key_of(entry, where));
  for (std::size_t i = 0; i < contents->names.size(); ++i) {
    if (!contents->index.emplace(contents->names[i], i).second) {
      refuse(where, "names", "each once", fmt::format("{} twice", in_quotes(contents->names[i])));
    }
  }
  contents->inflater =
      std::make_unique<io::Inflater>(contents->file->bytes(), contents->entries, where);
  contents_ = std::move(contents);
}

const std::vector<std::string>& NpzFile::names() const noexcept { return contents_->names; }

bool NpzFile::contains(std::string_view name) const noexcept {
  return contents_->index.contains(name);
}

FileTensor NpzFile::read(std::string_view name) const {
  const std::string& file_name = contents_->file->name();
  const auto at = contents_->index.find(name);
  if (at == contents_->index.end()) {
    refuse(file_name, "array", fmt::format("one named {}", in_quotes(name)),
           fmt::format("none among {}", contents_->names.size()));
  }
  const ZipEntry& entry = contents_->entries[at->second];
  const std::string where = fmt::format("{}: {}", file_name, in_quotes(entry.name));
  std::shared_ptr<const void> owner;
  Bytes bytes;
  if (entry.method == ZipEntry::kStored) {
    bytes = contents_->file->bytes().subspan(entry.data_offset, entry.size);
    owner = contents_->file;
  } else {
    std::shared_ptr<std::byte> inflated = contents_->inflater->inflate(at->second, where);
    bytes = {inflated.get(), static_cast<std::size_t>(entry.size)};
    owner = std::move(inflated);
  }
  if (const std::uint32_t crc = crc32(bytes); crc != entry.crc) {
    refuse(where, "CRC of the data", fmt::format("{:08x}", entry.crc), fmt::format("{:08x}", crc));
  }
  const io::NpyLayout layout = io::parse_npy(bytes, where);
  return {TensorView(bytes.data() + layout.data_offset, layout.dtype, layout.shape, layout.strides),
          std::move(owner)};
}

std::map<std::string, FileTensor> load_npz(const std::filesystem::path& path,
                                           const NpzOptions& options) {
  const NpzFile file(path, options);
  std::map<std::string, FileTensor> tensors;
  for (const std::string& name : file.names()) tensors.emplace(name, file.read(name));
  return tensors;
}

}  // namespace qkv
