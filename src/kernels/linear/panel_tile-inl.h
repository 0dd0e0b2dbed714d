// The product of the panel kernel, as tiles of accumulators. Included once for each target.

#if defined(QKV_KERNELS_LINEAR_PANEL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_LINEAR_PANEL_TILE_INL_H_
#undef QKV_KERNELS_LINEAR_PANEL_TILE_INL_H_
#else
#define QKV_KERNELS_LINEAR_PANEL_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "qkv/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors × rows of accumulators that fill the registers. Wider tiles need fewer loads for each
// multiplication: 10 for 24 here, 7 for 12 there.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64  // 32 registers
inline constexpr int kPanelVectors = 4, kPanelRows = 6, kNarrowerRows = 8, kOneVectorRows = 16;
#else  // 16 registers
inline constexpr int kPanelVectors = 3, kPanelRows = 4, kNarrowerRows = 6, kOneVectorRows = 12;
#endif
// Rows of a tile of so many vectors: a little narrower, and there are registers for more; of one,
// and the chains of fewer would wait for themselves.
constexpr int panel_tile_rows(int vectors) {
  return vectors == kPanelVectors - 1 ? kNarrowerRows : vectors == 1 ? kOneVectorRows : kPanelRows;
}

template <class D, typename Stored>
HWY_INLINE hn::Vec<D> load_weights(D d, const Stored* HWY_RESTRICT at) {
  if constexpr (std::is_same_v<Stored, hn::TFromD<D>>) {
    return hn::LoadU(d, at);
  } else {
    using Half = std::conditional_t<std::is_same_v<Stored, f16>, hwy::float16_t, hwy::bfloat16_t>;
    const hn::Rebind<Half, D> dh;
    const hn::Rebind<std::uint16_t, D> du;
    return hn::PromoteTo(
        d, hn::BitCast(dh, hn::LoadU(du, reinterpret_cast<const std::uint16_t*>(at))));
  }
}

// Memory that is fetched while tiles compute, a few lines at a time and evenly spread: a core has
// few on their way, and one more than that makes it wait.
class PanelAhead {
 public:
  // Within so many steps of tiles.
  PanelAhead(const std::byte* at, std::int64_t bytes, std::int64_t steps)
      : at_(at), lines_(bytes / 64) {
    if (lines_ == 0) return;
    every_ = std::max(kLeastSteps, steps / lines_);
    at_once_ = (lines_ * every_ + steps - 1) / steps;
  }
  // Steps until the next lines are due.
  std::int64_t every() const { return every_; }
  HWY_INLINE void fetch() {
    for (std::int64_t n = std::min(at_once_, lines_); n > 0; --n) {
      __builtin_prefetch(at_, 0, 2);
      at_ += 64;
      --lines_;
    }
  }
  // All that are due in so many steps.
  HWY_INLINE void fetch(std::int64_t steps) {
    for (; steps > 0 && lines_ > 0; steps -= every_) fetch();
  }

 private:
  const std::byte* at_ = nullptr;
  static constexpr std::int64_t kLeastSteps = 8;  // so that loops do not end all the time
  std::int64_t lines_ = 0, every_ = std::int64_t{1} << 40, at_once_ = 0;
};

// One operand is a matrix of scalars a[r][i], the other one of vectors b[i][lanes].
//   kAcross: a's rows lie `a_stride` apart, i is next to i + 1;
//   kAlong: rows lie side by side, i is `a_stride` apart.
enum class Scalars { kAcross, kAlong };

// Whether a tile may end with half a vector of b. Then pixels that leave half a vector are read
// where they lie and, where half a vector costs half (Zen 4), fewer lanes are empty.
template <typename Real>
inline constexpr bool kHasHalves = HWY_TARGET == HWY_AVX3 && sizeof(Real) == 4;

// sums[r][v] (+)= Σ_i a[r][i]·b[i][v], i < depth; rows of sums are a panel's width apart. The last
// of the vectors may be a half.
template <Scalars kScalars, int R, int NV, bool kHalf, typename Real, typename Stored>
HWY_NOINLINE void panel_tile(const Real* HWY_RESTRICT a, std::int64_t a_stride,
                             const Stored* HWY_RESTRICT b, std::int64_t b_stride,
                             std::int64_t depth, bool from_zero, Real* HWY_RESTRICT sums,
                             PanelAhead& ahead) {
  const hn::ScalableTag<Real> d;
  const hn::Half<decltype(d)> dh;
  using V = hn::Vec<decltype(d)>;
  using H = hn::Vec<decltype(dh)>;
  constexpr std::int64_t N = hn::MaxLanes(d), W = kPanelVectors * N;
  constexpr int kWhole = kHalf ? NV - 1 : NV;
  V sum[R][NV];
  H last[R];
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kWhole; ++v) {
      sum[r][v] = from_zero ? hn::Zero(d) : hn::LoadU(d, sums + r * W + v * N);
    }
    if (kHalf) last[r] = from_zero ? hn::Zero(dh) : hn::LoadU(dh, sums + r * W + kWhole * N);
  }
  for (std::int64_t i = 0; i < depth;) {
    ahead.fetch();
    for (const std::int64_t end = std::min(depth, i + ahead.every()); i < end; ++i) {
      V line[NV];
      HWY_UNROLL(4)
      for (int v = 0; v < kWhole; ++v) line[v] = load_weights(d, b + v * N);
      H half = hn::Zero(dh);
      if (kHalf) half = load_weights(dh, b + kWhole * N);
      b += b_stride;
      HWY_UNROLL(16)
      for (int r = 0; r < R; ++r) {
        const V scalar =
            hn::Set(d, kScalars == Scalars::kAcross ? a[r * a_stride + i] : a[r + i * a_stride]);
        HWY_UNROLL(4)
        for (int v = 0; v < kWhole; ++v) sum[r][v] = hn::MulAdd(scalar, line[v], sum[r][v]);
        if (kHalf) last[r] = hn::MulAdd(hn::LowerHalf(dh, scalar), half, last[r]);
      }
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kWhole; ++v) hn::StoreU(sum[r][v], d, sums + r * W + v * N);
    if (kHalf) hn::StoreU(last[r], dh, sums + r * W + kWhole * N);
  }
}

// The same for any number of rows; around.before(r, count) and after(r, count), for each tile of
// them.
template <Scalars kScalars, int NV, bool kHalf, typename Real, typename Stored, typename Around>
void panel_rows(const Real* a, std::int64_t a_stride, const Stored* b, std::int64_t b_stride,
                std::int64_t depth, bool from_zero, std::int64_t rows, Real* sums,
                PanelAhead& ahead, const Around& around) {
  constexpr std::int64_t W =
      kPanelVectors * static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<Real>()));
  const std::int64_t row_stride = kScalars == Scalars::kAcross ? a_stride : 1;
  std::int64_t r = 0;
  const auto tile = [&](auto count) {
    constexpr int R = decltype(count)::value;
    around.before(r, std::int64_t{R});
    panel_tile<kScalars, R, NV, kHalf>(a + r * row_stride, a_stride, b, b_stride, depth, from_zero,
                                       sums + r * W, ahead);
    around.after(r, std::int64_t{R});
    r += R;
  };
  constexpr int kRows = panel_tile_rows(NV);
  while (r + kRows <= rows) tile(std::integral_constant<int, kRows>());
  if constexpr (kScalars == Scalars::kAcross && NV == kPanelVectors) {
    // Few rows read the weights once: no second tile for what is left.
    switch (rows - r) {
      case 5:
        if constexpr (kPanelRows > 5) tile(std::integral_constant<int, 5>());
        return;
      case 4:
        if constexpr (kPanelRows > 4) tile(std::integral_constant<int, 4>());
        return;
      case 3: tile(std::integral_constant<int, 3>()); return;
      case 2: tile(std::integral_constant<int, 2>()); return;
      case 1: tile(std::integral_constant<int, 1>()); return;
      default: return;
    }
  } else {
    if (kRows > 8 && r + 8 <= rows) tile(std::integral_constant<int, 8>());
    if (kRows > 4 && r + 4 <= rows) tile(std::integral_constant<int, 4>());
    if (r + 2 <= rows) tile(std::integral_constant<int, 2>());
    if (r < rows) tile(std::integral_constant<int, 1>());
  }
}

// The same for so many vectors.
template <Scalars kScalars, bool kHalf, typename Real, typename Stored, typename Around>
HWY_INLINE void panel_vectors(std::int64_t vectors, const Real* a, std::int64_t a_stride,
                              const Stored* b, std::int64_t b_stride, std::int64_t depth,
                              bool from_zero, std::int64_t rows, Real* sums, PanelAhead& ahead,
                              const Around& around) {
  const auto run = [&](auto count) {
    panel_rows<kScalars, decltype(count)::value, kHalf>(a, a_stride, b, b_stride, depth, from_zero,
                                                        rows, sums, ahead, around);
  };
  if constexpr (std::is_same_v<Real, Stored>) {
    switch (vectors) {
      case 1: return run(std::integral_constant<int, 1>());
      case 2: return run(std::integral_constant<int, 2>());
      case 3: return run(std::integral_constant<int, 3>());
      default: break;
    }
  }
  run(std::integral_constant<int, kPanelVectors>());
}

// The same for so many lanes.
template <Scalars kScalars, typename Real, typename Stored, typename Around>
HWY_INLINE void panel_product(std::int64_t lanes, const Real* a, std::int64_t a_stride,
                              const Stored* b, std::int64_t b_stride, std::int64_t depth,
                              bool from_zero, std::int64_t rows, Real* sums, PanelAhead& ahead,
                              const Around& around) {
  constexpr std::int64_t N = hn::MaxLanes(hn::ScalableTag<Real>());
  const std::int64_t vectors = (lanes + N - 1) / N;
  if constexpr (kScalars == Scalars::kAlong && kHasHalves<Real>) {
    if (lanes % N == N / 2) {
      return panel_vectors<kScalars, true>(vectors, a, a_stride, b, b_stride, depth, from_zero,
                                           rows, sums, ahead, around);
    }
  }
  panel_vectors<kScalars, false>(vectors, a, a_stride, b, b_stride, depth, from_zero, rows, sums,
                                 ahead, around);
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
