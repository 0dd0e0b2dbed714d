// Scores of int8 keys by instructions that multiply and add pairs of 16-bit words, or four bytes:
// more than f32 has lanes. The query is rounded to 24 bits, as many as f32 has: a word and a byte.
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

// Where a query goes: decode_words(D) of each.
struct WordRow {
  std::int16_t* words;
  std::uint8_t* bytes;
  float* factor;
};

// q_i ≈ (words[i] + bytes[i] / 256)·factor; q is padded. A query with Inf or NaN gets zeros and a
// factor of NaN.
[[QKV_WORDS_TARGET]] inline void to_words(const float* q, std::int64_t D, const WordRow& to) {
  std::fill_n(to.words, decode_words(D), std::int16_t{0});
  std::fill_n(to.bytes, decode_words(D), std::uint8_t{0});
  __m512 top = _mm512_setzero_ps(), zero = top;
  for (std::int64_t i = 0; i < D; i += 16) {
    const __m512 x = _mm512_loadu_ps(q + i);
    top = _mm512_max_ps(top, _mm512_abs_ps(x));
    zero = _mm512_add_ps(zero, _mm512_sub_ps(x, x));  // NaN from then on, if x is not finite
  }
  // A little less than 2^23, so that what is rounded up still fits. Over a very small number it
  // would be infinite.
  constexpr float kMost = 0x7ffff0p0f;
  const float up = _mm512_reduce_max_ps(top) < 0x1p-64f ? 0x1p64f : 1.0f;
  const float largest = _mm512_reduce_max_ps(top) * up;
  *to.factor = largest / (kMost / 256) / up + _mm512_reduce_add_ps(zero);
  if (!(largest > 0) || *to.factor != *to.factor) return;
  const __m512 factor = _mm512_set1_ps(kMost / largest), ups = _mm512_set1_ps(up);
  for (std::int64_t i = 0; i < D; i += 16) {
    const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(q + i), ups);
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(x, factor));
    const __m512i word = _mm512_srai_epi32(rounded, 8);
    const __m512i byte = _mm512_and_si512(rounded, _mm512_set1_epi32(255));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.words + i), _mm512_cvtepi32_epi16(word));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to.bytes + i), _mm512_cvtepi32_epi8(byte));
  }
}

// Queries, `stride` numbers from one to the next.
struct WordQueries {
  const std::int16_t* words;
  const std::uint8_t* bytes;
  std::int64_t stride;
  const float* factors;
};

struct ByteKeys {
  const std::int8_t* first;
  std::int64_t stride, width, count;
  const float* scales;
  const std::int8_t* ahead;  // as many, to be fetched
};

// sum + pairs of x·y, and sum + fours of bytes. As the intrinsics, but without the copies that
// GCC 12 makes of the sums.
[[gnu::always_inline, QKV_WORDS_TARGET]] inline __m512i add_words(__m512i sum, __m512i x,
                                                                  __m512i y) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
  return sum;
}
[[gnu::always_inline, QKV_WORDS_TARGET]] inline __m512i add_bytes(__m512i sum, __m512i unsigned_x,
                                                                  __m512i y) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_x), "v"(y));
  return sum;
}

// Of two pairs in each block of four lanes: (x0+x2, y0+y2, x1+x3, y1+y3).
[[gnu::always_inline, QKV_WORDS_TARGET]] inline __m512i add_halves(__m512i x, __m512i y) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(x, y), _mm512_unpackhi_epi32(x, y));
}

// s[i·s_stride + j] = q_i·k_j. Sums are exact, but that what the bytes give is rounded to words.
template <int rows>
[[gnu::noinline, QKV_WORDS_TARGET]] void word_scores(const WordQueries& q, const ByteKeys& k,
                                                     float* s, std::int64_t s_stride) {
  constexpr int kKeys = 4;
  const std::int64_t whole = k.width / 64 * 64, whole_half = k.width / 32 * 32;
  const auto rest = static_cast<__mmask64>((std::uint64_t{1} << (k.width % 64)) - 1);
  const auto rest_half = static_cast<__mmask32>((std::uint64_t{1} << (k.width % 32)) - 1);
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
      for (int i = 0; i < kKeys; ++i) sums[r][i] = _mm512_set1_epi32(128);  // half of 256
    }
    for (std::int64_t c = 0; c < k.width; c += 64) {
      __m512i x[kKeys];
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; ++i) {
        x[i] =
            c < whole ? _mm512_loadu_si512(key[i] + c) : _mm512_maskz_loadu_epi8(rest, key[i] + c);
      }
      HWY_UNROLL(4)
      for (int r = 0; r < rows; ++r) {
        const __m512i bytes = _mm512_loadu_si512(q.bytes + r * q.stride + c);
        HWY_UNROLL(4)
        for (int i = 0; i < kKeys; ++i) sums[r][i] = add_bytes(sums[r][i], bytes, x[i]);
      }
    }
    HWY_UNROLL(4)
    for (int r = 0; r < rows; ++r) {
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; ++i) sums[r][i] = _mm512_srai_epi32(sums[r][i], 8);
    }
    for (std::int64_t c = 0; c < k.width; c += 32) {
      __m512i x[kKeys];
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; ++i) {
        const __m256i bytes = c < whole_half
                                  ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key[i] + c))
                                  : _mm256_maskz_loadu_epi8(rest_half, key[i] + c);
        x[i] = _mm512_cvtepi8_epi16(bytes);
      }
      HWY_UNROLL(4)
      for (int r = 0; r < rows; ++r) {
        const __m512i words = _mm512_loadu_si512(q.words + r * q.stride + c);
        HWY_UNROLL(4)
        for (int i = 0; i < kKeys; ++i) sums[r][i] = add_words(sums[r][i], x[i], words);
      }
    }
    const auto some = static_cast<__mmask8>((1 << keys) - 1);
    const __m128 scale = _mm_maskz_loadu_ps(some, k.scales + j);
    HWY_UNROLL(4)
    for (int r = 0; r < rows; ++r) {
      const __m512i blocks =
          add_halves(add_halves(sums[r][0], sums[r][2]), add_halves(sums[r][1], sums[r][3]));
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

#undef QKV_WORDS_TARGET
#endif

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
