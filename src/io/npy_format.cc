#include "io/npy_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/npy_literal.h"
#include "io/report.h"

namespace qkv::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLongestHeader = 10'000;  // as NumPy: its own are far shorter
constexpr std::string_view kSupported = "one of <f4 <f8 <f2 <i4 <i8 |u1 |b1";

constexpr std::array<std::pair<std::string_view, DType>, 7> kTypes = {{{"<f4", DType::f32},
                                                                       {"<f8", DType::f64},
                                                                       {"<f2", DType::f16},
                                                                       {"<i4", DType::i32},
                                                                       {"<i8", DType::i64},
                                                                       {"|u1", DType::u8},
                                                                       {"|b1", DType::boolean}}};

DType dtype_from(std::string_view descr, std::string_view where) {
  const char order = descr.empty() ? '\0' : descr[0];
  const std::string_view code = descr.substr(descr.empty() ? 0 : 1);
  if (descr == "O" || code.starts_with('O')) {
    refuse(where, "descr", kSupported,
           fmt::format("{}: an object array holds Python pickles, which qkv never runs",
                       in_quotes(descr)));
  }
  if (order == '>') {
    refuse(where, "descr", kSupported, fmt::format("{}, which is big-endian", in_quotes(descr)));
  }
  for (const auto& [name, dtype] : kTypes) {
    // '<' and '=' (native) are the same here; '|' stands for "no order", right for one byte only.
    const bool order_fits = order == '<' || order == '=' || (order == '|' && size_of(dtype) == 1);
    if (order_fits && code == name.substr(1)) return dtype;
  }
  refuse(where, "descr", kSupported, in_quotes(descr));
}

// The header's text, and where the elements begin.
std::pair<std::string_view, std::size_t> split_header(Bytes file, std::string_view where) {
  const std::string_view text = as_text(file);
  if (!text.starts_with(kMagic)) {
    refuse(where, "magic", "'\\x93NUMPY'",
           text.empty() ? "an empty file" : in_quotes(text.substr(0, kMagic.size())));
  }
  if (file.size() < 8) refuse(where, "version", "2 bytes", "the end of the file");
  const auto major = std::to_integer<int>(file[6]), minor = std::to_integer<int>(file[7]);
  if (major < 1 || major > 3 || minor != 0) {
    refuse(where, "version", "1.0, 2.0 or 3.0", fmt::format("{}.{}", major, minor));
  }
  const std::size_t begin = major == 1 ? 10 : 12;
  if (file.size() < begin) refuse(where, "header", "its length", "the end of the file");
  const std::size_t length =
      major == 1 ? little_endian<std::uint16_t>(file, 8) : little_endian<std::uint32_t>(file, 8);
  if (length > kLongestHeader) {
    refuse(where, "header", fmt::format("at most {} bytes", kLongestHeader),
           fmt::format("{} declared", length));
  }
  if (length > file.size() - begin) {
    refuse(where, "header", fmt::format("{} bytes", length),
           fmt::format("{} before the end of the file", file.size() - begin));
  }
  return {text.substr(begin, length), begin + length};
}

void check_data_size(Bytes file, const NpyLayout& layout, std::int64_t wanted,
                     std::string_view where) {
  const std::size_t found = file.size() - layout.data_offset;
  if (found == static_cast<std::uint64_t>(wanted)) return;
  refuse(where, "data",
         fmt::format("{} bytes for shape {} of {}", wanted, to_string(layout.shape),
                     name_of(layout.dtype)),
         fmt::format("{} bytes", found));
}

}  // namespace

NpyLayout parse_npy(Bytes file, std::string_view where) {
  const auto [text, data_offset] = split_header(file, where);
  const NpyDictionary dictionary = parse_npy_dictionary(text, where);
  NpyLayout layout;
  layout.data_offset = data_offset;
  layout.dtype = dtype_from(dictionary.descr, where);
  if (dictionary.shape.size() > static_cast<std::size_t>(kMaxRank)) {
    refuse(where, "shape", fmt::format("at most {} dimensions", kMaxRank),
           fmt::format("{}", dictionary.shape.size()));
  }
  layout.shape = Dims(dictionary.shape);
  const auto bytes =
      checked_product(layout.shape, static_cast<std::int64_t>(size_of(layout.dtype)));
  if (!bytes) refuse(where, "shape", "fewer than 2^63 bytes in all", to_string(layout.shape));
  check_data_size(file, layout, *bytes, where);

  layout.strides = row_major_strides(layout.shape);
  if (dictionary.fortran_order) {
    std::int64_t step = 1;
    for (int i = 0; i < layout.shape.rank(); ++i) {
      layout.strides[i] = step;
      step *= std::max<std::int64_t>(layout.shape[i], 1);
    }
  }
  return layout;
}

std::string npy_preamble(const TensorView& view, std::string_view where) {
  if (!view.has_value()) refuse(where, "tensor", "a tensor", "none");
  std::string_view descr;
  for (const auto& [name, dtype] : kTypes) {
    if (dtype == view.dtype()) descr = name;
  }
  if (descr.empty()) {
    refuse(where, "dtype", "one that NumPy has",
           fmt::format("{} (save it as .safetensors, or as f32)", name_of(view.dtype())));
  }
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                  fmt::join(view.shape(), ", "), view.rank() == 1 ? "," : "");
  // Padded so that the elements start at a multiple of 64; the last byte is a newline.
  constexpr std::size_t kPrefix = 10, kAlignment = 64;
  const std::size_t total = (kPrefix + header.size() + kAlignment) / kAlignment * kAlignment;
  header.resize(total - kPrefix - 1, ' ');
  header += '\n';
  std::string out(kMagic);
  out +=
      {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return out + header;
}

}  // namespace qkv::io
