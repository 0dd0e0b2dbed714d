// Norms of rows of f32 (norm.h). Included once for each SIMD target.
//
// A row goes past three times (mean, variance, result), the second and third time from the
// nearest cache. Sums are of eight vectors side by side, so that neither the latency of one
// addition nor the length of one chain counts.

#if defined(QKV_KERNELS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_NORM_INL_H_
#undef QKV_KERNELS_NORM_INL_H_
#else
#define QKV_KERNELS_NORM_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/simd/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class NormLine {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());
  static constexpr int kChains = 4;

 public:
  static void run(const NormLines& p, const float* x, float* y) {
    const float count = static_cast<float>(p.n);
    const float mean = p.rms ? 0.0f : sum<false>(x, p.n, 0) / count;
    const float variance = sum<true>(x, p.n, mean) / count;
    const float inverse = 1 / std::sqrt(variance + p.eps);
    if (p.weight != nullptr && p.bias != nullptr) {
      write<true, true>(p, x, mean, inverse, y);
    } else if (p.weight != nullptr) {
      write<true, false>(p, x, mean, inverse, y);
    } else if (p.bias != nullptr) {
      write<false, true>(p, x, mean, inverse, y);
    } else {
      write<false, false>(p, x, mean, inverse, y);
    }
  }

 private:
  // Σ x, or Σ (x - mean)².
  template <bool squares>
  static HWY_INLINE V add(V total, V x, V mean) {
    if constexpr (squares) {
      const V difference = hn::Sub(x, mean);
      return hn::MulAdd(difference, difference, total);
    } else {
      return hn::Add(total, x);
    }
  }

  template <bool squares>
  static HWY_INLINE float sum(const float* x, std::int64_t n, float mean_of_row) {
    const V mean = hn::Set(d, mean_of_row);
    V total[kChains];
    for (V& chain : total) chain = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + kChains * N <= n; i += kChains * N) {
      for (int c = 0; c < kChains; ++c) {
        total[c] = add<squares>(total[c], hn::LoadU(d, x + i + c * N), mean);
      }
    }
    for (; i + N <= n; i += N) total[0] = add<squares>(total[0], hn::LoadU(d, x + i), mean);
    if (i < n) {
      // Lanes past the end hold the mean (0 for a sum), which adds nothing.
      HWY_ALIGN float line[N];
      hn::Store(mean, d, line);
      std::memcpy(line, x + i, static_cast<std::size_t>(n - i) * sizeof(float));
      total[1] = add<squares>(total[1], hn::Load(d, line), mean);
    }
    const V all = hn::Add(hn::Add(total[0], total[1]), hn::Add(total[2], total[3]));
    return hn::GetLane(hn::SumOfLanes(d, all));
  }

  template <bool weight, bool bias>
  static HWY_INLINE V result(V x, V mean, V inverse, V w, V b) {
    V y = hn::Mul(hn::Sub(x, mean), inverse);
    if constexpr (weight && bias) return hn::MulAdd(y, w, b);
    if constexpr (weight) y = hn::Mul(y, w);
    if constexpr (bias) y = hn::Add(y, b);
    return y;
  }

  template <bool weight, bool bias>
  static HWY_INLINE void write(const NormLines& p, const float* x, float mean_of_row,
                               float inverse_of_row, float* y) {
    const V mean = hn::Set(d, mean_of_row), inverse = hn::Set(d, inverse_of_row);
    V w = hn::Zero(d), b = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + N <= p.n; i += N) {
      if constexpr (weight) w = hn::LoadU(d, p.weight + i);
      if constexpr (bias) b = hn::LoadU(d, p.bias + i);
      hn::StoreU(result<weight, bias>(hn::LoadU(d, x + i), mean, inverse, w, b), d, y + i);
    }
    if (i == p.n) return;
    const std::size_t rest = static_cast<std::size_t>(p.n - i) * sizeof(float);
    HWY_ALIGN float line[N] = {};
    if constexpr (weight) {
      std::memcpy(line, p.weight + i, rest);
      w = hn::Load(d, line);
    }
    if constexpr (bias) {
      std::memcpy(line, p.bias + i, rest);
      b = hn::Load(d, line);
    }
    std::memcpy(line, x + i, rest);
    hn::Store(result<weight, bias>(hn::Load(d, line), mean, inverse, w, b), d, line);
    std::memcpy(y + i, line, rest);
  }
};

inline void norm_lines(const NormLines& p, const float* x, std::int64_t x_stride, std::int64_t rows,
                       float* y, std::int64_t y_stride) noexcept {
  for (std::int64_t r = 0; r < rows; ++r) NormLine::run(p, x + r * x_stride, y + r * y_stride);
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
