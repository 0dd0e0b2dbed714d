#pragma once

// Photographs: .png and .jpg as 8-bit RGB, and what a vision model wants done to them.

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "io/bytes.h"
#include "qkv/tensor.h"

namespace qkv::io {

// rgb[(y·width + x)·3 + channel]
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
};

inline constexpr std::int64_t kMostPixels = 1 << 26;  // an image of more is refused, not decoded
inline constexpr std::int64_t kMostBytes = 1 << 28;   // the same for a file

// By the first bytes, not by the name. Grey becomes RGB, transparency is dropped, 16 bits are cut
// to
// 8. Refuses what is damaged, too large, of another format, or CMYK. Whether a build can read a
// format is decided when it is built: without libpng, a PNG is refused.
Image read_image(const std::filesystem::path& path);
Image decode_image(Bytes bytes, std::string_view name);

enum class Resample : std::uint8_t { bilinear, bicubic };

// Pillow's resize: a weighted mean of all pixels that the filter, widened when the image gets
// smaller, reaches; first along rows, then along columns, rounded to 8 bits after each.
Image resize(const Image& image, std::int64_t width, std::int64_t height, Resample resample);

// What stands between a photograph and pixels of a model.
struct ImageProcessing {
  // The size before cropping. shortest_edge > 0: that long the shorter side, the other in
  // proportion. Otherwise height and width, or 0: as it is.
  std::int64_t shortest_edge = 0, height = 0, width = 0;
  Resample resample = Resample::bilinear;
  std::int64_t crop_height = 0, crop_width = 0;  // from the middle; 0: all. 0 outside the image
  bool round_crop = false;  // the middle's half pixel is rounded (torchvision), not cut off
  double scale = 1.0 / 255;
  std::array<double, 3> mean{0, 0, 0}, deviation{1, 1, 1};
};

// [3, H, W] f32: (pixel·scale - mean) / deviation, after resize and crop.
Tensor process_image(const Image& image, const ImageProcessing& processing);

}  // namespace qkv::io
