#include "io/image/image.h"

#include <fmt/format.h>

#include <cstring>

#include "io/image/decode.h"
#include "io/input_file.h"
#include "io/report.h"

namespace qkv::io {

Image empty_image(std::string_view name, std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1 || width > kMostPixels / height) {
    refuse(name, "image", fmt::format("1 to {} pixels", kMostPixels),
           fmt::format("{}×{}", width, height));
  }
  Image image{width, height, {}};
  image.rgb.resize(static_cast<std::size_t>(width * height * 3));
  return image;
}

Image decode_image(Bytes bytes, std::string_view name) {
  const auto starts_with = [&](std::string_view magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (static_cast<std::int64_t>(bytes.size()) > kMostBytes) {
    refuse(name, "image", fmt::format("at most {} bytes", kMostBytes),
           fmt::format("{}", bytes.size()));
  }
  if (starts_with("\x89PNG\r\n\x1a\n")) return decode_png(bytes, name);
  if (starts_with("\xff\xd8\xff")) return decode_jpeg(bytes, name);
  refuse(name, "image", "a PNG or a JPEG", bytes.size() == 0 ? "an empty file" : "neither");
}

Image read_image(const std::filesystem::path& path) {
  const auto file = InputFile::open(path, FileAccess::copy);
  return decode_image(file->bytes(), file->name());
}

}  // namespace qkv::io
