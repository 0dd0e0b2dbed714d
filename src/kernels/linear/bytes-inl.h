// Products of 8-bit integers for the panel kernel (see bytes.h). Included once for each target.

#if defined(QKV_KERNELS_LINEAR_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_LINEAR_BYTES_INL_H_
#undef QKV_KERNELS_LINEAR_BYTES_INL_H_
#else
#define QKV_KERNELS_LINEAR_BYTES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/linear/bytes.h"
#include "kernels/linear/panel_tile-inl.h"

// An instruction for four products and their sum, which Highway's AVX3 does not assume.
#undef QKV_BYTES_VNNI
#if HWY_TARGET == HWY_AVX3 && defined(__GNUC__)
#define QKV_BYTES_VNNI 1
#else
#define QKV_BYTES_VNNI 0
#endif

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// In each 32-bit lane the sum of four products: bytes of w, signed, by bytes of x, unsigned.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
// By an instruction for a0·b0 + a1·b1 of 16-bit halves.
HWY_INLINE __m128i multiply_pairs(__m128i a, __m128i b) { return _mm_madd_epi16(a, b); }
#if HWY_TARGET != HWY_SSE4
HWY_INLINE __m256i multiply_pairs(__m256i a, __m256i b) { return _mm256_madd_epi16(a, b); }
#endif
#if HWY_TARGET == HWY_AVX3
HWY_INLINE __m512i multiply_pairs(__m512i a, __m512i b) { return _mm512_madd_epi16(a, b); }
#endif

template <class DI>
struct FourBytes {
  using V = hn::Vec<DI>;
  V even, odd;

  static HWY_INLINE FourBytes of_signed(DI di, V bytes) {
    const hn::Repartition<std::int16_t, DI> d16;
    const auto halves = hn::BitCast(d16, bytes);
    return {hn::BitCast(di, hn::ShiftRight<8>(hn::ShiftLeft<8>(halves))),
            hn::BitCast(di, hn::ShiftRight<8>(halves))};
  }
  HWY_INLINE V products(DI di, std::int32_t x) const {
    const hn::Repartition<std::uint16_t, DI> d16;
    const auto all = hn::BitCast(d16, hn::Set(di, x));
    const V x_even = hn::BitCast(di, hn::And(all, hn::Set(d16, std::uint16_t{255})));
    const V x_odd = hn::BitCast(di, hn::ShiftRight<8>(all));
    return hn::Add(V{multiply_pairs(x_even.raw, even.raw)}, V{multiply_pairs(x_odd.raw, odd.raw)});
  }
};
#else
template <class DI>
struct FourBytes {
  using V = hn::Vec<DI>;
  V w0, w1, w2, w3;

  static HWY_INLINE FourBytes of_signed(DI, V bytes) {
    return {hn::ShiftRight<24>(hn::ShiftLeft<24>(bytes)),
            hn::ShiftRight<24>(hn::ShiftLeft<16>(bytes)),
            hn::ShiftRight<24>(hn::ShiftLeft<8>(bytes)), hn::ShiftRight<24>(bytes)};
  }
  HWY_INLINE V products(DI di, std::int32_t x) const {
    const auto bits = static_cast<std::uint32_t>(x);
    const auto byte = [&](int shift) HWY_ATTR {
      return hn::Set(di, static_cast<std::int32_t>(bits >> shift & 255u));
    };
    return hn::Add(hn::Add(hn::Mul(w0, byte(0)), hn::Mul(w1, byte(8))),
                   hn::Add(hn::Mul(w2, byte(16)), hn::Mul(w3, byte(24))));
  }
};
#endif

// sums[r][o] = Σ_i x[r][i]·w[o][i], exactly; `steps` of four i each. x unsigned, w signed bytes,
// [step][output][4].
template <int R>
HWY_NOINLINE void byte_tile(const std::uint8_t* HWY_RESTRICT x, std::int64_t x_stride,
                            const std::int8_t* HWY_RESTRICT w, std::int64_t steps,
                            std::int32_t* HWY_RESTRICT sums) {
  const hn::ScalableTag<std::int32_t> di;
  constexpr std::int64_t N = hn::MaxLanes(di), W = kPanelVectors * N;
  for (int v = 0; v < kPanelVectors; ++v) {
    hn::Vec<decltype(di)> sum[R];
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) sum[r] = hn::Zero(di);
    const std::int8_t* at = w + v * N * 4;
    for (std::int64_t s = 0; s < steps; ++s, at += W * 4) {
      const auto four = FourBytes<hn::ScalableTag<std::int32_t>>::of_signed(
          di, hn::LoadU(di, reinterpret_cast<const std::int32_t*>(at)));
      HWY_UNROLL(8)
      for (int r = 0; r < R; ++r) {
        std::int32_t bytes;
        std::memcpy(&bytes, x + r * x_stride + s * 4, sizeof(bytes));
        sum[r] = hn::Add(sum[r], four.products(di, bytes));
      }
    }
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) hn::StoreU(sum[r], di, sums + r * W + v * N);
  }
}

#if QKV_BYTES_VNNI
template <int R>
[[gnu::noinline, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]] void vnni_tile(
    const std::uint8_t* x, std::int64_t x_stride, const std::int8_t* w, std::int64_t steps,
    std::int32_t* sums) {
  constexpr int kVectors = kPanelVectors;
  __m512i sum[R][kVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_si512();
  }
  for (std::int64_t s = 0; s < steps; ++s, w += kVectors * 64) {
    __m512i line[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) line[v] = _mm512_loadu_si512(w + v * 64);
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      std::int32_t bytes;
      std::memcpy(&bytes, x + r * x_stride + s * 4, sizeof(bytes));
      const __m512i all = _mm512_set1_epi32(bytes);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], all, line[v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_si512(sums + (r * kVectors + v) * 16, sum[r][v]);
    }
  }
}
#endif

template <int R>
HWY_INLINE void any_byte_tile(bool vnni, const std::uint8_t* x, std::int64_t x_stride,
                              const std::int8_t* w, std::int64_t steps, std::int32_t* sums) {
#if QKV_BYTES_VNNI
  if (vnni) return vnni_tile<R>(x, x_stride, w, steps, sums);
#endif
  (void)vnni;
  byte_tile<R>(x, x_stride, w, steps, sums);
}

// The same for any number of rows.
inline void byte_rows(bool vnni, const std::uint8_t* x, std::int64_t x_stride, const std::int8_t* w,
                      std::int64_t steps, std::int64_t rows, std::int32_t* sums,
                      PanelAhead& ahead) {
  constexpr std::int64_t W =
      kPanelVectors * static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<std::int32_t>()));
  std::int64_t r = 0;
  const auto tile = [&](auto count) {
    constexpr int R = decltype(count)::value;
    ahead.fetch(steps);
    any_byte_tile<R>(vnni, x + r * x_stride, x_stride, w, steps, sums + r * W);
    r += R;
  };
  while (r + kPanelRows <= rows) tile(std::integral_constant<int, kPanelRows>());
  if (kPanelRows > 4 && r + 4 <= rows) tile(std::integral_constant<int, 4>());
  if (r + 2 <= rows) tile(std::integral_constant<int, 2>());
  if (r < rows) tile(std::integral_constant<int, 1>());
}

// sums[o] becomes (sums[o] - zero·weight_sum[o])·(scale·weight_scale[o]), as a float.
HWY_INLINE void scale_sums(std::int32_t zero, float scale, const std::int32_t* weight_sums,
                           const float* weight_scales, float* sums) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr std::int64_t N = hn::MaxLanes(d);
  const auto zeros = hn::Set(di, zero);
  const auto scales = hn::Set(d, scale);
  for (std::int64_t n = 0; n < kPanelVectors * N; n += N) {
    const auto sum = hn::BitCast(di, hn::LoadU(d, sums + n));
    const auto exact = hn::Sub(sum, hn::Mul(zeros, hn::LoadU(di, weight_sums + n)));
    const auto factor = hn::Mul(scales, hn::LoadU(d, weight_scales + n));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, exact), factor), d, sums + n);
  }
}

// A row of floats as bytes (see ByteRow). `x` has room for whole vectors; the bytes have as well.
inline ByteRow quantize_row(float* x, std::int64_t n, std::uint8_t* bytes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const std::int64_t N = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = (n + N - 1) / N * N;
  std::fill(x + n, x + whole, 0.0f);
  auto low = hn::Zero(d), high = hn::Zero(d);
  auto size = hn::Zero(di);
  for (std::int64_t i = 0; i < whole; i += N) {
    const auto v = hn::LoadU(d, x + i);
    low = hn::Min(low, v);
    high = hn::Max(high, v);
    size = hn::Max(size, hn::BitCast(di, hn::Abs(v)));
  }
  const std::int32_t largest = hn::GetLane(hn::MaxOfLanes(di, size));
  const ByteRow row = byte_row(hn::GetLane(hn::MinOfLanes(d, low)),
                               hn::GetLane(hn::MaxOfLanes(d, high)), largest < 0x7f800000);
  const auto factor = hn::Set(d, row.factor);
  const auto zero = hn::Set(di, row.zero);
  for (std::int64_t i = 0; i < whole; i += N) {
    const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor));
    hn::StoreU(hn::DemoteTo(d8, hn::Add(q, zero)), d8, bytes + i);
  }
  return row;
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
