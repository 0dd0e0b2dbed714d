// What happens to a tile of scores between the two products. Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_SCORES_INL_H_
#undef QKV_KERNELS_ATTENTION_SCORES_INL_H_
#else
#define QKV_KERNELS_ATTENTION_SCORES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Scores of some keys and some vectors of queries, s[key][query]. Hidden entries are -inf; but a
// score may be -inf without being hidden, so who has to tell them apart looks at the addend, or at
// structure. What belongs to a query comes as an array, a number a lane.
template <class D>
struct ScoreTile {
  using Real = hn::TFromD<D>;
  using V = hn::Vec<D>;
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());
  static constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  static constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;  // 32

  Real* s;
  std::int64_t keys;
  int vectors;

  std::int64_t size() const { return keys * vectors * N; }
  Real* at(std::int64_t key, int v) const { return s + (key * vectors + v) * N; }
  static V minus_infinity() { return hn::Set(d, -kInfinity); }

  static constexpr Real kLog2e = static_cast<Real>(1.44269504088896340735992);
  static V log2e() { return hn::Set(d, kLog2e); }
  static V exp(V x) { return exp2_or_zero(d, hn::Mul(x, log2e())); }

  // exp(x - max), as 2^(x·log2 e - max·log2 e): an operation less. How max·log2 e is rounded is the
  // same for all keys of a query, and cancels in the quotient by their sum (a sink and LSE are
  // reckoned from the rounded product, too). The difference comes
  // first where max is so large that this rounding is not small itself (also while nothing was
  // seen), and where there is no FMA, so that x·log2 e would be rounded by itself.
  class Relative {
   public:
    explicit Relative(V max) : max_(max), scaled_(hn::Mul(max, log2e())) {}
    // Whether near() does for all lanes.
    bool all_near() const { return !HWY_NATIVE_FMA || hn::AllTrue(d, is_near(max_)); }
    V near(V x) const { return exp2_or_zero(d, exponent(x, max_, scaled_)); }
    // What near() raises 2 to; scaled = max·log2 e.
    static HWY_INLINE V exponent(V x, V max, V scaled) {
      if constexpr (HWY_NATIVE_FMA) return hn::MulSub(x, log2e(), scaled);
      return hn::Mul(hn::Sub(x, max), log2e());
    }
    V operator()(V x) const {
      if constexpr (!HWY_NATIVE_FMA) return near(x);
      return hn::IfThenElse(is_near(max_), near(x), exp(hn::Sub(x, max_)));
    }
    // exp(max - other's max): from what is relative to this one to what is relative to the other.
    V to(const Relative& other) const {
      const V far = exp(hn::Sub(max_, other.max_));
      if constexpr (!HWY_NATIVE_FMA) return far;
      return hn::IfThenElse(hn::And(is_near(max_), is_near(other.max_)),
                            exp2_or_zero(d, hn::Sub(scaled_, other.scaled_)), far);
    }

    // The same for one number, whose max·log2 e is as rounded as a lane's.
    static bool is_near(Real max) { return HWY_NATIVE_FMA && std::abs(max) <= kNear; }
    static Real exp_of(Real x, Real max) {
      if (!is_near(max)) return std::exp(x - max);
      return std::exp2(std::fma(x, kLog2e, -(max * kLog2e)));
    }
    static Real exp_between(Real from, Real to) {
      if (!is_near(from) || !is_near(to)) return std::exp(from - to);
      return std::exp2(from * kLog2e - to * kLog2e);
    }
    // max + log(sum), where the sum is of exponentials relative to max.
    static Real log_sum(Real max, Real sum) {
      constexpr Real kLn2 = static_cast<Real>(0.693147180559945309417232);
      const Real rounding = is_near(max) ? std::fma(max, kLog2e, -(max * kLog2e)) : Real{0};
      return max + (std::log(sum) - rounding * kLn2);
    }

   private:
    static constexpr Real kNear = 65536;
    static auto is_near(V max) { return hn::Le(hn::Abs(max), hn::Set(d, kNear)); }
    V max_, scaled_;
  };

  // s = limit·tanh(s / limit), of a limit whose inverse is a normal number, too.
  void softcap(Real limit) const {
    const V cap = hn::Set(d, limit), inverse = hn::Set(d, Real{1} / limit);
    const auto cap_next = [&](auto vectors_at_once, std::int64_t i) HWY_ATTR {
      constexpr int n = decltype(vectors_at_once)::value;
      V x[n];
      HWY_UNROLL(4)
      for (int k = 0; k < n; ++k) x[k] = hn::Mul(hn::LoadU(d, s + i + k * N), inverse);
      tanh_of(d, x);
      HWY_UNROLL(4)
      for (int k = 0; k < n; ++k) hn::StoreU(hn::Mul(cap, x[k]), d, s + i + k * N);
    };
    constexpr int kMost = kManyRegisters ? 4 : 2;
    std::int64_t i = 0;
    for (; i + kMost * N <= size(); i += kMost * N) {
      cap_next(std::integral_constant<int, kMost>(), i);
    }
    for (; i < size(); i += N) cap_next(std::integral_constant<int, 1>(), i);
  }

  // s = s + addend, and the largest of each query. Where the addend is -inf the entry is hidden,
  // whatever it was.
  void add(const Real* addend, Real* largest) const {
    for (int v = 0; v < vectors; ++v) {
      V top = minus_infinity();
      for (std::int64_t i = v * N; i < size(); i += vectors * N) {
        const V a = hn::LoadU(d, addend + i);
        const V sum = hn::Add(hn::LoadU(d, s + i), a);
        const V kept = hn::IfThenElse(hn::Eq(a, minus_infinity()), minus_infinity(), sum);
        hn::StoreU(kept, d, s + i);
        top = hn::Max(top, kept);
      }
      hn::StoreU(top, d, largest + v * N);
    }
  }

  // Entries become hidden where those of another tile are.
  void hide_where_hidden(const Real* other) const {
    for (std::int64_t i = 0; i < size(); i += N) {
      const auto hidden = hn::Eq(hn::LoadU(d, other + i), minus_infinity());
      hn::StoreU(hn::IfThenElse(hidden, minus_infinity(), hn::LoadU(d, s + i)), d, s + i);
    }
  }

  // s = s - slope·|position of the query - key|, both counted from the first key.
  void alibi(Real slope_of_head, std::int64_t first_position) const {
    const V slope = hn::Set(d, slope_of_head);
    for (int v = 0; v < vectors; ++v) {
      HWY_ALIGN Real position[N];
      for (std::int64_t l = 0; l < N; ++l) {
        position[l] = static_cast<Real>(first_position + v * N + l);
      }
      const V from = hn::Load(d, position);
      for (std::int64_t j = 0; j < keys; ++j) {
        const V distance = hn::Abs(hn::Sub(from, hn::Set(d, static_cast<Real>(j))));
        hn::StoreU(hn::NegMulAdd(slope, distance, hn::LoadU(d, at(j, v))), d, at(j, v));
      }
    }
  }

  // Which keys of a sequence the queries of a tile see by structure: [begin, end) of each query,
  // and what is before the prefix. Lanes past the last of `queries` do as that one does.
  struct Structure {
    std::int64_t first;    // the tile's first key
    std::int64_t visible;  // of the tile's keys, so many from the first on are seen by all queries
    const std::int64_t *begin, *end;
    std::int64_t queries, prefix;
    bool ends_only;  // every query sees all keys before its end
  };

  // Hides what structure does. Queries that see a key get 1 in `seen`, and the largest of what they
  // see in `largest`, unless these are null.
  void hide(const Structure& by, Real* seen, Real* largest) const {
    const auto relative = [&](std::int64_t key) {
      return static_cast<Real>(std::clamp<std::int64_t>(key - by.first, 0, keys));
    };
    const V prefix_end = hn::Set(d, relative(by.prefix));
    for (int v = 0; v < vectors; ++v) {
      HWY_ALIGN Real begins[N], ends[N];
      for (std::int64_t l = 0; l < N; ++l) {
        const std::int64_t i = std::min(v * N + l, by.queries - 1);
        begins[l] = relative(by.begin[i]);
        ends[l] = relative(by.end[i]);
      }
      const V from = hn::Load(d, begins), to = hn::Load(d, ends);
      // What this vector's queries all see, and what none of them does, needs no comparison.
      const auto whole = [](Real key) { return static_cast<std::int64_t>(key); };
      const std::int64_t visible =
          by.ends_only ? whole(*std::min_element(ends, ends + N)) : by.visible;
      const std::int64_t hidden = by.ends_only ? whole(*std::max_element(ends, ends + N)) : keys;
      V top = largest == nullptr ? minus_infinity() : maximum_of(v, visible);
      for (std::int64_t j = visible; j < hidden; ++j) {
        const V key = hn::Set(d, static_cast<Real>(j));
        const auto band = hn::And(hn::Ge(key, from), hn::Lt(key, to));
        const auto sees = hn::Or(band, hn::Lt(key, prefix_end));
        const V kept = hn::IfThenElse(sees, hn::LoadU(d, at(j, v)), minus_infinity());
        hn::StoreU(kept, d, at(j, v));
        top = hn::Max(top, kept);
      }
      for (std::int64_t j = hidden; j < keys; ++j) hn::StoreU(minus_infinity(), d, at(j, v));
      if (largest != nullptr) hn::StoreU(top, d, largest + v * N);
      if (seen == nullptr) continue;
      const auto sees = hn::Or(hn::Lt(from, to), hn::Lt(hn::Zero(d), prefix_end));
      const V one = hn::IfThenElseZero(sees, hn::Set(d, Real{1}));
      hn::StoreU(hn::Max(one, hn::LoadU(d, seen + v * N)), d, seen + v * N);
    }
  }

  // Whether any, and whether all entries are visible.
  void scan(bool& any, bool& all) const {
    any = false;
    all = true;
    for (std::int64_t i = 0; i < size() && !(any && !all); i += N) {
      const auto hidden = hn::Eq(hn::LoadU(d, s + i), minus_infinity());
      any = any || !hn::AllTrue(d, hidden);
      all = all && hn::AllFalse(d, hidden);
    }
  }

  void maximum(Real* largest) const {
    for (int v = 0; v < vectors; ++v) hn::StoreU(maximum_of(v, keys), d, largest + v * N);
  }

  // The largest of a vector's first n keys, in four chains: one would wait for itself.
  V maximum_of(int v, std::int64_t n) const {
    V a = minus_infinity(), b = a, c = a, e = a;
    std::int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      a = hn::Max(a, hn::LoadU(d, at(j, v)));
      b = hn::Max(b, hn::LoadU(d, at(j + 1, v)));
      c = hn::Max(c, hn::LoadU(d, at(j + 2, v)));
      e = hn::Max(e, hn::LoadU(d, at(j + 3, v)));
    }
    for (; j < n; ++j) a = hn::Max(a, hn::LoadU(d, at(j, v)));
    return hn::Max(hn::Max(a, b), hn::Max(c, e));
  }

  // seen = 1 for queries that see a key here; of an addend.
  void mark_seen(Real* seen) const {
    for (int v = 0; v < vectors; ++v) {
      V mark = hn::LoadU(d, seen + v * N);
      for (std::int64_t j = 0; j < keys; ++j) {
        const auto hidden = hn::Eq(hn::LoadU(d, at(j, v)), minus_infinity());
        mark = hn::IfThenElse(hidden, mark, hn::Set(d, Real{1}));
      }
      hn::StoreU(mark, d, seen + v * N);
    }
  }

  // s = exp(s - max), and sum += their sum. Entries that are hidden in the tile `hidden` become -0,
  // which no exponential is, unless it is null.
  HWY_NOINLINE void exponentials(const Real* max_of, Real* sum_of, const Real* hidden) const {
    if (hidden == nullptr && all_near(max_of)) {
      switch (vectors) {
        case 4: return near_exponentials<4>(max_of, sum_of);
        case 3: return near_exponentials<3>(max_of, sum_of);
        case 2: return near_exponentials<2>(max_of, sum_of);
        default: return near_exponentials<1>(max_of, sum_of);
      }
    }
    for (int v = 0; v < vectors; ++v) {
      const Relative relative(hn::LoadU(d, max_of + v * N));
      V sum = hn::Zero(d);
      for (std::int64_t j = 0; j < keys; ++j) {
        V e = relative(hn::LoadU(d, at(j, v)));
        sum = hn::Add(sum, e);
        if (hidden != nullptr) {
          const auto off = hn::Eq(hn::LoadU(d, hidden + (at(j, v) - s)), minus_infinity());
          e = hn::IfThenElse(off, hn::Set(d, Real{-0.0}), e);
        }
        hn::StoreU(e, d, at(j, v));
      }
      hn::StoreU(hn::Add(hn::LoadU(d, sum_of + v * N), sum), d, sum_of + v * N);
    }
  }

  bool all_near(const Real* max_of) const {
    for (int v = 0; v < vectors; ++v) {
      if (!Relative(hn::LoadU(d, max_of + v * N)).all_near()) return false;
    }
    return true;
  }

  // Exponentials are chains of operations that wait for each other: two or three go side by side,
  // where there are 32 registers.
  template <int kVectors>
  static constexpr int kSideBySide = !kManyRegisters ? 1
                                     : kVectors == 4 ? 2
                                                     : kVectors;

  // The usual case, for so many vectors, in the order in which scores lie.
  template <int kVectors>
  HWY_INLINE void near_exponentials(const Real* max_of, Real* sum_of) const {
    constexpr int n = kSideBySide<kVectors>;
    V sum[kVectors], max[kVectors], scaled[kVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = hn::Zero(d);
      max[v] = hn::LoadU(d, max_of + v * N);
      scaled[v] = hn::Mul(max[v], log2e());
    }
    Real* at = s;
    for (std::int64_t j = 0; j < keys; ++j) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; v += n, at += n * N) {
        V e[n];
        HWY_UNROLL(4)
        for (int k = 0; k < n; ++k) {
          e[k] = Relative::exponent(hn::LoadU(d, at + k * N), max[v + k], scaled[v + k]);
        }
        exp2_or_zero(d, e);
        HWY_UNROLL(4)
        for (int k = 0; k < n; ++k) {
          sum[v + k] = hn::Add(sum[v + k], e[k]);
          hn::StoreU(e[k], d, at + k * N);
        }
      }
    }
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(hn::Add(hn::LoadU(d, sum_of + v * N), sum[v]), d, sum_of + v * N);
    }
  }

  // s = exp(s - max) / sum; 0 where the tile `hidden` hides, also in a query of NaN.
  void weights(const Real* max_of, const Real* sum_of, const Real* seen_of,
               const Real* hidden) const {
    for (int v = 0; v < vectors; ++v) {
      const Relative relative(hn::LoadU(d, max_of + v * N));
      const V inverse = hn::Div(hn::Set(d, Real{1}), hn::LoadU(d, sum_of + v * N));
      const auto seen = hn::Ne(hn::LoadU(d, seen_of + v * N), hn::Zero(d));
      for (std::int64_t j = 0; j < keys; ++j) {
        const V x = hn::LoadU(d, at(j, v));
        const V weight = hn::Mul(relative(x), inverse);
        const auto off = hn::Eq(hn::LoadU(d, hidden + (at(j, v) - s)), minus_infinity());
        hn::StoreU(hn::IfThenElseZero(hn::AndNot(off, seen), weight), d, at(j, v));
      }
    }
  }
};

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
