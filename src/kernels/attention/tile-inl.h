// The two products of the fused forward, as tiles of accumulators. Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_TILE_INL_H_
#undef QKV_KERNELS_ATTENTION_TILE_INL_H_
#else
#define QKV_KERNELS_ATTENTION_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/attention/ahead.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The tile of accumulators: vectors of queries × rows (keys, or columns of V), chosen so that it
// fills the registers. Wider tiles need fewer loads for each multiplication.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64  // 32 registers
inline constexpr int kMaxVectors = 4;
constexpr int tile_rows(int vectors) {
  return vectors == 4 ? 6 : vectors == 3 ? 8 : vectors == 2 ? 12 : 16;
}
// Queries in a tile whose lanes are columns: enough, and fewer sizes to compile.
constexpr int tile_queries(int vectors) { return vectors == 4 ? 6 : 8; }
#else  // 16 registers
inline constexpr int kMaxVectors = 3;
constexpr int tile_rows(int vectors) { return vectors == 3 ? 4 : vectors == 2 ? 6 : 12; }
constexpr int tile_queries(int vectors) { return vectors == 3 ? 4 : 6; }
#endif

// Keys or values: element (j, i) of key j is data[j·token_stride + i·column_stride], and one of the
// strides is 1: the latter, or the former where the rows are turned.
template <typename Real>
struct TileRows {
  const Real* data;
  std::int64_t token_stride, column_stride;
  bool turned() const { return column_stride != 1; }
  TileRows from(std::int64_t token, std::int64_t column = 0) const {
    return {data + token * token_stride + column * column_stride, token_stride, column_stride};
  }
};

template <class D>
class Tile {
  using Real = hn::TFromD<D>;
  using V = hn::Vec<D>;
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());

 public:
  // Where sums go at the end, if `to` is not null: times the factor of their query, + 0, so that
  // they need not be read again and none is -0. `stride`: from one row of the tile to the next.
  struct Final {
    Real* to = nullptr;
    std::int64_t stride = 0;
    const Real* factors = nullptr;  // from the tile's first query on
    Final from(std::int64_t row, std::int64_t query = 0) const {
      return to == nullptr ? *this : Final{to + row * stride, stride, factors + query};
    }
  };

  // s[j][query] = Σ_i qt[i][query]·k[j][i] for n keys, and the largest of each query. `width`: from
  // one row of qt and of s to the next, which may have more vectors than the QV that are computed.
  // Between tiles, `ahead` goes a step.
  template <int QV>
  static HWY_INLINE void scores(const Real* qt, std::int64_t width, std::int64_t depth,
                                const TileRows<Real>& k, std::int64_t n, Real* s, Real* largest,
                                FusedAhead& ahead) {
    if (k.turned()) {
      scores_of<QV, true>(qt, width, depth, k.data, k.column_stride, n, s, largest, ahead);
    } else {
      scores_of<QV, false>(qt, width, depth, k.data, k.token_stride, n, s, largest, ahead);
    }
  }

  // ot[c][query] += Σ_j p[j][query]·v[j][c] for n keys; `from_zero`: = instead of +=. `width`: of
  // the rows of p and ot.
  template <int QV>
  static HWY_INLINE void weigh(const Real* p, std::int64_t width, const TileRows<Real>& v,
                               std::int64_t n, bool from_zero, std::int64_t columns, Real* ot,
                               const Final& final, FusedAhead& ahead) {
    if (v.turned()) {
      weigh_of<QV, true>(p, width, v.data, v.column_stride, n, from_zero, columns, ot, final,
                         ahead);
    } else {
      weigh_of<QV, false>(p, width, v.data, v.token_stride, n, from_zero, columns, ot, final,
                          ahead);
    }
  }

  // The same sums, bit for bit, where lanes are CV vectors of columns: o[query][c] += …, for as
  // many queries as there are. From one row of v and of o to the next: `stride`, `columns`. Of the
  // queries [i, i + count), some see keys_of(i, count) keys, and none sees more.
  template <int CV, class KeysOf>
  static HWY_NOINLINE void weigh_rows(const Real* p, std::int64_t width, const Real* v,
                                      std::int64_t stride, const KeysOf& keys_of, bool from_zero,
                                      std::int64_t queries, Real* o, std::int64_t columns,
                                      const Final& final, FusedAhead& ahead) {
    // Tiles of about the same size: a small one would wait for its own sums.
    constexpr int kMost = tile_queries(CV);
    const std::int64_t tiles = (queries + kMost - 1) / kMost;
    for (std::int64_t t = 0, i = 0; t < tiles; ++t) {
      const std::int64_t count = queries * (t + 1) / tiles - i;
      weigh_queries<CV>(std::make_integer_sequence<int, kMost>(), count, p + i, width, v, stride,
                        keys_of(i, count), from_zero, o + i * columns, columns, final.from(i, i));
      i += count;
      ahead.step();
    }
  }

 private:
  // 0, made here and now: one that is known beforehand keeps a register throughout the loop before
  // it, and where there are 16 an accumulator then goes through memory.
  static HWY_INLINE V late_zero() {
    const volatile Real zero = 0;
    return hn::Set(d, zero);
  }

  // `stride`: from one row of k to the next, a key's or, if they are turned, a column's.
  template <int QV, bool turned>
  static HWY_NOINLINE void scores_of(const Real* qt, std::int64_t width, std::int64_t depth,
                                     const Real* k, std::int64_t stride, std::int64_t n, Real* s,
                                     Real* largest, FusedAhead& ahead) {
    const std::int64_t step = turned ? 1 : stride;
    constexpr int KR = tile_rows(QV);
    V top[QV];
    HWY_UNROLL(4)
    for (int v = 0; v < QV; ++v) top[v] = hn::Set(d, -std::numeric_limits<Real>::infinity());
    std::int64_t j = 0;
    for (; j + KR <= n; j += KR) {
      score_tile<QV, KR, turned>(qt, width, depth, k + j * step, stride, s + j * width, top);
      ahead.step();
    }
    // What is left goes at once, or by eights and then at once: small tiles wait for their own
    // sums.
    constexpr int kEight = KR < 8 ? KR : 8;
    for (; j + kEight <= n; j += kEight) {
      score_tile<QV, kEight, turned>(qt, width, depth, k + j * step, stride, s + j * width, top);
    }
    score_rest<QV, turned>(std::make_integer_sequence<int, kEight - 1>(), n - j, qt, width, depth,
                           k + j * step, stride, s + j * width, top);
    HWY_UNROLL(4)
    for (int v = 0; v < QV; ++v) hn::StoreU(top[v], d, largest + v * N);
  }

  // The tile of so many keys: one of 1, 2, …, or none.
  template <int QV, bool turned, int... less>
  static HWY_INLINE void score_rest(std::integer_sequence<int, less...>, std::int64_t count,
                                    const Real* qt, std::int64_t width, std::int64_t depth,
                                    const Real* k, std::int64_t stride, Real* s, V* top) {
    ((count == less + 1 ? score_tile<QV, less + 1, turned>(qt, width, depth, k, stride, s, top)
                        : void()),
     ...);
  }

  template <int QV, bool turned>
  static HWY_NOINLINE void weigh_of(const Real* p, std::int64_t width, const Real* v,
                                    std::int64_t stride, std::int64_t n, bool from_zero,
                                    std::int64_t columns, Real* ot, const Final& final,
                                    FusedAhead& ahead) {
    const std::int64_t step = turned ? stride : 1;
    constexpr int DR = tile_rows(QV);
    // From both ends to the middle: a CPU fetches on by the stride that it sees, and behind the
    // last column may lie what another core is writing.
    const std::int64_t tiles = columns / DR, upwards = (tiles + 1) / 2;
    const auto weigh = [&](auto rows, std::int64_t at) HWY_ATTR {
      weigh_tile<QV, decltype(rows)::value, turned>(p, width, v + at * step, stride, n, from_zero,
                                                    ot + at * width, final.from(at));
    };
    const std::integral_constant<int, DR> whole;
    std::int64_t c = tiles * DR;
    if constexpr (DR > 4) {
      for (; c + 4 <= columns; c += 4) weigh(std::integral_constant<int, 4>(), c);
    }
    if (c + 2 <= columns) {
      weigh(std::integral_constant<int, 2>(), c);
      c += 2;
    }
    if (c < columns) weigh(std::integral_constant<int, 1>(), c);
    for (std::int64_t t = tiles; t-- > upwards;) {
      weigh(whole, t * DR);
      ahead.step();
    }
    for (std::int64_t t = 0; t < upwards; ++t) {
      weigh(whole, t * DR);
      ahead.step();
    }
  }

  // The tile of so many queries: one of 1, 2, …
  template <int CV, int... less>
  static HWY_INLINE void weigh_queries(std::integer_sequence<int, less...>, std::int64_t count,
                                       const Real* p, std::int64_t width, const Real* v,
                                       std::int64_t stride, std::int64_t n, bool from_zero, Real* o,
                                       std::int64_t columns, const Final& end) {
    ((count == less + 1
          ? weigh_row_tile<CV, less + 1>(p, width, v, stride, n, from_zero, o, columns, end)
          : void()),
     ...);
  }

  template <int CV, int QR>
  static HWY_INLINE void weigh_row_tile(const Real* HWY_RESTRICT p, std::int64_t width,
                                        const Real* HWY_RESTRICT v, std::int64_t stride,
                                        std::int64_t n, bool from_zero, Real* HWY_RESTRICT o,
                                        std::int64_t columns, const Final& end) {
    V sum[QR][CV];
    HWY_UNROLL(16)
    for (int r = 0; r < QR; ++r) {
      HWY_UNROLL(4)
      for (int c = 0; c < CV; ++c) {
        sum[r][c] = from_zero ? hn::Zero(d) : hn::LoadU(d, o + r * columns + c * N);
      }
    }
    HWY_UNROLL(4)  // few keys, and small tiles, are bound by their instructions
    for (std::int64_t j = 0; j < n; ++j) {
      V value[CV];
      HWY_UNROLL(4)
      for (int c = 0; c < CV; ++c) value[c] = hn::LoadU(d, v + c * N);
      v += stride;
      HWY_UNROLL(16)
      for (int r = 0; r < QR; ++r) {
        const V weight = hn::Set(d, p[r]);
        HWY_UNROLL(4)
        for (int c = 0; c < CV; ++c) sum[r][c] = hn::MulAdd(value[c], weight, sum[r][c]);
      }
      p += width;
    }
    if (end.to == nullptr) {
      HWY_UNROLL(16)
      for (int r = 0; r < QR; ++r) {
        HWY_UNROLL(4)
        for (int c = 0; c < CV; ++c) hn::StoreU(sum[r][c], d, o + r * columns + c * N);
      }
      return;
    }
    const V zero = late_zero();
    HWY_UNROLL(16)
    for (int r = 0; r < QR; ++r) {
      const V factor = hn::Set(d, end.factors[r]);
      HWY_UNROLL(4)
      for (int c = 0; c < CV; ++c) {
        hn::StoreU(hn::MulAdd(sum[r][c], factor, zero), d, end.to + r * end.stride + c * N);
      }
    }
  }

  template <int QV, int KR, bool turned>
  static HWY_INLINE void score_tile(const Real* HWY_RESTRICT qt, std::int64_t width,
                                    std::int64_t depth, const Real* HWY_RESTRICT k,
                                    std::int64_t stride, Real* HWY_RESTRICT s,
                                    V* HWY_RESTRICT largest) {
    V sum[KR][QV];
    HWY_UNROLL(16)
    for (int r = 0; r < KR; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < QV; ++v) sum[r][v] = hn::Zero(d);
    }
    for (std::int64_t i = 0; i < depth; ++i) {
      V q[QV];
      HWY_UNROLL(4)
      for (int v = 0; v < QV; ++v) q[v] = hn::LoadU(d, qt + v * N);
      qt += width;
      HWY_UNROLL(16)
      for (int r = 0; r < KR; ++r) {
        const V key = hn::Set(d, turned ? k[i * stride + r] : k[r * stride + i]);
        HWY_UNROLL(4)
        for (int v = 0; v < QV; ++v) sum[r][v] = hn::MulAdd(key, q[v], sum[r][v]);
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < KR; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < QV; ++v) {
        hn::StoreU(sum[r][v], d, s + r * width + v * N);
        largest[v] = hn::Max(largest[v], sum[r][v]);
      }
    }
  }

  template <int QV, int DR, bool turned>
  static HWY_INLINE void weigh_tile(const Real* HWY_RESTRICT p, std::int64_t width,
                                    const Real* HWY_RESTRICT v, std::int64_t stride, std::int64_t n,
                                    bool from_zero, Real* HWY_RESTRICT ot, const Final& end) {
    V sum[DR][QV];
    HWY_UNROLL(16)
    for (int r = 0; r < DR; ++r) {
      HWY_UNROLL(4)
      for (int q = 0; q < QV; ++q) {
        sum[r][q] = from_zero ? hn::Zero(d) : hn::LoadU(d, ot + r * width + q * N);
      }
    }
    for (std::int64_t j = 0; j < n; ++j) {
      V weight[QV];
      HWY_UNROLL(4)
      for (int q = 0; q < QV; ++q) weight[q] = hn::LoadU(d, p + q * N);
      p += width;
      HWY_UNROLL(16)
      for (int r = 0; r < DR; ++r) {
        const V value = hn::Set(d, turned ? v[r * stride] : v[r]);
        HWY_UNROLL(4)
        for (int q = 0; q < QV; ++q) sum[r][q] = hn::MulAdd(value, weight[q], sum[r][q]);
      }
      v += turned ? 1 : stride;
    }
    if (end.to == nullptr) {
      HWY_UNROLL(16)
      for (int r = 0; r < DR; ++r) {
        HWY_UNROLL(4)
        for (int q = 0; q < QV; ++q) hn::StoreU(sum[r][q], d, ot + r * width + q * N);
      }
      return;
    }
    const V zero = late_zero();
    HWY_UNROLL(4)
    for (int q = 0; q < QV; ++q) {
      const V factor = hn::LoadU(d, end.factors + q * N);
      HWY_UNROLL(16)
      for (int r = 0; r < DR; ++r) {
        hn::StoreU(hn::MulAdd(sum[r][q], factor, zero), d, end.to + r * end.stride + q * N);
      }
    }
  }
};

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
