// The depthwise 3×3 convolution of one plane of f32 (depthwise.h). Included once for each SIMD
// target.
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
  DepthwiseRun(const DepthwisePlane& p, float* scratch) : p_(p), lines_(scratch) {}

  void run() const {
    std::fill(lines_, lines_ + kDepthwiseLines * padded_, 0.0f);
    for (std::int64_t row = 0; row < kAhead; ++row) bring(row);
    for (std::int64_t h = 0; h < p_.height; ++h) {
      bring(h + kAhead);
      const float* above[3] = {line(h - 1), line(h), line(h + 1)};
      if (p_.width < N) {
        narrow(above, p_.y + h * p_.y_stride);
      } else {
        wide(above, p_.y + h * p_.y_stride);
      }
    }
  }

 private:
  float* line(std::int64_t row) const { return lines_ + (row + 1) % kDepthwiseLines * padded_; }

  // Row -1 and row `height` are 0, as is what is left and right of each.
  void bring(std::int64_t row) const {
    if (row < p_.height) {
      std::memcpy(line(row) + 1, p_.x + row * p_.x_stride,
                  static_cast<std::size_t>(p_.width) * sizeof(float));
    } else if (row == p_.height) {
      std::fill(line(row), line(row) + padded_, 0.0f);
    }
  }

  // The convolution at w and the lanes that follow.
  HWY_INLINE V at(const float* const (&above)[3], std::int64_t w) const {
    V sum[3] = {hn::Set(d, p_.bias), hn::Zero(d), hn::Zero(d)};  // three chains, one a line
    HWY_UNROLL(3)
    for (int v = 0; v < 3; ++v) {
      HWY_UNROLL(3)
      for (int u = 0; u < 3; ++u) {
        sum[u] = hn::MulAdd(hn::LoadU(d, above[u] + w + v), hn::Set(d, p_.taps[3 * u + v]), sum[u]);
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

  const DepthwisePlane& p_;
  float* lines_;
  const std::int64_t padded_ = depthwise_padded(p_.width);
};

#if HWY_TARGET == HWY_AVX3
// A plane without gaps between its lines is one long line: vectors go on from line to line. Each is
// loaded once for its line above, at and below; the neighbours left and right are shifted in from
// the vectors beside it, and masked beyond an edge. Nothing is copied, and nothing outside is read.
// The sums are those of DepthwiseRun, bit for bit. For lines of at least a vector.
class DepthwiseFlat {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Bits = std::uint32_t;  // a bit a lane
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());
  static constexpr Bits kAll = 0xffff;

 public:
  explicit DepthwiseFlat(const DepthwisePlane& p) : p_(p), size_(p.height * p.width) {}

  static bool fits(const DepthwisePlane& p) {
    return p.width >= N && p.x_stride == p.width && p.y_stride == p.width;
  }

  void run() const {
    V taps[9];  // in registers: what is stored might be one of them, as far as a compiler knows
    HWY_UNROLL(9)
    for (int t = 0; t < 9; ++t) taps[t] = hn::Set(d, p_.taps[t]);
    const V bias = hn::Set(d, p_.bias);
    V before[3], here[3], after[3];  // of the line above, this one, the one below
    HWY_UNROLL(3)
    for (int u = 0; u < 3; ++u) {
      before[u] = line(u, -N);
      here[u] = line(u, 0);
    }
    std::int64_t column = 0;  // of the first lane
    for (std::int64_t i = 0; i < size_; i += N) {
      const std::int64_t next = p_.width - column;  // the lane that begins the next line
      const Bits begins = column == 0 ? 1 : lane_bit(next), ends = lane_bit(next - 1);
      const auto left = static_cast<__mmask16>(kAll & ~begins);
      const auto right = static_cast<__mmask16>(kAll & ~ends);
      column += column + N < p_.width ? N : N - p_.width;
      V sum[3] = {bias, hn::Zero(d), hn::Zero(d)};
      HWY_UNROLL(3)
      for (int u = 0; u < 3; ++u) {
        after[u] = line(u, i + N);
        sum[u] = hn::MulAdd(shifted<15>(left, here[u], before[u]), taps[3 * u], sum[u]);
        sum[u] = hn::MulAdd(here[u], taps[3 * u + 1], sum[u]);
        sum[u] = hn::MulAdd(shifted<1>(right, after[u], here[u]), taps[3 * u + 2], sum[u]);
        before[u] = here[u];
        here[u] = after[u];
      }
      add(hn::Add(hn::Add(sum[0], sum[1]), sum[2]), i);
    }
  }

 private:
  static Bits lane_bit(std::int64_t lane) { return lane < N ? Bits{1} << lane : 0; }
  static Bits lanes_until(std::int64_t end) {
    return (Bits{1} << std::clamp<std::int64_t>(end, 0, N)) - 1;
  }
  static HWY_INLINE hn::Mask<D> mask_of(Bits bits) {
    return hn::Mask<D>{static_cast<__mmask16>(bits)};
  }
  // Lanes [by, by + N) of low and then high; 0 where it is not kept.
  template <int by>
  static HWY_INLINE V shifted(__mmask16 kept, V high, V low) {
    return V{_mm512_castsi512_ps(_mm512_maskz_alignr_epi32(kept, _mm512_castps_si512(high.raw),
                                                           _mm512_castps_si512(low.raw), by))};
  }

  // x from i on, in line u - 1 of those beside it; 0 outside the plane.
  HWY_INLINE V line(int u, std::int64_t i) const {
    const std::int64_t from = i + (u - 1) * p_.width;
    if (from >= 0 && from + N <= size_) return hn::LoadU(d, p_.x + from);
    return hn::MaskedLoad(mask_of(lanes_until(size_ - from) & ~lanes_until(-from)), d, p_.x + from);
  }

  HWY_INLINE void add(V sum, std::int64_t i) const {
    float* y = p_.y + i;
    if (i + N <= size_) {
      hn::StoreU(hn::Add(sum, p_.accumulate ? hn::LoadU(d, y) : hn::Zero(d)), d, y);
      return;
    }
    const auto kept = mask_of(lanes_until(size_ - i));
    const V old = p_.accumulate ? hn::MaskedLoad(kept, d, y) : hn::Zero(d);
    hn::BlendedStore(hn::Add(sum, old), kept, d, y);
  }

  const DepthwisePlane& p_;
  const std::int64_t size_;
};
#endif

inline void depthwise_plane(const DepthwisePlane& p, float* scratch) noexcept {
#if HWY_TARGET == HWY_AVX3
  if (DepthwiseFlat::fits(p)) return DepthwiseFlat(p).run();
#endif
  DepthwiseRun(p, scratch).run();
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
