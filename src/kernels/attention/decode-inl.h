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
#include <type_traits>

#include "base/element.h"
#include "kernels/attention/decode.h"
#include "kernels/attention/decode_bytes-inl.h"
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
  static constexpr int kKeys = 4;  // whose sums are added up together
  // Keys that are worked on together: bytes need twice as many to be worth the loads of their sums.
  static constexpr std::int64_t kPart = std::is_same_v<T, std::int8_t> ? 128 : 64;
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

 public:
  explicit Decode(const DecodeUnit& unit) : u_(unit), padded_(decode_padded(unit.D)) {}

  void run() {
    for (std::int64_t r = 0; r < u_.rows; r += kDecodeRows) {
      rows_ = {r, std::min(u_.rows, r + kDecodeRows)};
#if QKV_DECODE_VNNI
      if constexpr (std::is_same_v<T, std::int8_t>) {
        const bool any = u_.integers != nullptr && !u_.runs.empty();
        for (std::int64_t i = rows_.begin; any && i < rows_.end; ++i) {
          const std::int64_t row = i - rows_.begin;
          to_words(u_.query + i * padded_, u_.D, {words(row), bytes(row), factors_ + row});
        }
        std::fill_n(weight_factors_, kDecodeRows, 0.0f);
      }
#endif
      all_keys();
    }
  }

 private:
  float* out(std::int64_t r) const { return u_.partial + r * decode_partial(u_.Dv); }
  float& max(std::int64_t r) const { return out(r)[decode_padded(u_.Dv)]; }
  float& sum(std::int64_t r) const { return out(r)[decode_padded(u_.Dv) + 1]; }
  float* score_at(std::int64_t r, std::int64_t j) const {
    return u_.scores + (r - rows_.begin) * u_.length + (j - u_.begin);
  }

  // Scores of all keys, then weights, then values: memory is two long streams, one at a time.
  // Going to and fro between them every 64 keys took up to a third more time.
  HWY_INLINE void all_keys() {
    for_parts([&](auto rows, std::int64_t r, const DecodeRun& run, KeyRange keys) {
      score<rows()>(run, keys, r);
    });
    for (std::int64_t r = rows_.begin; r < rows_.end; ++r) softmax(r);
    for_parts([&](auto rows, std::int64_t r, const DecodeRun& run, KeyRange keys) {
      weigh<rows()>(run, keys, r);
    });
#if QKV_DECODE_VNNI
    for (std::int64_t r = rows_.begin; r < rows_.end; ++r) {
      if (weighs_bytes(r)) add_sums(sums(r), u_.Dv, weight_factors_[r - rows_.begin], out(r));
    }
#endif
  }

  // fn(rows, first row, run, keys of it), a few keys at a time, so that what was read for some rows
  // is near when it is the others' turn. `rows` up to kRows, which see the same of these keys.
  template <class Fn>
  HWY_INLINE void for_parts(const Fn& fn) const {
    if (u_.runs.empty()) return;
    const std::int64_t end = u_.runs.back().end;
    std::size_t first = 0;  // run that has some of the part
    for (std::int64_t at = u_.runs.front().begin, next; at < end; at = next) {
      next = std::min(end, (at / kPart + 1) * kPart);  // where pages may end
      while (u_.runs[first].end <= at) ++first;
      const KeyRange part{at, next};
      for (std::int64_t r = rows_.begin; r < rows_.end;) {
        const KeyRange keys = seen(r, part);
        std::int64_t same = 1;
        while (same < kRows && r + same < rows_.end && seen(r + same, part) == keys &&
               weighs_bytes(r + same) == weighs_bytes(r)) {
          ++same;
        }
        for_runs(first, keys, [&](const DecodeRun& run, KeyRange some) {
          if (same == 1) return fn(Count<1>(), r, run, some);
          if constexpr (kRows > 2) {
            if (same == 4) return fn(Count<4>(), r, run, some);
            if (same == 3) return fn(Count<3>(), r, run, some);
          }
          fn(Count<2>(), r, run, some);
        });
        r += same;
      }
    }
  }
  template <int n>
  using Count = std::integral_constant<int, n>;

  KeyRange seen(std::int64_t r, KeyRange part) const {
    return {std::max(part.begin, u_.visible[r].begin), std::min(part.end, u_.visible[r].end)};
  }

  // fn(run, keys of it) for the runs from the first on that have some of these keys.
  template <class Fn>
  HWY_INLINE void for_runs(std::size_t first, KeyRange keys, const Fn& fn) const {
    for (std::size_t n = first; n < u_.runs.size() && u_.runs[n].begin < keys.end; ++n) {
      const DecodeRun& run = u_.runs[n];
      const KeyRange part{std::max(keys.begin, run.begin), std::min(keys.end, run.end)};
      if (part.begin < part.end) fn(run, part);
    }
  }

  // Fetching ahead. Lines are asked for in the order in which they lie and a few at a time, since a
  // CPU forgets what it is asked for while too much is on its way. f32 waits for memory: its keys
  // are asked for a little ahead, four at a time as they are worked on is no order that a CPU would
  // guess; its values, one after the other, are better left to the CPU. What has to be widened
  // waits for that, and is fetched far ahead into the second level of cache.
  static constexpr bool kPlain = std::is_same_v<T, float>;
  static constexpr std::int64_t kBytesAhead = kPlain ? 2 << 10 : 16 << 10;
  static constexpr int kInto = kPlain ? 3 : 2;  // the first level, the second one

  static HWY_INLINE std::int64_t keys_ahead(std::int64_t width) {
    const std::int64_t keys = kBytesAhead / (width * static_cast<std::int64_t>(sizeof(T)));
    return std::max<std::int64_t>(1, keys / kKeys) * kKeys;
  }

  static HWY_INLINE void fetch(const T* ahead, std::int64_t width) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(ahead);
    const std::int64_t count = width * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t b = 0; b < count; b += 64) __builtin_prefetch(bytes + b, 0, kInto);
  }

  // kKeys keys to fetch while as many are worked on: a step for each of their vectors.
  class KeysAhead {
   public:
    HWY_INLINE KeysAhead(const T* key, std::int64_t width, std::int64_t stride)
        : at_(key), end_(key + width), stride_(stride), gap_(stride - width) {}
    HWY_INLINE void step() {
      fetch(at_, kKeys * N);
      at_ += kKeys * N;
      if (gap_ != 0 && at_ >= end_) {  // without a gap, they are one long key
        at_ = end_ + gap_;
        end_ += stride_;
      }
    }

   private:
    const T *at_, *end_;
    std::int64_t stride_, gap_;
  };

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

  // The score of j is q_r·k_j, for `rows` rows from r on.
  template <int rows>
  HWY_NOINLINE void score(const DecodeRun& run, KeyRange keys, std::int64_t r) const {
#if QKV_DECODE_VNNI
    if constexpr (std::is_same_v<T, std::int8_t>) {
      if (u_.integers != nullptr) return score_bytes<rows>(run, keys, r);
    }
#endif
    const T* k = static_cast<const T*>(run.key) + (keys.begin - run.begin) * u_.key_stride;
    float* s = score_at(r, keys.begin);
    const float* scale = scale_at(run.key_scale, keys.begin - run.begin);
    const std::int64_t count = keys.end - keys.begin;
    const std::int64_t distance = keys_ahead(u_.D);
    std::int64_t j = 0;
    for (; j + kKeys <= count; j += kKeys) {
      KeysAhead ahead(rows_at(keys.begin + j + distance, run).key, u_.D, u_.key_stride);
      score_keys<rows>(k + j * u_.key_stride, r, kKeys, scale_at(scale, j), ahead, s + j);
    }
    if (j < count) {
      KeysAhead ahead(k, u_.D, u_.key_stride);
      score_keys<rows>(k + j * u_.key_stride, r, count - j, scale_at(scale, j), ahead, s + j);
    }
  }

#if QKV_DECODE_VNNI
  // Scratch: words of all rows, their bytes, their sums.
  std::int16_t* words(std::int64_t row) const {
    return reinterpret_cast<std::int16_t*>(u_.integers) + row * decode_whole_bytes(u_.D);
  }
  std::uint8_t* bytes(std::int64_t row) const {
    return reinterpret_cast<std::uint8_t*>(words(scratch_rows())) + row * decode_whole_bytes(u_.D);
  }
  std::int32_t* sums(std::int64_t r) const {
    return reinterpret_cast<std::int32_t*>(bytes(scratch_rows())) +
           (r - rows_.begin) * 3 * decode_whole_bytes(u_.Dv);
  }
  std::int64_t scratch_rows() const { return std::min(u_.rows, kDecodeRows); }

  // The same, of integers.
  template <int rows>
  HWY_INLINE void score_bytes(const DecodeRun& run, KeyRange keys, std::int64_t r) const {
    const std::int64_t first = keys.begin - run.begin, row = r - rows_.begin;
    const WordQueries q{words(row), bytes(row), decode_whole_bytes(u_.D), factors_ + row};
    const ByteKeys k{static_cast<const T*>(run.key) + first * u_.key_stride,
                     u_.key_stride,
                     u_.D,
                     keys.end - keys.begin,
                     run.key_scale + first,
                     rows_at(keys.begin + keys_ahead(u_.D), run).key};
    word_scores<rows>(q, k, score_at(r, keys.begin), u_.length);
  }
#endif

  template <int rows>
  HWY_INLINE void score_keys(const T* k, std::int64_t r, std::int64_t count, const float* scale,
                             KeysAhead& ahead, float* s) const {
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
      ahead.step();
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
        s[i * u_.length + j] = std::is_same_v<T, std::int8_t> ? four[j] * scale[j] : four[j];
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

  // Scores of a row become weights, with their maximum and sum.
  HWY_NOINLINE void softmax(std::int64_t r) {
    const KeyRange keys = u_.visible[r];
    max(r) = -kInfinity;
    sum(r) = 0;
    std::fill_n(out(r), decode_padded(u_.Dv), 0.0f);
    if (keys.begin >= keys.end) return;
    // Whole vectors: what is before the first key and behind the last one weighs nothing.
    const KeyRange whole{keys.begin / N * N, (keys.end + N - 1) / N * N};
    if (u_.softcap > 0 || u_.slopes != nullptr) adjust(r, whole);
    std::fill(score_at(r, whole.begin), score_at(r, keys.begin), -kInfinity);
    std::fill(score_at(r, keys.end), score_at(r, whole.end), -kInfinity);
    float* s = score_at(r, whole.begin);
    const std::int64_t count = whole.end - whole.begin;
    V top = hn::LoadU(d, s);
    for (std::int64_t j = N; j < count; j += N) top = hn::Max(top, hn::LoadU(d, s + j));
    // All of them may be -inf, and other chunks' not: then they weigh nothing.
    max(r) = std::max(hn::GetLane(hn::MaxOfLanes(d, top)), std::numeric_limits<float>::lowest());
    const V m = hn::Set(d, max(r));
    V total = hn::Zero(d);
    for (std::int64_t j = 0; j < count; j += N) {
      const V p = exp2_or_zero(d, hn::Sub(hn::LoadU(d, s + j), m));
      total = hn::Add(total, p);
      hn::StoreU(p, d, s + j);
    }
    sum(r) = hn::GetLane(hn::SumOfLanes(d, total));
    if constexpr (std::is_same_v<T, std::int8_t>) {
      for_runs(0, keys, [&](const DecodeRun& run, KeyRange part) {
        const float* scale = run.value_scale + (part.begin - run.begin);
        float* w = score_at(r, part.begin);
        std::int64_t j = 0;
        for (; j + N <= part.end - part.begin; j += N) {
          hn::StoreU(hn::Mul(hn::LoadU(d, w + j), hn::LoadU(d, scale + j)), d, w + j);
        }
        for (; j < part.end - part.begin; ++j) w[j] *= scale[j];
      });
#if QKV_DECODE_VNNI
      if (u_.integers != nullptr) to_bytes(r, whole);
#endif
    }
  }

#if QKV_DECODE_VNNI
  // Weights become bytes, but for the heavy ones: these have their effect at once.
  void to_bytes(std::int64_t r, KeyRange keys) {
    float* w = score_at(r, keys.begin);
    const std::int64_t count = keys.end - keys.begin;
    const float largest = heaviest_light(w, count);
    if (largest == 0) return;
    std::fill_n(sums(r), 3 * decode_whole_bytes(u_.Dv), 0);
    std::size_t run = 0;
    for (std::int64_t j = 0; j < count; j += N) {
      if (hn::AllFalse(d, hn::Gt(hn::LoadU(d, w + j), hn::Set(d, largest)))) continue;
      for (std::int64_t i = j; i < j + N; ++i) {
        if (w[i] <= largest) continue;
        while (u_.runs[run].end <= keys.begin + i) ++run;
        const T* v = rows_at(keys.begin + i, u_.runs[run]).value;
        weigh_few<1, false>(v, v, w + i, 1, out(r));
        w[i] = 0;
      }
    }
    weight_factors_[r - rows_.begin] = to_planes(w, count, largest);
  }
#endif

  // Whether the row's weights have become bytes.
  bool weighs_bytes([[maybe_unused]] std::int64_t r) const {
#if QKV_DECODE_VNNI
    return weight_factors_[r - rows_.begin] != 0;
#else
    return false;
#endif
  }

  // Softcap and ALiBi.
  void adjust(std::int64_t r, KeyRange keys) const {
    float* s = score_at(r, keys.begin);
    const V cap = hn::Set(d, u_.softcap);
    const std::int64_t distance = u_.slopes != nullptr ? keys.begin - u_.positions[r] : 0;
    const V slope = hn::Set(d, u_.slopes != nullptr ? u_.slopes[r] : 0.0f);
    for (std::int64_t j = 0; j < keys.end - keys.begin; j += N) {
      V x[] = {hn::LoadU(d, s + j)};
      if (u_.softcap > 0) {
        tanh_of(d, x);
        x[0] = hn::Mul(cap, x[0]);
      }
      const V away = hn::Add(hn::Set(d, static_cast<float>(distance + j)), hn::Iota(d, 0));
      hn::StoreU(hn::NegMulAdd(slope, hn::Abs(away), x[0]), d, s + j);
    }
  }

  // out(r) += Σ_j p_j·v_j for `rows` rows from r on.
  template <int rows>
  HWY_NOINLINE void weigh(const DecodeRun& run, KeyRange keys, std::int64_t r) const {
    const T* v = static_cast<const T*>(run.value) + (keys.begin - run.begin) * u_.value_stride;
    const float* p = score_at(r, keys.begin);
#if QKV_DECODE_VNNI
    if constexpr (std::is_same_v<T, std::int8_t>) {
      if (weighs_bytes(r)) {
        const ByteValues values{v, u_.value_stride, u_.Dv, keys.end - keys.begin,
                                rows_at(keys.begin + keys_ahead(u_.Dv), run).value};
        return add_values<rows>({score_at(r, u_.begin), u_.length}, keys.begin - u_.begin, values,
                                sums(r));
      }
    }
#endif
    // A few keys for all columns and rows, then the next few: memory is read in the order in which
    // it lies, and the few (2 KB) are in the first level of cache for all rows but the first. All
    // keys for some columns, then for others, took up to a quarter more time. What has to be
    // widened is loaded once for all rows, and goes on longer.
    const std::int64_t step =
        kPlain ? std::max<std::int64_t>(kKeys, (2 << 10) / static_cast<int>(sizeof(T)) / u_.Dv)
               : kPart;
    constexpr int first = kPlain ? std::min(rows, 2) : rows;
    const std::int64_t distance = keys_ahead(u_.Dv);
    for (std::int64_t j = 0; j < keys.end - keys.begin; j += step) {
      const T* from = v + j * u_.value_stride;
      const T* ahead = kPlain ? from : rows_at(keys.begin + j + distance, run).value;
      const std::int64_t few = std::min(step, keys.end - keys.begin - j);
      weigh_few<first, !kPlain>(from, ahead, p + j, few, out(r));
      if constexpr (rows > first) {
        weigh_few<rows - first, false>(from, ahead, p + j + first * u_.length, few, out(r + first));
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
        const V w = hn::Set(d, p[i * u_.length + j]);
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
        sums[i] = hn::MulAdd(x, hn::Set(d, p[i * u_.length + j]), sums[i]);
      }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < rows; ++i) hn::StoreU(sums[i], d, o + i * next);
  }

  const DecodeUnit& u_;
  const std::int64_t padded_;
  KeyRange rows_{};  // that are worked on
#if QKV_DECODE_VNNI
  float factors_[kDecodeRows] = {};         // of queries
  float weight_factors_[kDecodeRows] = {};  // 0: weights are as they were
#endif
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
