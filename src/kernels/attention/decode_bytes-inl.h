// Scores of int8 keys, and sums of int8 values, by instructions that multiply and add pairs of
// 16-bit words, or four bytes: more than f32 has lanes. Queries and weights are rounded to 24 bits,
// as many as f32 has: a query to a word and a byte, weights to three bytes. Included once for each
// target.

#if defined(QKV_KERNELS_ATTENTION_DECODE_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_DECODE_BYTES_INL_H_
#undef QKV_KERNELS_ATTENTION_DECODE_BYTES_INL_H_
#else
#define QKV_KERNELS_ATTENTION_DECODE_BYTES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

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

// Where a query goes: decode_whole_bytes(D) of each.
struct WordRow {
  std::int16_t* words;
  std::uint8_t* bytes;
  float* factor;
};

// q_i ≈ (words[i] + bytes[i] / 256)·factor; q is padded. A query with Inf or NaN gets zeros and a
// factor of NaN.
[[QKV_WORDS_TARGET]] inline void to_words(const float* q, std::int64_t D, const WordRow& to) {
  std::fill_n(to.words, decode_whole_bytes(D), std::int16_t{0});
  std::fill_n(to.bytes, decode_whole_bytes(D), std::uint8_t{0});
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
// Keys of 64·lines bytes, or of any width.
template <int rows, int lines>
[[gnu::noinline, QKV_WORDS_TARGET]] void word_scores_of(const WordQueries& q, const ByteKeys& k,
                                                        float* s, std::int64_t s_stride) {
  constexpr int kKeys = 4;
  const std::int64_t width = lines > 0 ? lines * 64 : k.width;
  const std::int64_t whole = width / 64 * 64, whole_half = width / 32 * 32;
  const auto rest = static_cast<__mmask64>((std::uint64_t{1} << (width % 64)) - 1);
  const auto rest_half = static_cast<__mmask32>((std::uint64_t{1} << (width % 32)) - 1);
  for (std::int64_t j = 0; j < k.count; j += kKeys) {
    const std::int64_t keys = std::min<std::int64_t>(kKeys, k.count - j);
    const std::int8_t* key[kKeys];  // fewer than four: the last one again
    HWY_UNROLL(4)
    for (int i = 0; i < kKeys; ++i) {
      key[i] = k.first + (j + std::min<std::int64_t>(i, keys - 1)) * k.stride;
      for (std::int64_t b = 0; b < width; b += 64) {
        __builtin_prefetch(k.ahead + (j + i) * k.stride + b, 0, 2);
      }
    }
    __m512i sums[rows][kKeys];
    HWY_UNROLL(4)
    for (int r = 0; r < rows; ++r) {
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; ++i) sums[r][i] = _mm512_set1_epi32(128);  // half of 256
    }
    HWY_UNROLL(2)
    for (std::int64_t c = 0; c < width; c += 64) {
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
    HWY_UNROLL(4)
    for (std::int64_t c = 0; c < width; c += 32) {
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

template <int rows>
HWY_INLINE void word_scores(const WordQueries& q, const ByteKeys& k, float* s,
                            std::int64_t s_stride) {
  if (k.width == 64) return word_scores_of<rows, 1>(q, k, s, s_stride);
  if (k.width == 128) return word_scores_of<rows, 2>(q, k, s, s_stride);
  word_scores_of<rows, 0>(q, k, s, s_stride);
}

// The number beside which weights, none below 0, are rounded to 24 bits: the largest of `count`, a
// multiple of 16, but at most a 64th of their sum. What is above it, about 63 at most, is heavy and
// stays f32; if 2048 light ones are all rounded the same way, that is 2^-25·2048 / 64 = 2^-20 of
// the sum, beside f32's own roundings. 0 if there is Inf or NaN, or next to nothing.
[[gnu::noinline, QKV_WORDS_TARGET]] inline float heaviest_light(const float* weights,
                                                                std::int64_t count) {
  // As whole numbers without a sign they have the same order, with Inf and NaN above all others.
  __m512i top = _mm512_setzero_si512();
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < count; j += 16) {
    const __m512 w = _mm512_loadu_ps(weights + j);
    top = _mm512_max_epu32(top, _mm512_castps_si512(w));
    sum = _mm512_add_ps(sum, w);
  }
  const float largest = std::bit_cast<float>(_mm512_reduce_max_epu32(top));
  if (!(largest > 0x1p-80f && largest < 0x1p100f)) return 0;
  return std::min(largest, _mm512_reduce_add_ps(sum) * 0x1p-6f);
}

// Weights up to `largest`, `count` of them, become bytes where they lie: in the place of each four,
// the highest bytes of the four, the middle ones, the lowest ones, and four of nothing.
// Returns a factor: weight = (2^16·highest + 2^8·middle + lowest)·factor.
[[gnu::noinline, QKV_WORDS_TARGET]] inline float to_planes(float* weights, std::int64_t count,
                                                           float largest) {
  constexpr float kMost = 0xfffff0p0f;  // so that what is rounded up still fits into 24 bits
  const __m512 factor = _mm512_set1_ps(kMost / largest);
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, 3, 7, 11, 15));
  for (std::int64_t j = 0; j < count; j += 16) {
    const __m512i w = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(weights + j), factor));
    _mm512_storeu_si512(weights + j, _mm512_shuffle_epi8(w, order));
  }
  return largest / kMost;
}

struct ByteValues {
  const std::int8_t* first;
  std::int64_t stride, width, count;
  const std::int8_t* ahead;  // as many, to be fetched
};

// The weights of these values, as to_planes left them: of row r at first[r·stride].
struct PlaneWeights {
  const float* first;
  std::int64_t stride;
};

// sums += weights·values for 64 columns, or for one half of them, in the order in which bytes of
// four rows interleave: four of each sixteen columns in each sixteen sums. A multiple of four keys.
// `sums` of the first row; returns what to fetch next.
template <int rows, int first, int halves, bool whole>
[[gnu::always_inline, QKV_WORDS_TARGET]] inline const std::int8_t* add_columns(
    const PlaneWeights& weights, const ByteValues& v, std::int64_t column, std::int32_t* sums,
    const std::int8_t* ahead) {
  constexpr int vectors = 2 * halves;
  const auto rest = static_cast<__mmask64>((std::uint64_t{1} << (v.width % 64)) - 1);
  const std::int64_t plane = decode_whole_bytes(v.width);
  std::int32_t* at = sums + column + first * 32;
  __m512i sum[rows][3][vectors];
  HWY_UNROLL(4)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(3)
    for (int p = 0; p < 3; ++p) {
      HWY_UNROLL(4)
      for (int c = 0; c < vectors; ++c) {
        sum[r][p][c] = _mm512_loadu_si512(at + (r * 3 + p) * plane + c * 16);
      }
    }
  }
  for (std::int64_t j = 0; j < v.count; j += 4) {
    HWY_UNROLL(4)
    for (int i = 0; i < vectors; ++i, ahead += 64) __builtin_prefetch(ahead, 0, 2);
    __m512i x[4], y[vectors];
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const std::int8_t* value = v.first + (j + i) * v.stride + column;
      x[i] = whole ? _mm512_loadu_si512(value) : _mm512_maskz_loadu_epi8(rest, value);
    }
    HWY_UNROLL(2)
    for (int h = 0; h < halves; ++h) {
      const bool low = first + h == 0;
      const __m512i x01 = low ? _mm512_unpacklo_epi8(x[0], x[1]) : _mm512_unpackhi_epi8(x[0], x[1]);
      const __m512i x23 = low ? _mm512_unpacklo_epi8(x[2], x[3]) : _mm512_unpackhi_epi8(x[2], x[3]);
      y[2 * h] = _mm512_unpacklo_epi16(x01, x23);
      y[2 * h + 1] = _mm512_unpackhi_epi16(x01, x23);
    }
    HWY_UNROLL(4)
    for (int r = 0; r < rows; ++r) {
      HWY_UNROLL(3)
      for (int p = 0; p < 3; ++p) {
        std::int32_t four;
        std::memcpy(&four, weights.first + r * weights.stride + j + p, 4);
        const __m512i all = _mm512_set1_epi32(four);
        HWY_UNROLL(4)
        for (int c = 0; c < vectors; ++c) sum[r][p][c] = add_bytes(sum[r][p][c], all, y[c]);
      }
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(3)
    for (int p = 0; p < 3; ++p) {
      HWY_UNROLL(4)
      for (int c = 0; c < vectors; ++c) {
        _mm512_storeu_si512(at + (r * 3 + p) * plane + c * 16, sum[r][p][c]);
      }
    }
  }
  return ahead;
}

template <int rows, bool whole>
[[gnu::always_inline, QKV_WORDS_TARGET]] inline const std::int8_t* add_64_columns(
    const PlaneWeights& weights, const ByteValues& v, std::int64_t column, std::int32_t* sums,
    const std::int8_t* ahead) {
  if constexpr (rows <= 2) {  // whose sums fit into registers
    return add_columns<rows, 0, 2, whole>(weights, v, column, sums, ahead);
  } else {
    ahead = add_columns<rows, 0, 1, whole>(weights, v, column, sums, ahead);
    return add_columns<rows, 1, 1, whole>(weights, v, column, sums, ahead);
  }
}

// sums += weights·values, for `rows` rows and a multiple of four keys. Exact: not even the order
// matters.
static_assert(kDecodeChunkMost * 255 * 128 <= INT32_MAX);
template <int rows>
[[gnu::noinline, QKV_WORDS_TARGET]] void add_fours(const PlaneWeights& weights, const ByteValues& v,
                                                   std::int32_t* sums) {
  const std::int8_t* ahead = v.ahead;
  std::int64_t c = 0;
  for (; c + 64 <= v.width; c += 64) {
    ahead = add_64_columns<rows, true>(weights, v, c, sums, ahead);
  }
  if (c < v.width) add_64_columns<rows, false>(weights, v, c, sums, ahead);
}

// The same for up to three keys of a four, from the `at`-th on: for four of which others weigh
// nothing. `weights` are the four's.
template <int rows>
[[gnu::noinline]] void add_some(const PlaneWeights& weights, std::int64_t at, const ByteValues& v,
                                std::int32_t* sums) {
  std::int8_t values[4 * kDecodeIntegersMost] = {};
  float planes[4 * rows];
  std::array<std::uint8_t, 16> four{};
  for (std::int64_t j = 0; j < v.count; ++j) {
    std::copy_n(v.first + j * v.stride, v.width, values + (at + j) * v.width);
  }
  for (int r = 0; r < rows; ++r) {
    std::memcpy(four.data(), weights.first + r * weights.stride, 16);
    for (std::int64_t b = 0; b < 16; ++b) {
      if (b % 4 < at || b % 4 >= at + v.count) four[static_cast<std::size_t>(b)] = 0;
    }
    std::memcpy(planes + std::ptrdiff_t{4} * r, four.data(), 16);
  }
  add_fours<rows>({planes, 4}, {values, v.width, v.width, 4, values}, sums);
}

// The same for any keys, of which the first is the `begin`-th of the chunk, as `weights` are.
template <int rows>
HWY_INLINE void add_values(const PlaneWeights& weights, std::int64_t begin, const ByteValues& v,
                           std::int32_t* sums) {
  const std::int64_t end = begin + v.count;
  for (std::int64_t j = begin; j < end;) {
    const std::int64_t four = j / 4 * 4;
    std::int64_t next = std::min(four + 4, end);
    const bool whole = j == four && next == four + 4;
    if (whole) next = end / 4 * 4;
    const PlaneWeights w{weights.first + four, weights.stride};
    const ByteValues some{v.first + (j - begin) * v.stride, v.stride, v.width, next - j,
                          v.ahead + (j - begin) * v.stride};
    if (whole) {
      add_fours<rows>(w, some, sums);
    } else {
      add_some<rows>(w, j - four, some, sums);
    }
    j = next;
  }
}

// to[i] += what the sums of a row stand for; padded.
[[gnu::noinline, QKV_WORDS_TARGET]] inline void add_sums(const std::int32_t* sums,
                                                         std::int64_t width, float factor,
                                                         float* to) {
  const std::int64_t plane = decode_whole_bytes(width);
  for (std::int64_t n = 0; n < plane; n += 16) {
    __m512 all = _mm512_setzero_ps();
    for (int p = 0; p < 3; ++p) {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(sums + p * plane + n));
      all = _mm512_fmadd_ps(all, _mm512_set1_ps(256), sum);
    }
    // The n/16-th vector of 64 columns has the n/16-th four of each sixteen.
    alignas(64) float x[16];
    _mm512_store_ps(x, _mm512_mul_ps(all, _mm512_set1_ps(factor)));
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t column = n / 64 * 64 + i * 16 + n % 64 / 4;
      if (column >= decode_padded(width)) continue;
      _mm_storeu_ps(to + column, _mm_add_ps(_mm_loadu_ps(to + column), _mm_load_ps(x + 4 * i)));
    }
  }
}

#undef QKV_WORDS_TARGET
#endif

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
