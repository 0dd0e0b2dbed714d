#pragma once

// One function a format. Throw Error.

#include "io/image/image.h"

namespace qkv::io {

Image decode_png(Bytes bytes, std::string_view name);
Image decode_jpeg(Bytes bytes, std::string_view name);

// Refuses an image that has no pixel or too many; gives it its memory otherwise.
Image empty_image(std::string_view name, std::int64_t width, std::int64_t height);

}  // namespace qkv::io
