// Scores of int8 keys by an instruction that multiplies and adds pairs of 16-bit words, twice as
// many as f32 has lanes. The query is rounded to words, which is 256 times finer than the keys are.
// Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_DECODE_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_DECODE_BYTES_INL_H_
#undef QKV_KERNELS_ATTENTION_DECODE_BYTES_INL_H_
#else
#define QKV_KERNELS_ATTENTION_DECODE_BYTES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/attention/decode.h"

// Highway's AVX3 does not assume the instruction (VNNI); the unit says whether the CPU has it.
#undef QKV_DECODE_VNNI
#if HWY_TARGET == HWY_AVX3 && defined(__GNUC__)
#define QKV_DECODE_VNNI 1
#else
#define QKV_DECODE_VNNI 0
#endif

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {

#if QKV_DECODE_VNNI

#define QKV_WORDS_TARGET gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

// q_i ≈ words[i]·factor; q is padded. A query with Inf or NaN gets zeros and a factor of NaN.
[[QKV_WORDS_TARGET]] inline void to_words(const float* q, std::int64_t D, std::int16_t* words,
                                          float& factor) {
  std::fill_n(words, decode_words(D), std::int16_t{0});
  __m512 top = _mm512_setzero_ps(), zero = top;
  for (std::int64_t i = 0; i < D; i += 16) {
    const __m512 x = _mm512_loadu_ps(q + i);
    top = _mm512_max_ps(top, _mm512_abs_ps(x));
    zero = _mm512_add_ps(zero, _mm512_sub_ps(x, x));  // NaN from then on, if x is not finite
  }
  const float largest = _mm512_reduce_max_ps(top);
  factor = largest / 32767 + _mm512_reduce_add_ps(zero);
  if (!(factor > 0)) return;
  const __m512 inverse = _mm512_set1_ps(32767 / largest);
  for (std::int64_t i = 0; i < D; i += 16) {
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q + i), inverse));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i), _mm512_cvtsepi32_epi16(rounded));
  }
}

struct WordQueries {
  const std::int16_t* words;  // [rows, stride]
  std::int64_t stride;
  const float* factors;  // [rows]
};

struct ByteKeys {
  const std::int8_t* first;
  std::int64_t stride, width, count;
  const float* scales;
  const std::int8_t* ahead;  // as many, to be fetched
};

// sum + pairs of x·y. As the intrinsic, but without the copies that GCC 12 makes of the sums.
[[gnu::always_inline, QKV_WORDS_TARGET]] inline __m512i add_products(__m512i sum, __m512i x,
                                                                     __m512i y) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
  return sum;
}

// In each block of four lanes of the result: sums of x0 to x3, in order.
[[gnu::always_inline, QKV_WORDS_TARGET]] inline __m512i add_pairs(__m512i x, __m512i y) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
}

// s[i·s_stride + j] = q_i·k_j. Sums are exact.
template <int rows>
[[gnu::noinline, QKV_WORDS_TARGET]] void word_scores(const WordQueries& q, const ByteKeys& k,
                                                     float* s, std::int64_t s_stride) {
  constexpr int kKeys = 4;
  const std::int64_t whole = k.width / 32 * 32;
  const auto rest = static_cast<__mmask32>((std::uint64_t{1} << (k.width % 32)) - 1);
  for (std::int64_t j = 0; j < k.count; j += kKeys) {
    const std::int64_t keys = std::min<std::int64_t>(kKeys, k.count - j);
    const std::int8_t* key[kKeys];  // fewer than four: the last one again
    HWY_UNROLL(4)
    for (int i = 0; i < kKeys; ++i) {
      key[i] = k.first + (j + std::min<std::int64_t>(i, keys - 1)) * k.stride;
      for (std::int64_t b = 0; b < k.width; b += 64) {
        __builtin_prefetch(k.ahead + (j + i) * k.stride + b, 0, 2);
      }
    }
    __m512i sums[rows][kKeys];
    HWY_UNROLL(4)
    for (int r = 0; r < rows; ++r) {
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; ++i) sums[r][i] = _mm512_setzero_si512();
    }
    for (std::int64_t c = 0; c < k.width; c += 32) {
      __m512i x[kKeys];
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; ++i) {
        const __m256i bytes = c < whole
                                  ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key[i] + c))
                                  : _mm256_maskz_loadu_epi8(rest, key[i] + c);
        x[i] = _mm512_cvtepi8_epi16(bytes);
      }
      HWY_UNROLL(4)
      for (int r = 0; r < rows; ++r) {
        const __m512i words = _mm512_loadu_si512(q.words + r * q.stride + c);
        HWY_UNROLL(4)
        for (int i = 0; i < kKeys; ++i) sums[r][i] = add_products(sums[r][i], x[i], words);
      }
    }
    const auto some = static_cast<__mmask8>((1 << keys) - 1);
    const __m128 scale = _mm_maskz_loadu_ps(some, k.scales + j);
    HWY_UNROLL(4)
    for (int r = 0; r < rows; ++r) {
      const __m512i blocks =
          add_pairs(add_pairs(sums[r][0], sums[r][2]), add_pairs(sums[r][1], sums[r][3]));
      const __m256i half =
          _mm256_add_epi32(_mm512_castsi512_si256(blocks), _mm512_extracti64x4_epi64(blocks, 1));
      const __m128i four =
          _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
      const __m128 factor = _mm_mul_ps(scale, _mm_set1_ps(q.factors[r]));
      const __m128 result = _mm_mul_ps(_mm_cvtepi32_ps(four), factor);
      float* to = s + r * s_stride + j;
      if (keys == kKeys) {
        _mm_storeu_ps(to, result);
      } else {
        _mm_mask_storeu_ps(to, some, result);
      }
    }
  }
}

#endif

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
