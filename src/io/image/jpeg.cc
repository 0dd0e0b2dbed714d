#include "io/image/decode.h"
#include "io/report.h"

#if QKV_WITH_JPEG

#include <csetjmp>
#include <cstdio>
#include <cstring>
// jpeglib.h wants size_t and FILE to be known.
#include <jpeglib.h>

namespace qkv::io {
namespace {

// libjpeg's error manager first: its callbacks get a pointer to that.
struct Reading {
  jpeg_error_mgr errors;
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX] = "";
  jpeg_decompress_struct jpeg;
  Image image;

  Reading() : errors(), leave(), jpeg() {
    jpeg.err = jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    errors.output_message = [](j_common_ptr) {};
  }
  ~Reading() { jpeg_destroy_decompress(&jpeg); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  static Reading& of(j_common_ptr jpeg) { return *reinterpret_cast<Reading*>(jpeg->err); }
  [[noreturn]] static void on_error(j_common_ptr jpeg) {
    Reading& r = of(jpeg);
    r.errors.format_message(jpeg, r.message);
    std::longjmp(r.leave, 1);
  }
  // libjpeg goes on with grey after a warning: what is cut off or damaged is refused instead.
  static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0) on_error(jpeg);
  }
};

// No object of ours may need a destructor in these two: libjpeg jumps out of them.
bool read_header(Reading& r, const unsigned char* bytes, unsigned long size) {
  if (setjmp(r.leave) != 0) return false;
  jpeg_create_decompress(&r.jpeg);
  r.jpeg.mem->max_memory_to_use = 1 << 29;
  jpeg_mem_src(&r.jpeg, bytes, size);
  jpeg_read_header(&r.jpeg, TRUE);
  return true;
}

bool read_rows(Reading& r) {
  if (setjmp(r.leave) != 0) return false;
  r.jpeg.out_color_space = JCS_RGB;
  r.jpeg.dct_method = JDCT_ISLOW;
  jpeg_start_decompress(&r.jpeg);
  while (r.jpeg.output_scanline < r.jpeg.output_height) {
    JSAMPROW row = r.image.rgb.data() + std::size_t{r.jpeg.output_scanline} *
                                            static_cast<std::size_t>(r.image.width) * 3;
    jpeg_read_scanlines(&r.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&r.jpeg);
  return true;
}

}  // namespace

Image decode_jpeg(Bytes bytes, std::string_view name) {
  Reading r;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  if (!read_header(r, data, static_cast<unsigned long>(bytes.size()))) {
    refuse(name, "image", "a JPEG that is whole", r.message);
  }
  const J_COLOR_SPACE colors = r.jpeg.jpeg_color_space;
  if (colors != JCS_GRAYSCALE && colors != JCS_YCbCr && colors != JCS_RGB) {
    refuse(name, "image", "a JPEG of grey or RGB", "CMYK, or colours that are not named");
  }
  r.image = empty_image(name, r.jpeg.image_width, r.jpeg.image_height);
  if (!read_rows(r)) refuse(name, "image", "a JPEG that is whole", r.message);
  return std::move(r.image);
}

}  // namespace qkv::io

#else

namespace qkv::io {

Image decode_jpeg(Bytes, std::string_view name) {
  refuse(name, "image", "a PNG: this build has no libjpeg", "a JPEG");
}

}  // namespace qkv::io

#endif
