#include "qkv/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "io/bytes.h"
#include "io/input_file.h"
#include "io/report.h"
#include "io/safetensors_header.h"

namespace qkv {
namespace {

using io::Bytes;
using io::in_quotes;
using io::refuse;
using io::SafetensorsEntry;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit

std::string_view header_text(Bytes file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    refuse(where, "header length", "8 bytes", fmt::format("a file of {}", file.size()));
  }
  const auto length = io::little_endian<std::uint64_t>(file, 0);
  const std::uint64_t rest = file.size() - kLengthBytes;
  if (length > kLongestHeader || length > rest) {
    refuse(where, "header length",
           fmt::format("at most {} (the rest of the file)", std::min(rest, kLongestHeader)),
           fmt::format("{}", length));
  }
  return io::as_text(file.subspan(kLengthBytes, length));
}

// Shape and dtype take exactly the bytes between the offsets.
void check_entry(const SafetensorsEntry& entry, std::string_view where) {
  const std::string subject = fmt::format("{}, data_offsets", in_quotes(entry.name));
  const std::string offsets = fmt::format("[{}, {}]", entry.begin, entry.end);
  if (entry.begin > entry.end) refuse(where, subject, "begin before end", offsets);
  const auto bits = io::checked_product(entry.shape, entry.type->bits);
  if (!bits || *bits % 8 != 0) {
    refuse(where, fmt::format("{}, shape", in_quotes(entry.name)),
           "a whole number of bytes, fewer than 2^60",
           fmt::format("{} of {}", to_string(entry.shape), entry.type->name));
  }
  if (*bits / 8 != entry.end - entry.begin) {
    refuse(where, subject,
           fmt::format("{} bytes for shape {} of {}", *bits / 8, to_string(entry.shape),
                       entry.type->name),
           fmt::format("{}, which are {}", offsets, entry.end - entry.begin));
  }
}

// Each byte of the data belongs to one tensor: no overlap, no hole, no rest.
void check_coverage(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_size,
                    std::string_view where) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(entries[a].begin, entries[a].end) <
           std::pair(entries[b].begin, entries[b].end);
  });
  std::int64_t covered = 0;
  for (const std::size_t i : order) {
    const SafetensorsEntry& entry = entries[i];
    if (entry.begin != covered) {
      refuse(where, fmt::format("{}, data_offsets", in_quotes(entry.name)),
             fmt::format("to begin at {}, where the tensor before ends", covered),
             fmt::format("{}: {}", entry.begin, entry.begin < covered ? "they overlap" : "a hole"));
    }
    covered = entry.end;
  }
  if (static_cast<std::uint64_t>(covered) != data_size) {
    refuse(where, "data", fmt::format("{} bytes for the tensors of the header", covered),
           fmt::format("{} bytes", data_size));
  }
}

}  // namespace

struct SafetensorsFile::Contents {
  std::shared_ptr<const io::InputFile> file;
  io::SafetensorsHeader header;
  Bytes data;
  std::vector<std::string> names;
  std::unordered_map<std::string_view, const SafetensorsEntry*> by_name;

  const SafetensorsEntry& find(std::string_view name) const {
    const auto at = by_name.find(name);
    if (at == by_name.end()) {
      refuse(file->name(), "tensor", fmt::format("one named {}", in_quotes(name)),
             fmt::format("none among {}", names.size()));
    }
    return *at->second;
  }
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path, FileAccess access) {
  auto contents = std::make_shared<Contents>();
  contents->file = io::InputFile::open(path, access);
  const Bytes bytes = contents->file->bytes();
  const std::string& where = contents->file->name();
  const std::string_view text = header_text(bytes, where);
  contents->header = io::parse_safetensors_header(text, where);
  contents->data = bytes.subspan(kLengthBytes + text.size());
  const auto& entries = contents->header.entries;
  for (const SafetensorsEntry& entry : entries) check_entry(entry, where);
  check_coverage(entries, contents->data.size(), where);
  for (const SafetensorsEntry& entry : entries) {
    contents->names.push_back(entry.name);
    contents->by_name.emplace(entry.name, &entry);
  }
  contents_ = std::move(contents);
}

const std::vector<std::string>& SafetensorsFile::names() const noexcept { return contents_->names; }

bool SafetensorsFile::contains(std::string_view name) const noexcept {
  return contents_->by_name.contains(name);
}

TensorView SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry& entry = contents_->find(name);
  if (!entry.type->dtype) {
    refuse(contents_->file->name(), fmt::format("{}, dtype", in_quotes(name)),
           "one of F32 F64 F16 BF16 I32 I64 U8 BOOL", entry.type->name);
  }
  return TensorView(contents_->data.data() + entry.begin, *entry.type->dtype, entry.shape);
}

const Dims& SafetensorsFile::shape(std::string_view name) const {
  return contents_->find(name).shape;
}

std::string_view SafetensorsFile::dtype_name(std::string_view name) const {
  return contents_->find(name).type->name;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const noexcept {
  return contents_->header.metadata;
}

std::shared_ptr<const void> SafetensorsFile::owner() const noexcept { return contents_; }

}  // namespace qkv
