// The loops of decode.h, once for each SIMD target.

#if defined(QKV_KERNELS_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_DECODE_INL_H_
#undef QKV_KERNELS_ATTENTION_DECODE_INL_H_
#else
#define QKV_KERNELS_ATTENTION_DECODE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/element.h"
#include "kernels/attention/decode.h"
#include "kernels/cache/store.h"
#include "kernels/simd/exp-inl.h"
#include "kernels/simd/matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of f32 out of numbers of type T.
template <typename T>
struct DecodeLoad {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());

  static HWY_INLINE V full(const T* from) {
    if constexpr (std::is_same_v<T, float>) {
      return hn::LoadU(d, from);
    } else if constexpr (std::is_same_v<T, std::int8_t>) {
      const hn::Rebind<std::int8_t, D> d8;
      const hn::Rebind<std::int32_t, D> d32;
      return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, from)));
    } else if constexpr (std::is_same_v<T, bf16> || kConvertsF16) {
      using Half = std::conditional_t<std::is_same_v<T, f16>, hwy::float16_t, hwy::bfloat16_t>;
      const hn::Rebind<std::uint16_t, D> du;
      const hn::Rebind<Half, D> dh;
      const auto bits = hn::LoadU(du, reinterpret_cast<const std::uint16_t*>(from));
      return hn::PromoteTo(d, hn::BitCast(dh, bits));
    } else {
      return some(from, N);
    }
  }

  // The first n < N, zeros behind; nothing behind them is read.
  static HWY_INLINE V some(const T* from, std::int64_t n) {
    HWY_ALIGN float row[N];
    for (std::int64_t i = 0; i < N; ++i) row[i] = i < n ? static_cast<float>(from[i]) : 0.0f;
    return hn::Load(d, row);
  }
};

template <typename T>
class Decode {
  using Load = DecodeLoad<T>;
  using D = typename Load::D;
  using V = typename Load::V;
  static constexpr D d{};
  static constexpr std::int64_t N = Load::N;
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64  // 32 registers
  static constexpr int kRows = 4;
  static constexpr int columns_of(int rows) { return rows > 2 ? 4 : 8; }
#else
  static constexpr int kRows = 2;
  static constexpr int columns_of(int rows) { return rows == 1 ? 6 : 4; }
#endif
  static constexpr int kKeys = 4;           // whose sums are added up together
  static constexpr std::int64_t kFew = 16;  // keys that lie in one page, as a rule
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

 public:
  explicit Decode(const DecodeUnit& unit) : u_(unit), padded_(decode_padded(unit.D)) {}

  void run() {
    for (std::int64_t r = 0; r < u_.rows; ++r) {
      std::fill_n(out(r), decode_padded(u_.Dv), 0.0f);
      max(r) = -kInfinity;
      sum(r) = 0;
    }
    if (u_.runs.empty()) return;
    const std::int64_t begin = u_.runs.front().begin, end = u_.runs.back().end;
    first_ = 0;
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t next = std::min(end, (at / kDecodeBlock + 1) * kDecodeBlock);
      block({at, next});
      at = next;
    }
  }

 private:
  float* out(std::int64_t r) const { return u_.partial + r * decode_partial(u_.Dv); }
  float& max(std::int64_t r) const { return out(r)[decode_padded(u_.Dv)]; }
  float& sum(std::int64_t r) const { return out(r)[decode_padded(u_.Dv) + 1]; }
  float* scores(std::int64_t r) const { return u_.scores + r * kDecodeBlock; }

  KeyRange seen(std::int64_t r, KeyRange block) const {
    return {std::max(block.begin, u_.visible[r].begin), std::min(block.end, u_.visible[r].end)};
  }

  // fn(rows, first row, keys) for rows that see the same keys of the block, up to kRows together.
  template <class Fn>
  HWY_INLINE void for_rows(KeyRange block, const Fn& fn) const {
    for (std::int64_t r = 0; r < u_.rows;) {
      const KeyRange keys = seen(r, block);
      std::int64_t same = 1;
      while (same < kRows && r + same < u_.rows) {
        const KeyRange other = seen(r + same, block);
        if (other.begin != keys.begin || other.end != keys.end) break;
        ++same;
      }
      if (keys.begin < keys.end) fn(same, r, keys);
      r += same;
    }
  }

  // fn(run, keys of it) for the runs that have some of these keys.
  template <class Fn>
  HWY_INLINE void for_runs(KeyRange keys, const Fn& fn) const {
    for (std::size_t n = first_; n < u_.runs.size() && u_.runs[n].begin < keys.end; ++n) {
      const DecodeRun& run = u_.runs[n];
      const KeyRange part{std::max(keys.begin, run.begin), std::min(keys.end, run.end)};
      if (part.begin < part.end) fn(run, part);
    }
  }

  HWY_INLINE void block(KeyRange block) {
    while (u_.runs[first_].end <= block.begin) ++first_;
    for_rows(block, [&](std::int64_t rows, std::int64_t r, KeyRange keys) {
      for_runs(keys, [&](const DecodeRun& run, KeyRange part) {
        if (rows == 1) return score<1>(run, part, r, keys.begin);
        if constexpr (kRows > 2) {
          if (rows == 4) return score<4>(run, part, r, keys.begin);
          if (rows == 3) return score<3>(run, part, r, keys.begin);
        }
        score<2>(run, part, r, keys.begin);
      });
    });
    for (std::int64_t r = 0; r < u_.rows; ++r) {
      const KeyRange keys = seen(r, block);
      if (keys.begin < keys.end) softmax(r, keys);
    }
    for_rows(block, [&](std::int64_t rows, std::int64_t r, KeyRange keys) {
      for_runs(keys, [&](const DecodeRun& run, KeyRange part) {
        if (rows == 1) return weigh<1>(run, part, r, keys.begin);
        if constexpr (kRows > 2) {
          if (rows == 4) return weigh<4>(run, part, r, keys.begin);
          if (rows == 3) return weigh<3>(run, part, r, keys.begin);
        }
        weigh<2>(run, part, r, keys.begin);
      });
    });
  }

  // How many keys of so many numbers are fetched ahead of those at hand: further ahead than this is
  // slower where memory is fast, nearer where it is slow.
  static HWY_INLINE std::int64_t keys_ahead(std::int64_t width) {
    constexpr std::int64_t kBytes = 8 << 10;
    const std::int64_t keys = kBytes / (width * static_cast<std::int64_t>(sizeof(T)));
    return (keys + kFew - 1) / kFew * kFew + (keys == 0 ? kFew : 0);
  }

  // Asks for `width` numbers that will be needed when keys_ahead() keys have gone past. Into
  // the second level of cache: the first one has too few lines on their way at a time, and asking
  // it for more made the whole kernel wait (by a third).
  static HWY_INLINE void fetch(const T* ahead, std::int64_t width) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(ahead);
    const std::int64_t count = width * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t b = 0; b < count; b += 64) __builtin_prefetch(bytes + b, 0, 2);
  }

  // The rows of `at`, wherever they lie: what to fetch while others are worked on. Past the end of
  // the chunk there is nothing to fetch, and the addresses do no harm.
  struct Rows {
    const T *key, *value;
  };
  HWY_INLINE Rows rows_at(std::int64_t at, const DecodeRun& from) const {
    const DecodeRun* run = &from;
    const DecodeRun* last = &u_.runs.back();
    while (at >= run->end && run != last) ++run;
    const std::int64_t n = std::min(at, run->end - 1) - run->begin;
    return {static_cast<const T*>(run->key) + n * u_.key_stride,
            static_cast<const T*>(run->value) + n * u_.value_stride};
  }

  // scores(r)[j - origin] = q_r·k_j for `rows` rows from r on.
  template <int rows>
  HWY_NOINLINE void score(const DecodeRun& run, KeyRange keys, std::int64_t r,
                          std::int64_t origin) const {
    const T* k = static_cast<const T*>(run.key) + (keys.begin - run.begin) * u_.key_stride;
    float* s = scores(r) + (keys.begin - origin);
    const float* scale = scale_at(run.key_scale, keys.begin - run.begin);
    const std::int64_t count = keys.end - keys.begin;
    const std::int64_t distance = keys_ahead(u_.D);
    const T* ahead = nullptr;
    std::int64_t j = 0;
    for (; j + kKeys <= count; j += kKeys) {
      if (j % kFew == 0) ahead = rows_at(keys.begin + j + distance, run).key;
      for (int i = 0; i < kKeys; ++i, ahead += u_.key_stride) fetch(ahead, u_.D);
      score_keys<rows>(k + j * u_.key_stride, r, kKeys, scale_at(scale, j), s + j);
    }
    if (j < count) {
      score_keys<rows>(k + j * u_.key_stride, r, count - j, scale_at(scale, j), s + j);
    }
  }

  template <int rows>
  HWY_INLINE void score_keys(const T* k, std::int64_t r, std::int64_t count, const float* scale,
                             float* s) const {
    // Fewer than four keys: the last one again, so that sums are added up as always.
    const T* key[kKeys];
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) {
      key[j] = k + std::min<std::int64_t>(j, count - 1) * u_.key_stride;
    }
    V sums[rows][kKeys];
    HWY_UNROLL(4)
    for (int i = 0; i < rows; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kKeys; ++j) sums[i][j] = hn::Zero(d);
    }
    const float* q = u_.query + r * padded_;
    std::int64_t c = 0;
    for (; c + N <= u_.D; c += N) {
      V x[kKeys];
      HWY_UNROLL(4)
      for (int j = 0; j < kKeys; ++j) x[j] = Load::full(key[j] + c);
      multiply<rows>(q + c, x, sums);
    }
    if (c < u_.D) {
      V x[kKeys];
      HWY_UNROLL(4)
      for (int j = 0; j < kKeys; ++j) x[j] = Load::some(key[j] + c, u_.D - c);
      multiply<rows>(q + c, x, sums);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < rows; ++i) {
      HWY_ALIGN float four[kKeys];
      add_up(sums[i], four);
      for (std::int64_t j = 0; j < count; ++j) {
        s[i * kDecodeBlock + j] = std::is_same_v<T, std::int8_t> ? four[j] * scale[j] : four[j];
      }
    }
  }

  template <int rows>
  HWY_INLINE void multiply(const float* q, const V (&x)[kKeys], V (&sums)[rows][kKeys]) const {
    HWY_UNROLL(4)
    for (int i = 0; i < rows; ++i) {
      const V qi = hn::LoadU(d, q + i * padded_);
      HWY_UNROLL(4)
      for (int j = 0; j < kKeys; ++j) sums[i][j] = hn::MulAdd(x[j], qi, sums[i][j]);
    }
  }

  // four[j] = the sum of all lanes of x[j].
  static HWY_INLINE void add_up(const V (&x)[kKeys], float* four) {
#if HWY_TARGET == HWY_SCALAR
    for (int j = 0; j < kKeys; ++j) four[j] = hn::GetLane(x[j]);
#else
    const auto pair = [](V a, V b) {
      return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
    };
    // In each 128-bit block: a sum of each of the four, in order.
    const V blocks = pair(pair(x[0], x[2]), pair(x[1], x[3]));
    hn::Store(fold(blocks), hn::FixedTag<float, 4>(), four);
#endif
  }
#if HWY_TARGET != HWY_SCALAR
  template <class Vec>
  static HWY_INLINE auto fold(Vec x) {
    const hn::DFromV<Vec> dx;
    if constexpr (hn::MaxLanes(hn::DFromV<Vec>()) > 4) {
      const hn::Half<decltype(dx)> half;
      return fold(hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
    } else {
      return x;
    }
  }
#endif

  // Scores of a row become weights; its maximum, sum and output follow.
  HWY_NOINLINE void softmax(std::int64_t r, KeyRange keys) const {
    float* s = scores(r);
    const std::int64_t count = keys.end - keys.begin;
    // Whole vectors: what is behind the last key weighs nothing.
    for (std::int64_t j = count; j % N != 0; ++j) s[j] = -kInfinity;
    if (u_.softcap > 0 || u_.slopes != nullptr) adjust(r, keys);
    V top = hn::LoadU(d, s);
    for (std::int64_t j = N; j < count; j += N) top = hn::Max(top, hn::LoadU(d, s + j));
    const float largest = hn::GetLane(hn::MaxOfLanes(d, top));
    constexpr float kMuch = 8;  // less does not overflow, and is left to the division at the end
    if (largest > max(r) + kMuch || max(r) == -kInfinity) raise(r, largest);
    const V m = hn::Set(d, max(r));
    V total = hn::Zero(d);
    for (std::int64_t j = 0; j < count; j += N) {
      const V p = exp2_or_zero(d, hn::Sub(hn::LoadU(d, s + j), m));
      total = hn::Add(total, p);
      hn::StoreU(p, d, s + j);
    }
    sum(r) += hn::GetLane(hn::SumOfLanes(d, total));
    if constexpr (std::is_same_v<T, std::int8_t>) {
      for_runs(keys, [&](const DecodeRun& run, KeyRange part) {
        const float* scale = run.value_scale + (part.begin - run.begin);
        float* w = s + (part.begin - keys.begin);
        std::int64_t j = 0;
        for (; j + N <= part.end - part.begin; j += N) {
          hn::StoreU(hn::Mul(hn::LoadU(d, w + j), hn::LoadU(d, scale + j)), d, w + j);
        }
        for (; j < part.end - part.begin; ++j) w[j] *= scale[j];
      });
    }
  }

  void raise(std::int64_t r, float largest) const {
    const V old = hn::Set(d, max(r) - largest);
    const V factor = max(r) == -kInfinity ? hn::Zero(d) : exp2_or_zero(d, old);
    for (std::int64_t c = 0; c < u_.Dv; c += N) {
      hn::StoreU(hn::Mul(hn::LoadU(d, out(r) + c), factor), d, out(r) + c);
    }
    sum(r) *= hn::GetLane(factor);
    max(r) = largest;
  }

  // Softcap and ALiBi.
  void adjust(std::int64_t r, KeyRange keys) const {
    float* s = scores(r);
    const V cap = hn::Set(d, u_.softcap);
    const std::int64_t distance = u_.slopes != nullptr ? keys.begin - u_.positions[r] : 0;
    const V slope = hn::Set(d, u_.slopes != nullptr ? u_.slopes[r] : 0.0f);
    V away = hn::Add(hn::Set(d, static_cast<float>(distance)), hn::Iota(d, 0));
    for (std::int64_t j = 0; j < keys.end - keys.begin; j += N) {
      V x = hn::LoadU(d, s + j);
      if (u_.softcap > 0) {
        // tanh(-inf) would bring back what is behind the last key.
        const auto there = hn::Gt(x, hn::Set(d, -kInfinity));
        const V capped = hn::Mul(cap, tanh(d, x));
        x = hn::IfThenElse(hn::Or(there, hn::Ne(x, x)), capped, x);
      }
      x = hn::NegMulAdd(slope, hn::Abs(away), x);
      away = hn::Add(away, hn::Set(d, static_cast<float>(N)));
      hn::StoreU(x, d, s + j);
    }
  }

  // out(r) += Σ_j p_j·v_j for `rows` rows from r on.
  template <int rows>
  HWY_NOINLINE void weigh(const DecodeRun& run, KeyRange keys, std::int64_t r,
                          std::int64_t origin) const {
    const T* v = static_cast<const T*>(run.value) + (keys.begin - run.begin) * u_.value_stride;
    const float* p = scores(r) + (keys.begin - origin);
    const std::int64_t count = keys.end - keys.begin;
    const std::int64_t distance = keys_ahead(u_.Dv);
    // A few keys for all columns and rows, then the next few: memory is read in the order in which
    // it lies. All keys for some columns, then for others, took up to a quarter more time.
    // (What has to be widened is bound by that, and goes on longer.)
    constexpr std::int64_t kStep = std::is_same_v<T, float> ? kFew : kDecodeBlock;
    for (std::int64_t j = 0; j < count; j += kStep) {
      const T* from = v + j * u_.value_stride;
      const T* next = rows_at(keys.begin + j + distance, run).value;
      const std::int64_t few = std::min(kStep, count - j);
      // What has to be widened first is loaded once for all rows; f32 in whole lines, row by row.
      constexpr int first = std::is_same_v<T, float> ? std::min(rows, 2) : rows;
      weigh_few<first, true>(from, next, p + j, few, out(r));
      if constexpr (rows > first) {
        weigh_few<rows - first, false>(from, next, p + j + first * kDecodeBlock, few,
                                       out(r + first));
      }
    }
  }

  template <int rows, bool fetches>
  HWY_INLINE void weigh_few(const T* v, const T* ahead, const float* p, std::int64_t count,
                            float* o) const {
    constexpr int wide = columns_of(rows);
    std::int64_t c = 0;
    for (; c + wide * N <= u_.Dv; c += wide * N)
      weigh_columns<rows, wide, fetches>(v + c, ahead + c, p, count, o + c);
    for (; wide > 4 && c + 4 * N <= u_.Dv; c += 4 * N)
      weigh_columns<rows, 4, fetches>(v + c, ahead + c, p, count, o + c);
    for (; c + 2 * N <= u_.Dv; c += 2 * N)
      weigh_columns<rows, 2, fetches>(v + c, ahead + c, p, count, o + c);
    for (; c + N <= u_.Dv; c += N)
      weigh_columns<rows, 1, fetches>(v + c, ahead + c, p, count, o + c);
    if (c < u_.Dv) weigh_rest<rows>(v + c, p, count, u_.Dv - c, o + c);
  }

  template <int rows, int columns, bool fetches>
  HWY_INLINE void weigh_columns(const T* v, const T* ahead, const float* p, std::int64_t count,
                                float* o) const {
    const std::int64_t next = decode_partial(u_.Dv);
    V sums[rows][columns];
    HWY_UNROLL(4)
    for (int i = 0; i < rows; ++i) {
      HWY_UNROLL(8)
      for (int c = 0; c < columns; ++c) sums[i][c] = hn::LoadU(d, o + i * next + c * N);
    }
    for (std::int64_t j = 0; j < count; ++j, v += u_.value_stride) {
      if constexpr (fetches) fetch(ahead + j * u_.value_stride, columns * N);
      V x[columns];
      HWY_UNROLL(8)
      for (int c = 0; c < columns; ++c) x[c] = Load::full(v + c * N);
      HWY_UNROLL(4)
      for (int i = 0; i < rows; ++i) {
        const V w = hn::Set(d, p[i * kDecodeBlock + j]);
        HWY_UNROLL(8)
        for (int c = 0; c < columns; ++c) sums[i][c] = hn::MulAdd(x[c], w, sums[i][c]);
      }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < rows; ++i) {
      HWY_UNROLL(8)
      for (int c = 0; c < columns; ++c) hn::StoreU(sums[i][c], d, o + i * next + c * N);
    }
  }

  template <int rows>
  HWY_INLINE void weigh_rest(const T* v, const float* p, std::int64_t count, std::int64_t width,
                             float* o) const {
    const std::int64_t next = decode_partial(u_.Dv);
    V sums[rows];
    HWY_UNROLL(4)
    for (int i = 0; i < rows; ++i) sums[i] = hn::LoadU(d, o + i * next);
    for (std::int64_t j = 0; j < count; ++j, v += u_.value_stride) {
      const V x = Load::some(v, width);
      HWY_UNROLL(4)
      for (int i = 0; i < rows; ++i) {
        sums[i] = hn::MulAdd(x, hn::Set(d, p[i * kDecodeBlock + j]), sums[i]);
      }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < rows; ++i) hn::StoreU(sums[i], d, o + i * next);
  }

  const DecodeUnit& u_;
  const std::int64_t padded_;
  std::size_t first_ = 0;  // the run that the block begins in
};

inline void decode_run(const DecodeUnit& unit) {
  switch (unit.storage) {
    case KVStorage::f32: return Decode<float>(unit).run();
    case KVStorage::f16: return Decode<f16>(unit).run();
    case KVStorage::bf16: return Decode<bf16>(unit).run();
    case KVStorage::int8: return Decode<std::int8_t>(unit).run();
  }
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
