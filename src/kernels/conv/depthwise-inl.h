// The depthwise 3×3 convolution of planes of f32 (depthwise.h). Included once for each SIMD target.
//
// A few padded lines of the image are kept, each copied once: then no vector meets an edge. Vectors
// are of at most 8 lanes, since the images of a detector are narrow (20 or 40 pixels). On AVX-512 a
// plane without gaps is one long line instead.

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

class DepthwiseRun {
  using D = hn::CappedTag<float, 8>;
  using V = hn::Vec<D>;
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());
  // A line is copied so long before it is read that its bytes have left the store buffer: what was
  // written in other pieces than it is read in would have to wait for that.
  static constexpr std::int64_t kAhead = kDepthwiseLines - 3;

 public:
  // Of plane n.
  DepthwiseRun(const DepthwisePlanes& p, std::int64_t n, float* scratch)
      : p_(p),
        x_(p.x + n * p.x_step),
        taps_(p.taps + n * 9),
        bias_(p.bias != nullptr ? p.bias[n] : 0.0f),
        y_(p.y + n * p.y_step),
        lines_(scratch) {}

  void run() const {
    std::fill(lines_, lines_ + kDepthwiseLines * padded_, 0.0f);
    for (std::int64_t row = 0; row < kAhead; ++row) bring(row);
    for (std::int64_t h = 0; h < p_.height; ++h) {
      bring(h + kAhead);
      const float* above[3] = {line(h - 1), line(h), line(h + 1)};
      if (p_.width < N) {
        narrow(above, y_ + h * p_.y_stride);
      } else {
        wide(above, y_ + h * p_.y_stride);
      }
    }
  }

 private:
  float* line(std::int64_t row) const { return lines_ + (row + 1) % kDepthwiseLines * padded_; }

  // Row -1 and row `height` are 0, as is what is left and right of each.
  void bring(std::int64_t row) const {
    if (row < p_.height) {
      std::memcpy(line(row) + 1, x_ + row * p_.x_stride,
                  static_cast<std::size_t>(p_.width) * sizeof(float));
    } else if (row == p_.height) {
      std::fill(line(row), line(row) + padded_, 0.0f);
    }
  }

  // The convolution at w and the lanes that follow.
  HWY_INLINE V at(const float* const (&above)[3], std::int64_t w) const {
    V sum[3] = {hn::Zero(d), hn::Set(d, bias_), hn::Zero(d)};  // three chains, one a column
    HWY_UNROLL(3)
    for (int u = 0; u < 3; ++u) {
      HWY_UNROLL(3)
      for (int v = 0; v < 3; ++v) {
        sum[v] = hn::MulAdd(hn::LoadU(d, above[u] + w + v), hn::Set(d, taps_[3 * u + v]), sum[v]);
      }
    }
    return hn::Add(hn::Add(sum[0], sum[1]), sum[2]);
  }

  HWY_INLINE V old(const float* y) const { return p_.accumulate ? hn::LoadU(d, y) : hn::Zero(d); }

  // The last vector ends with the line. It overlaps the one before, hence is computed before that
  // is written, from the same y.
  void wide(const float* const (&above)[3], float* y) const {
    const std::int64_t last = p_.width - N;
    const V end = hn::Add(at(above, last), old(y + last));
    for (std::int64_t w = 0; w < last; w += N) {
      hn::StoreU(hn::Add(at(above, w), old(y + w)), d, y + w);
    }
    hn::StoreU(end, d, y + last);
  }

  void narrow(const float* const (&above)[3], float* y) const {
    const std::size_t bytes = static_cast<std::size_t>(p_.width) * sizeof(float);
    HWY_ALIGN float whole[N] = {};
    if (p_.accumulate) std::memcpy(whole, y, bytes);
    hn::Store(hn::Add(at(above, 0), hn::Load(d, whole)), d, whole);
    std::memcpy(y, whole, bytes);
  }

  const DepthwisePlanes& p_;
  const float *x_, *taps_;
  float bias_;
  float *y_, *lines_;
  const std::int64_t padded_ = depthwise_padded(p_.width);
};

#if HWY_TARGET == HWY_AVX3
// A plane without gaps between its lines is one long line: vectors go on from line to line. Each is
// loaded once for its line above, at and below, and summed up three times, with the taps of each
// column; the sums for the pixels right and left of it are then shifted to these. What lies beyond
// an edge is masked, by masks that all planes share. Nothing is copied, and nothing outside is
// read. The sums are those of DepthwiseRun, bit for bit, if taps are finite. For lines of at least
// a vector.
class DepthwiseFlat {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Bits = std::uint16_t;  // a bit a lane
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());
  static constexpr std::int64_t kMostVectors = 1024;

 public:
  explicit DepthwiseFlat(const DepthwisePlanes& p)
      : p_(p), size_(p.height * p.width), vectors_((size_ + N - 1) / N) {
    for (std::int64_t k = 0, column = 0; k <= vectors_; ++k) {
      const std::int64_t next = p.width - column;  // the lane that begins the next line
      masks_[k].from_left = static_cast<Bits>(~(column == 0 ? 1u : lane_bit(next)));
      masks_[k].from_right = static_cast<Bits>(~lane_bit(next - 1));
      column += column + N < p.width ? N : N - p.width;
      for (int u = 0; u < 3; ++u) {
        const std::int64_t from = k * N + (u - 1) * p.width;
        masks_[k].line[u] = static_cast<Bits>(lanes_until(size_ - from) & ~lanes_until(-from));
      }
    }
  }

  static bool fits(const DepthwisePlanes& p) {
    return p.width >= N && p.x_stride == p.width && p.y_stride == p.width &&
           p.height * p.width <= (kMostVectors - 1) * N;
  }

  HWY_INLINE void run(std::int64_t plane) const {
    const float* x = p_.x + plane * p_.x_step;
    float* y = p_.y + plane * p_.y_step;
    const Taps taps(p_, plane);
    const Masks* masks = masks_;
    const std::int64_t width = p_.width, vectors = vectors_;
    const bool accumulate = p_.accumulate;
    V before = hn::Zero(d);  // what the vector before gives to its right
    Columns here = taps.columns(x, width, masks[0]);
    for (std::int64_t k = 0; k < vectors; ++k, y += N) {
      x += N;
      const Columns after = taps.columns(x, width, masks[k + 1]);
      const V from_left = shifted<N - 1>(masks[k].from_left, here.right, before);
      const V from_right = shifted<1>(masks[k].from_right, after.left, here.left);
      const V sum = hn::Add(hn::Add(from_left, here.own), from_right);
      before = here.right;
      here = after;
      if (k + 1 < vectors) {
        hn::StoreU(hn::Add(sum, accumulate ? hn::LoadU(d, y) : hn::Zero(d)), d, y);
      } else {
        const auto rest = mask_of(masks[k].line[1]);
        const V old = accumulate ? hn::MaskedLoad(rest, d, y) : hn::Zero(d);
        hn::BlendedStore(hn::Add(sum, old), rest, d, y);
      }
    }
  }

 private:
  // Of a vector, which of its neighbours are in the same line, and which of the pixels above, at
  // and below it are in the plane.
  struct Masks {
    Bits from_left, from_right, line[3];
  };
  // Of a vector, the sums that it is part of: of the pixels right of it, of its own, and of those
  // left of it.
  struct Columns {
    V right, own, left;
  };
  // Taps and bias of a plane.
  struct Taps {
    V taps[9], bias;

    HWY_INLINE Taps(const DepthwisePlanes& p, std::int64_t plane) {
      HWY_UNROLL(9)
      for (int t = 0; t < 9; ++t) taps[t] = hn::Set(d, p.taps[plane * 9 + t]);
      bias = hn::Set(d, p.bias != nullptr ? p.bias[plane] : 0.0f);
    }
    HWY_INLINE Columns columns(const float* x, std::int64_t width, const Masks& masks) const {
      Columns c{hn::Zero(d), bias, hn::Zero(d)};
      HWY_UNROLL(3)
      for (int u = 0; u < 3; ++u) {
        const V line = hn::MaskedLoad(mask_of(masks.line[u]), d, x + (u - 1) * width);
        c.right = hn::MulAdd(line, taps[3 * u], c.right);
        c.own = hn::MulAdd(line, taps[3 * u + 1], c.own);
        c.left = hn::MulAdd(line, taps[3 * u + 2], c.left);
      }
      return c;
    }
  };

  static std::uint32_t lane_bit(std::int64_t lane) { return lane < N ? 1u << lane : 0; }
  static std::uint32_t lanes_until(std::int64_t end) {
    return (1u << std::clamp<std::int64_t>(end, 0, N)) - 1;
  }
  static HWY_INLINE hn::Mask<D> mask_of(Bits bits) { return hn::Mask<D>{bits}; }
  // Lanes [by, by + N) of low and then high; 0 where it is not kept.
  template <int by>
  static HWY_INLINE V shifted(Bits kept, V high, V low) {
    return V{_mm512_castsi512_ps(_mm512_maskz_alignr_epi32(kept, _mm512_castps_si512(high.raw),
                                                           _mm512_castps_si512(low.raw), by))};
  }

  const DepthwisePlanes& p_;
  const std::int64_t size_, vectors_;
  Masks masks_[kMostVectors];
};
#endif

inline void depthwise_planes(const DepthwisePlanes& p, float* scratch) noexcept {
#if HWY_TARGET == HWY_AVX3
  if (DepthwiseFlat::fits(p)) {
    const DepthwiseFlat flat(p);
    for (std::int64_t n = 0; n < p.count; ++n) flat.run(n);
    return;
  }
#endif
  for (std::int64_t n = 0; n < p.count; ++n) DepthwiseRun(p, n, scratch).run();
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
