// The depthwise 3×3 convolution of one plane of f32 (depthwise.h). Included once for each SIMD
// target.
//
// Three padded lines of the image are kept, each copied once: then no vector meets an edge. Vectors
// are of at most 8 lanes, since the images of a detector are narrow (20 or 40 pixels).

#if defined(QKV_KERNELS_CONV_DEPTHWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CONV_DEPTHWISE_INL_H_
#undef QKV_KERNELS_CONV_DEPTHWISE_INL_H_
#else
#define QKV_KERNELS_CONV_DEPTHWISE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/simd/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void depthwise_plane(const DepthwisePlane& p, float* scratch) noexcept {
  const hn::CappedTag<float, 8> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t padded = depthwise_padded(p.width);
  float* lines[3] = {scratch, scratch + padded, scratch + 2 * padded};
  std::fill(scratch, scratch + 3 * padded, 0.0f);
  const std::size_t bytes = static_cast<std::size_t>(p.width) * sizeof(float);
  if (p.height > 0) std::memcpy(lines[2] + 1, p.x, bytes);
  hn::Vec<decltype(d)> taps[9];
  for (int t = 0; t < 9; ++t) taps[t] = hn::Set(d, p.taps[t]);
  const auto bias = hn::Set(d, p.bias);
  for (std::int64_t h = 0; h < p.height; ++h) {
    std::rotate(lines, lines + 1, lines + 3);
    if (h + 1 < p.height) {
      std::memcpy(lines[2] + 1, p.x + (h + 1) * p.x_stride, bytes);
    } else {
      std::fill(lines[2], lines[2] + padded, 0.0f);
    }
    float* y = p.y + h * p.y_stride;
    for (std::int64_t w = 0; w < p.width; w += lanes) {
      // Three chains, one a line.
      auto top = bias, middle = hn::Zero(d), bottom = hn::Zero(d);
      for (int v = 0; v < 3; ++v) {
        top = hn::MulAdd(hn::LoadU(d, lines[0] + w + v), taps[v], top);
        middle = hn::MulAdd(hn::LoadU(d, lines[1] + w + v), taps[3 + v], middle);
        bottom = hn::MulAdd(hn::LoadU(d, lines[2] + w + v), taps[6 + v], bottom);
      }
      auto sum = hn::Add(hn::Add(top, middle), bottom);
      if (w + lanes <= p.width) {
        if (p.accumulate) sum = hn::Add(sum, hn::LoadU(d, y + w));
        hn::StoreU(sum, d, y + w);
        continue;
      }
      const std::size_t rest = static_cast<std::size_t>(p.width - w) * sizeof(float);
      HWY_ALIGN float line[hn::MaxLanes(d)] = {};
      if (p.accumulate) {
        std::memcpy(line, y + w, rest);
        sum = hn::Add(sum, hn::Load(d, line));
      }
      hn::Store(sum, d, line);
      std::memcpy(y + w, line, rest);
    }
  }
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
