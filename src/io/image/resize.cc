#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/image/image.h"
#include "io/report.h"

namespace qkv::io {
namespace {

constexpr int kBits = 22;  // of a weight's fraction: 255 times the sum of weights fits in 32 bits

double bilinear(double x) {
  x = std::abs(x);
  return x < 1 ? 1 - x : 0;
}

// Keys' cubic with a = -1/2.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// The pixels that make up one of the result: those from `first` on, and their weights.
struct Taps {
  std::int64_t first;
  std::vector<std::int32_t> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to, Resample resample) {
  const auto filter = resample == Resample::bilinear ? bilinear : bicubic;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double spread = std::max(scale, 1.0);  // a filter as wide as the new pixels are apart
  const double support = (resample == Resample::bilinear ? 1.0 : 2.0) * spread;
  std::vector<Taps> all;
  for (std::int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const auto last = std::min(from, static_cast<std::int64_t>(center + support + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t x = first; x < last; ++x) {
      weights.push_back(filter((static_cast<double>(x) - center + 0.5) / spread));
      sum += weights.back();
    }
    Taps taps{first, {}};
    for (const double weight : weights) {
      const double fixed = weight / sum * (1 << kBits);
      taps.weights.push_back(static_cast<std::int32_t>(fixed < 0 ? fixed - 0.5 : fixed + 0.5));
    }
    all.push_back(std::move(taps));
  }
  return all;
}

// `count` lines of `from` pixels become lines of `to`; strides in bytes, channels next to each
// other.
void pass(const std::uint8_t* source, std::int64_t source_pixel, std::int64_t source_line,
          const std::vector<Taps>& taps, std::int64_t count, std::uint8_t* target,
          std::int64_t target_pixel, std::int64_t target_line) {
  for (std::int64_t line = 0; line < count; ++line) {
    for (std::size_t i = 0; i < taps.size(); ++i) {
      const std::uint8_t* at = source + line * source_line + taps[i].first * source_pixel;
      std::int64_t sum[3] = {1 << (kBits - 1), 1 << (kBits - 1), 1 << (kBits - 1)};
      for (const std::int32_t weight : taps[i].weights) {
        for (int c = 0; c < 3; ++c) sum[c] += std::int64_t{at[c]} * weight;
        at += source_pixel;
      }
      std::uint8_t* to = target + line * target_line + static_cast<std::int64_t>(i) * target_pixel;
      for (int c = 0; c < 3; ++c) {
        to[c] = static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum[c] >> kBits, 0, 255));
      }
    }
  }
}

Image sized(std::int64_t width, std::int64_t height) {
  Image image{width, height, {}};
  image.rgb.resize(static_cast<std::size_t>(width * height * 3));
  return image;
}

// A side in proportion to one that was chosen.
std::int64_t in_proportion(std::int64_t edge, std::int64_t longer, std::int64_t shorter) {
  return edge * longer / shorter;
}

}  // namespace

Image resize(const Image& image, std::int64_t width, std::int64_t height, Resample resample) {
  if (width < 1 || height < 1 || width > kMostPixels / height ||
      width > kMostPixels / image.height) {
    refuse("resize", "size", fmt::format("1 to {} pixels", kMostPixels),
           fmt::format("{}×{}", width, height));
  }
  Image rows;
  const Image* from = &image;
  if (width != image.width) {
    rows = sized(width, image.height);
    pass(image.rgb.data(), 3, image.width * 3, taps_of(image.width, width, resample), image.height,
         rows.rgb.data(), 3, width * 3);
    from = &rows;
  }
  if (height == image.height) return *from;
  Image result = sized(width, height);
  pass(from->rgb.data(), width * 3, 3, taps_of(image.height, height, resample), width,
       result.rgb.data(), width * 3, 3);
  return result;
}

Tensor process_image(const Image& image, const ImageProcessing& p) {
  std::int64_t width = p.width > 0 ? p.width : image.width;
  std::int64_t height = p.height > 0 ? p.height : image.height;
  if (p.shortest_edge > 0) {
    const bool wide = image.width > image.height;
    height = wide ? p.shortest_edge : in_proportion(p.shortest_edge, image.height, image.width);
    width = wide ? in_proportion(p.shortest_edge, image.width, image.height) : p.shortest_edge;
  }
  const Image sized_image = resize(image, width, height, p.resample);
  const std::int64_t H = p.crop_height > 0 ? p.crop_height : height;
  const std::int64_t W = p.crop_width > 0 ? p.crop_width : width;
  const auto middle = [&](std::int64_t all, std::int64_t part) {
    const double half = static_cast<double>(all - part) / 2;
    return static_cast<std::int64_t>(p.round_crop ? std::nearbyint(half) : std::floor(half));
  };
  const std::int64_t top = middle(height, H), left = middle(width, W);
  Tensor pixels(DType::f32, {3, H, W});
  float* to = pixels.as<float>().data();
  for (std::int64_t c = 0; c < 3; ++c) {
    const std::size_t n = static_cast<std::size_t>(c);
    for (std::int64_t y = 0; y < H; ++y) {
      for (std::int64_t x = 0; x < W; ++x) {
        const std::int64_t from_y = y + top, from_x = x + left;
        const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        const double value =
            inside ? sized_image.rgb[static_cast<std::size_t>((from_y * width + from_x) * 3 + c)]
                   : 0;
        *to++ = static_cast<float>((value * p.scale - p.mean[n]) / p.deviation[n]);
      }
    }
  }
  return pixels;
}

}  // namespace qkv::io
