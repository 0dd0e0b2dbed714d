// Scores of a few queries, at most half a vector of them. Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_FEW_INL_H_
#undef QKV_KERNELS_ATTENTION_FEW_INL_H_
#else
#define QKV_KERNELS_ATTENTION_FEW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/attention/ahead.h"
#include "kernels/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What is left of a sequence's queries after whole vectors leaves most lanes of one more empty: 11
// of 16, for the 197 tokens of a ViT. Their vectors have four keys at a time instead, each in a
// quarter, beside four queries. Eight queries are two such vectors: half as many multiply-adds for
// a key as one vector of 16 takes. Each sum is the same chain as in a tile of scores (tile-inl.h),
// hence the bits. Only AVX-512 has the quarters, and the registers.
template <class D>
struct FewQueries {
  using Real = hn::TFromD<D>;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  static constexpr bool kCan = sizeof(Real) == 4 && hn::MaxLanes(D()) == 16;
#else
  static constexpr bool kCan = false;
#endif
  static constexpr std::int64_t kMost = 8;  // queries
  // Of narrower keys a block of its own costs more than it saves.
  static constexpr std::int64_t kLeastDepth = 64;

  // to[i] = queries 0 to 3 of qt[i], four times, and queries 4 to 7: 32 numbers.
  static void spread(const Real* qt, std::int64_t depth, Real* to);

  // As Tile::scores for one vector: s[j][query] = Σ_i q[i][query]·k[j][i] for n keys, and the
  // largest of each query; `q` is of spread(), k is not turned. From the ninth lane on they are
  // those of the first eight.
  static void scores(const Real* q, std::int64_t depth, const TileRows<Real>& k, std::int64_t n,
                     Real* s, Real* largest, FusedAhead& ahead);
};

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// Of four keys, in a tile: 12 sums, so that none waits for itself.
inline constexpr int kFewGroups = 6;

// A tile's sums: of queries 0 to 3 and 4 to 7, for the four keys of a group.
template <int R>
struct FewSums {
  __m512 low[R], high[R];

  // What eight columns add, or as many as there are; x[r] are theirs of group r, four keys by four
  // columns. q goes on behind them.
  template <bool all>
  HWY_INLINE void add(const float*& q, const __m512 (&x)[R][2], std::int64_t columns) {
    add_four<all, 0>(q, x, columns);
    add_four<all, 1>(q, x, columns);
  }

  template <bool all, int four>
  HWY_INLINE void add_four(const float*& q, const __m512 (&x)[R][2], std::int64_t columns) {
    add_column<all, four, 0>(q, x, columns);
    add_column<all, four, 1>(q, x, columns);
    add_column<all, four, 2>(q, x, columns);
    add_column<all, four, 3>(q, x, columns);
  }

  template <bool all, int four, int column>
  HWY_INLINE void add_column(const float*& q, const __m512 (&x)[R][2], std::int64_t columns) {
    if (!all && four * 4 + column >= columns) return;
    const __m512 q_low = _mm512_loadu_ps(q), q_high = _mm512_loadu_ps(q + 16);
    q += 32;
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      const __m512 key = _mm512_permute_ps(x[r][four], column * 0x55);
      low[r] = _mm512_fmadd_ps(key, q_low, low[r]);
      high[r] = _mm512_fmadd_ps(key, q_high, high[r]);
    }
  }
};

// Eight columns of four rows, four by four: x[c] has columns 4·c to 4·c + 3 of row r in quarter r.
HWY_INLINE void turn_quarters(__m256 a, __m256 b, __m256 c, __m256 e, __m512 (&x)[2]) {
  const __m512 upper = _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1);
  const __m512 lower = _mm512_insertf32x8(_mm512_castps256_ps512(c), e, 1);
  x[0] = _mm512_shuffle_f32x4(upper, lower, 0x88);
  x[1] = _mm512_shuffle_f32x4(upper, lower, 0xdd);
}

// R groups of keys, or as many keys as there are; in place of others, the last one.
template <int R>
HWY_NOINLINE void few_scores_tile(const float* q, std::int64_t depth, const float* k,
                                  std::int64_t stride, std::int64_t keys, float* HWY_RESTRICT s,
                                  __m512& top) {
  FewSums<R> sums;
  const float* row[R][4];
  HWY_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    sums.low[r] = sums.high[r] = _mm512_setzero_ps();
    for (int n = 0; n < 4; ++n)
      row[r][n] = k + std::min<std::int64_t>(4 * r + n, keys - 1) * stride;
  }
  __m512 x[R][2];
  std::int64_t i = 0;
  for (; i + 8 <= depth; i += 8) {
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      turn_quarters(_mm256_loadu_ps(row[r][0] + i), _mm256_loadu_ps(row[r][1] + i),
                    _mm256_loadu_ps(row[r][2] + i), _mm256_loadu_ps(row[r][3] + i), x[r]);
    }
    sums.template add<true>(q, x, 8);
  }
  if (i < depth) {
    const auto in = static_cast<__mmask8>((1 << (depth - i)) - 1);
    HWY_UNROLL(8)
    for (int r = 0; r < R; ++r) {
      turn_quarters(
          _mm256_maskz_loadu_ps(in, row[r][0] + i), _mm256_maskz_loadu_ps(in, row[r][1] + i),
          _mm256_maskz_loadu_ps(in, row[r][2] + i), _mm256_maskz_loadu_ps(in, row[r][3] + i), x[r]);
    }
    sums.template add<false>(q, x, depth - i);
  }
  // A quarter of each, twice: the eight queries of a key.
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 0, 1, 2, 3, 16, 17, 18, 19);
  HWY_UNROLL(8)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int n = 0; n < 4; ++n) {
      if (4 * r + n >= keys) break;
      const __m512i lanes = _mm512_add_epi32(first, _mm512_set1_epi32(4 * n));
      const __m512 scores = _mm512_permutex2var_ps(sums.low[r], lanes, sums.high[r]);
      top = _mm512_max_ps(top, scores);
      _mm512_storeu_ps(s + (4 * r + n) * 16, scores);
    }
  }
}

template <class D>
void FewQueries<D>::spread(const Real* qt, std::int64_t depth, Real* to) {
  for (std::int64_t i = 0; i < depth; ++i, qt += 16, to += 32) {
    _mm512_storeu_ps(to, _mm512_broadcast_f32x4(_mm_loadu_ps(qt)));
    _mm512_storeu_ps(to + 16, _mm512_broadcast_f32x4(_mm_loadu_ps(qt + 4)));
  }
}

template <class D>
void FewQueries<D>::scores(const Real* q, std::int64_t depth, const TileRows<Real>& k,
                           std::int64_t n, Real* s, Real* largest, FusedAhead& ahead) {
  __m512 top = _mm512_set1_ps(-std::numeric_limits<Real>::infinity());
  const auto tile = [&](auto groups, std::int64_t j) HWY_ATTR {
    few_scores_tile<decltype(groups)::value>(q, depth, k.from(j).data, k.token_stride, n - j,
                                             s + j * 16, top);
  };
  std::int64_t j = 0;
  for (; j + 4 * kFewGroups <= n; j += 4 * kFewGroups) {
    tile(std::integral_constant<int, kFewGroups>(), j);
    ahead.step();
  }
  switch ((n - j + 3) / 4) {
    case 0: break;
    case 1: tile(std::integral_constant<int, 1>(), j); break;
    case 2: tile(std::integral_constant<int, 2>(), j); break;
    case 3:
    case 4: tile(std::integral_constant<int, 4>(), j); break;
    default: tile(std::integral_constant<int, kFewGroups>(), j);
  }
  _mm512_storeu_ps(largest, top);
}
#endif

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
