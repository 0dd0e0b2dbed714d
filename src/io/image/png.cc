#include "io/image/decode.h"
#include "io/report.h"

#if QKV_WITH_PNG

#include <png.h>

#include <csetjmp>
#include <cstring>

namespace qkv::io {
namespace {

// What libpng's callbacks see, and what has to outlive a jump out of it.
struct Reading {
  Bytes bytes;
  std::size_t at = 0;
  char message[160] = "";
  Image image;
  std::vector<png_bytep> rows;
  png_structp png = nullptr;
  png_infop info = nullptr;
  bool bad_size = false;

  ~Reading() { png_destroy_read_struct(&png, &info, nullptr); }
};

void on_error(png_structp png, png_const_charp message) {
  auto* reading = static_cast<Reading*>(png_get_error_ptr(png));
  std::strncpy(reading->message, message, sizeof(reading->message) - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void give_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto* reading = static_cast<Reading*>(png_get_io_ptr(png));
  if (count > reading->bytes.size() - reading->at) png_error(png, "the file ends too early");
  std::memcpy(to, reading->bytes.data() + reading->at, count);
  reading->at += count;
}

// Up to the size. No object of ours may need a destructor in these two: libpng jumps out of them.
bool read_header(Reading& r) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_set_read_fn(r.png, &r, give_bytes);
  png_set_user_limits(r.png, kMostPixels, kMostPixels);
  png_read_info(r.png, r.info);
  const int type = png_get_color_type(r.png, r.info);
  png_set_expand(r.png);  // palettes, few bits, and a colour that means transparent
  png_set_strip_16(r.png);
  png_set_strip_alpha(r.png);
  if (type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(r.png);
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  return true;
}

bool read_rows(Reading& r) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_read_image(r.png, r.rows.data());
  png_read_end(r.png, nullptr);
  return true;
}

[[noreturn]] void refuse_png(std::string_view name, const Reading& r) {
  refuse(name, "image", "a PNG that is whole", r.message);
}

}  // namespace

Image decode_png(Bytes bytes, std::string_view name) {
  Reading r;
  r.bytes = bytes;
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
  if (r.png == nullptr) throw std::bad_alloc();
  r.info = png_create_info_struct(r.png);
  if (r.info == nullptr) throw std::bad_alloc();
  if (!read_header(r)) refuse_png(name, r);
  r.image =
      empty_image(name, png_get_image_width(r.png, r.info), png_get_image_height(r.png, r.info));
  const std::size_t line = static_cast<std::size_t>(r.image.width) * 3;
  if (png_get_rowbytes(r.png, r.info) != line) {
    refuse(name, "image", "three bytes a pixel", "another number");
  }
  for (std::int64_t y = 0; y < r.image.height; ++y) {
    r.rows.push_back(r.image.rgb.data() + static_cast<std::size_t>(y) * line);
  }
  if (!read_rows(r)) refuse_png(name, r);
  return std::move(r.image);
}

}  // namespace qkv::io

#else

namespace qkv::io {

Image decode_png(Bytes, std::string_view name) {
  refuse(name, "image", "a JPEG: this build has no libpng", "a PNG");
}

}  // namespace qkv::io

#endif
