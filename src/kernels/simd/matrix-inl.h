// Moving small matrices between a caller's layout and dtype and the dense f32 or f64 tiles that
// kernels work on. Included once for each SIMD target.

#if defined(QKV_KERNELS_SIMD_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_SIMD_MATRIX_INL_H_
#undef QKV_KERNELS_SIMD_MATRIX_INL_H_
#else
#define QKV_KERNELS_SIMD_MATRIX_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/element.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What an element becomes when it is read: a float its value, a mask's bool 0 or -inf.
template <typename Real, typename T>
HWY_INLINE Real read_as(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? Real{0} : -std::numeric_limits<Real>::infinity();
  } else {
    return static_cast<Real>(value);
  }
}

// Whether f16 is converted by the machine. (Highway's way without makes numbers of infinities.)
inline constexpr bool kConvertsF16 = HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON;

// to[i] = from[i], i < n. `from` may be unaligned.
template <typename T, typename Real>
HWY_INLINE void read_row(const void* from, std::int64_t n, Real* HWY_RESTRICT to) {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  std::int64_t i = 0;
  if constexpr (std::is_same_v<T, Real>) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
    return;
  } else if constexpr (std::is_same_v<Real, float> &&
                       ((std::is_same_v<T, f16> && kConvertsF16) || std::is_same_v<T, bf16>)) {
    const hn::ScalableTag<float> d;
    using Half = std::conditional_t<std::is_same_v<T, f16>, hwy::float16_t, hwy::bfloat16_t>;
    const hn::Rebind<Half, decltype(d)> dh;
    const hn::Rebind<std::uint16_t, decltype(d)> du;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    HWY_ALIGN std::uint16_t halves[hn::MaxLanes(d)];
    for (; i + lanes <= n; i += lanes) {
      std::memcpy(halves, bytes + i * 2, sizeof(std::uint16_t) * static_cast<std::size_t>(lanes));
      hn::StoreU(hn::PromoteTo(d, hn::BitCast(dh, hn::Load(du, halves))), d, to + i);
    }
  } else if constexpr (std::is_same_v<T, bool>) {
    const hn::ScalableTag<Real> d;
    const auto hidden = hn::Set(d, -std::numeric_limits<Real>::infinity());
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    if constexpr (sizeof(Real) == 4) {
      const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
      for (; i + lanes <= n; i += lanes) {
        const auto flags = hn::PromoteTo(du, hn::LoadU(d8, bytes + i));
        const auto off = hn::Eq(flags, hn::Zero(du));
        hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, off), hidden), d, to + i);
      }
    }
  }
  for (; i < n; ++i) to[i] = read_as<Real>(load<T>(from, i));
}

// What a matrix of bools holds. Any byte that is not 0 is true.
enum class Flags { all_false, all_true, mixed };

HWY_INLINE Flags scan_flags(const std::uint8_t* flags, std::int64_t row_stride, std::int64_t rows,
                            std::int64_t columns) {
  const hn::CappedTag<std::uint8_t, 16> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto least = hn::Set(d, std::uint8_t{255}), some = hn::Zero(d);
  std::uint8_t tail_least = 255, tail_some = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint8_t* row = flags + r * row_stride;
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      const auto bytes = hn::LoadU(d, row + c);
      least = hn::Min(least, bytes);
      some = hn::Or(some, bytes);
    }
    for (; c < columns; ++c) {
      tail_least = tail_least < row[c] ? tail_least : row[c];
      tail_some |= row[c];
    }
  }
  const bool any_false = tail_least == 0 || !hn::AllFalse(d, hn::Eq(least, hn::Zero(d)));
  const bool any_true = tail_some != 0 || !hn::AllTrue(d, hn::Eq(some, hn::Zero(d)));
  return !any_false ? Flags::all_true : any_true ? Flags::mixed : Flags::all_false;
}

// to[i] = from[i] rounded once to T, i < n. `to` may be unaligned.
template <typename T, typename Real>
HWY_INLINE void write_row(const Real* HWY_RESTRICT from, std::int64_t n, void* to) {
  if constexpr (std::is_same_v<T, Real>) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < n; ++i) store(to, i, static_cast<T>(from[i]));
  }
}

// What a transposition multiplies by on its way: nothing, one number, or a number for each column.
// apply: x holds columns [column, column + 4) in each of its 128-bit blocks; apply_row: all that
// follow.
template <typename Real>
struct Unscaled {
  template <class D>
  HWY_INLINE hn::Vec<D> apply_row(D, std::int64_t, hn::Vec<D> x) const {
    return x;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D, std::int64_t, hn::Vec<D> x) const {
    return x;
  }
  HWY_INLINE Real apply(std::int64_t, Real x) const { return x; }
};
template <typename Real>
struct ScaledAll {
  Real factor;
  template <class D>
  HWY_INLINE hn::Vec<D> apply_row(D d, std::int64_t, hn::Vec<D> x) const {
    return hn::Mul(x, hn::Set(d, factor));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, std::int64_t, hn::Vec<D> x) const {
    return hn::Mul(x, hn::Set(d, factor));
  }
  HWY_INLINE Real apply(std::int64_t, Real x) const { return x * factor; }
};
// And + 0: a sum that underflowed to -0 is 0, as it would be if 0 had been added to it.
template <typename Real>
struct ScaledColumns {
  const Real* HWY_RESTRICT factors;
  template <class D>
  HWY_INLINE hn::Vec<D> apply_row(D d, std::int64_t column, hn::Vec<D> x) const {
    return hn::MulAdd(x, hn::LoadU(d, factors + column), hn::Zero(d));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, std::int64_t column, hn::Vec<D> x) const {
    return hn::MulAdd(x, hn::LoadDup128(d, factors + column), hn::Zero(d));
  }
  HWY_INLINE Real apply(std::int64_t column, Real x) const { return x * factors[column] + Real{0}; }
};

#if HWY_TARGET != HWY_SCALAR
// Four floats of each of the rows 0, 4, 8, …, side by side: as many as the vector has 128-bit
// blocks, of which the last ones are 0 where only `used` are wanted.
template <int used, class D, class RowAt>
HWY_INLINE hn::Vec<D> load_blocks(D d, const RowAt& row_at, std::int64_t row) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, row_at(row));
  } else {
    const hn::Half<D> half;
    constexpr int kHalf = hn::MaxLanes(D()) / 2, kBlocks = kHalf / 4;
    if constexpr (used <= kBlocks) {
      return hn::ZeroExtendVector(d, load_blocks<used>(half, row_at, row));
    } else {
      return hn::Combine(d, load_blocks<used - kBlocks>(half, row_at, row + kHalf),
                         load_blocks<kBlocks>(half, row_at, row));
    }
  }
}

#if HWY_TARGET == HWY_AVX3
// to[c][0 … 16) = column c of 16 rows, for 16 columns: whole rows are loaded, and turned first
// within 128-bit blocks, then block by block.
template <class D, class RowAt, class Scale>
HWY_INLINE void transpose_square(D d, const RowAt& row_at, std::int64_t column,
                                 float* HWY_RESTRICT to, std::int64_t to_stride,
                                 const Scale scale) {
  const hn::RepartitionToWide<decltype(d)> dw;
  using V = hn::Vec<D>;
  V part[4][4];  // [rows 4q … 4q + 3][m]: in block b, their column 4b + m
  HWY_UNROLL(4)
  for (int q = 0; q < 4; ++q) {
    const auto row = [&](int r) HWY_ATTR {
      return scale.apply_row(d, column, hn::LoadU(d, row_at(4 * q + r) + column));
    };
    const V a0 = row(0), a1 = row(1), a2 = row(2), a3 = row(3);
    const auto b0 = hn::BitCast(dw, hn::InterleaveLower(d, a0, a1));
    const auto b1 = hn::BitCast(dw, hn::InterleaveLower(d, a2, a3));
    const auto b2 = hn::BitCast(dw, hn::InterleaveUpper(d, a0, a1));
    const auto b3 = hn::BitCast(dw, hn::InterleaveUpper(d, a2, a3));
    part[q][0] = hn::BitCast(d, hn::InterleaveLower(dw, b0, b1));
    part[q][1] = hn::BitCast(d, hn::InterleaveUpper(dw, b0, b1));
    part[q][2] = hn::BitCast(d, hn::InterleaveLower(dw, b2, b3));
    part[q][3] = hn::BitCast(d, hn::InterleaveUpper(dw, b2, b3));
  }
  HWY_UNROLL(4)
  for (int m = 0; m < 4; ++m) {
    const __m512 p0 = part[0][m].raw, p1 = part[1][m].raw;
    const __m512 p2 = part[2][m].raw, p3 = part[3][m].raw;
    const __m512 low01 = _mm512_shuffle_f32x4(p0, p1, 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(p0, p1, 0xee);
    const __m512 low23 = _mm512_shuffle_f32x4(p2, p3, 0x44);
    const __m512 high23 = _mm512_shuffle_f32x4(p2, p3, 0xee);
    float* into = to + m * to_stride;
    hn::StoreU(V{_mm512_shuffle_f32x4(low01, low23, 0x88)}, d, into);
    hn::StoreU(V{_mm512_shuffle_f32x4(low01, low23, 0xdd)}, d, into + 4 * to_stride);
    hn::StoreU(V{_mm512_shuffle_f32x4(high01, high23, 0x88)}, d, into + 8 * to_stride);
    hn::StoreU(V{_mm512_shuffle_f32x4(high01, high23, 0xdd)}, d, into + 12 * to_stride);
  }
}
#endif

// to[c][0 … N) = column c of N rows, for as many columns as come in fours; returns how many. Only
// the first 4·used rows are read, lanes of the others are 0. Blocks of 4×4 are turned within the
// vector, whatever its width, so that whole vectors are stored: who reads them next would wait for
// stores of parts.
template <int used, class D, class RowAt, class Scale>
HWY_INLINE std::int64_t transpose_vector(D d, const RowAt& row_at, std::int64_t columns,
                                         float* HWY_RESTRICT to, std::int64_t to_stride,
                                         const Scale scale) {
  const hn::RepartitionToWide<decltype(d)> dw;
  std::int64_t c = 0;
#if HWY_TARGET == HWY_AVX3
  if constexpr (used == 4 && hn::MaxLanes(D()) == 16) {
    for (; c + 16 <= columns; c += 16) {
      transpose_square(d, row_at, c, to + c * to_stride, to_stride, scale);
    }
  }
#endif
  for (; c + 4 <= columns; c += 4) {
    const auto at = [&](std::int64_t row) HWY_ATTR { return row_at(row) + c; };
    const auto a0 = scale.apply(d, c, load_blocks<used>(d, at, 0));
    const auto a1 = scale.apply(d, c, load_blocks<used>(d, at, 1));
    const auto a2 = scale.apply(d, c, load_blocks<used>(d, at, 2));
    const auto a3 = scale.apply(d, c, load_blocks<used>(d, at, 3));
    const auto b0 = hn::BitCast(dw, hn::InterleaveLower(d, a0, a1));
    const auto b1 = hn::BitCast(dw, hn::InterleaveLower(d, a2, a3));
    const auto b2 = hn::BitCast(dw, hn::InterleaveUpper(d, a0, a1));
    const auto b3 = hn::BitCast(dw, hn::InterleaveUpper(d, a2, a3));
    float* into = to + c * to_stride;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, b0, b1)), d, into);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, b0, b1)), d, into + to_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, b2, b3)), d, into + 2 * to_stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, b2, b3)), d, into + 3 * to_stride);
  }
  return c;
}

// The rows from r on, a vector of D at a time; returns the first row that is left.
template <class D, class Scale>
HWY_INLINE std::int64_t transpose_vectors(D d, const float* HWY_RESTRICT from,
                                          std::int64_t from_stride, std::int64_t rows,
                                          std::int64_t columns, float* HWY_RESTRICT to,
                                          std::int64_t to_stride, const Scale scale,
                                          std::int64_t r) {
  constexpr std::int64_t N = hn::MaxLanes(D());
  for (; r + N <= rows; r += N) {
    const float* base = from + r * from_stride;
    const auto row_at = [=](std::int64_t row) HWY_ATTR { return base + row * from_stride; };
    for (std::int64_t c = transpose_vector<N / 4>(d, row_at, columns, to + r, to_stride, scale);
         c < columns; ++c) {
      for (std::int64_t k = 0; k < N; ++k) to[c * to_stride + r + k] = scale.apply(c, row_at(k)[c]);
    }
  }
  return r;
}
#endif

// to[c][r] = from[r][c], for r < rows, c < columns. Strides in elements.
template <typename Real, class Scale = Unscaled<Real>>
HWY_INLINE void transpose(const Real* HWY_RESTRICT from, std::int64_t from_stride,
                          std::int64_t rows, std::int64_t columns, Real* HWY_RESTRICT to,
                          std::int64_t to_stride, const Scale scale = Scale()) {
  std::int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(Real) == 4) {
    const hn::ScalableTag<float> d;
    r = transpose_vectors(d, from, from_stride, rows, columns, to, to_stride, scale, r);
    if constexpr (hn::MaxLanes(d) > 4) {
      const hn::FixedTag<float, 4> d4;
      r = transpose_vectors(d4, from, from_stride, rows, columns, to, to_stride, scale, r);
    }
  }
#endif
  for (; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      to[c * to_stride + r] = scale.apply(c, from[r * from_stride + c]);
  }
}

// The same for a `to` whose rows have room for whole vectors. Lanes past the last row are a row's
// that exists, or 0.
template <class D, typename Real, class Scale>
HWY_INLINE void transpose_filling([[maybe_unused]] D d, const Real* HWY_RESTRICT from,
                                  std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                                  Real* HWY_RESTRICT to, std::int64_t to_stride,
                                  const Scale scale) {
  constexpr std::int64_t N = hn::MaxLanes(D());
  for (std::int64_t r = 0; r < rows; r += N) {
    const auto row_at = [=](std::int64_t row) HWY_ATTR {
      return from + (r + row < rows ? r + row : rows - 1) * from_stride;
    };
    std::int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (sizeof(Real) == 4) {
      const auto turn = [&](auto used, const auto& at) HWY_ATTR {
        return transpose_vector<used.value>(d, at, columns, to + r, to_stride, scale);
      };
      if (r + N <= rows) {
        const Real* base = from + r * from_stride;
        const auto inside = [=](std::int64_t row) HWY_ATTR { return base + row * from_stride; };
        c = turn(std::integral_constant<int, N / 4>(), inside);
      } else if (N > 4 && r + 4 >= rows) {
        c = turn(std::integral_constant<int, 1>(), row_at);
      } else if (N > 8 && r + 8 >= rows) {
        c = turn(std::integral_constant<int, N / 8>(), row_at);
      } else {
        c = turn(std::integral_constant<int, N / 4>(), row_at);
      }
    }
#endif
    for (; c < columns; ++c) {
      for (std::int64_t k = 0; k < N; ++k) to[c * to_stride + r + k] = scale.apply(c, row_at(k)[c]);
    }
  }
}

// Rows a multiple of 2 KB apart fall into few sets of the first cache, and push each other out
// while a transposition goes along them: these are copied first. Returns where they are; `stride`
// follows.
template <typename Real>
HWY_INLINE const Real* spread_rows(const Real* from, std::int64_t& stride, std::int64_t rows,
                                   std::int64_t columns, Real* HWY_RESTRICT stage) {
  if (stride * static_cast<std::int64_t>(sizeof(Real)) % 2048 != 0 || rows <= 8) return from;
#if HWY_TARGET == HWY_AVX3
  // Squares take lines whole, and need them once.
  if (sizeof(Real) == 4 && reinterpret_cast<std::uintptr_t>(from) % 64 == 0) return from;
#endif
  for (std::int64_t r = 0; r < rows; ++r)
    read_row<Real>(from + r * stride, columns, stage + r * columns);
  stride = columns;
  return stage;
}

// A matrix in a caller's memory: any dtype, any strides (in elements), 0 included.
struct ForeignMatrix {
  const void* data;
  DType dtype;
  std::int64_t row_stride, column_stride;
};

template <typename T>
HWY_INLINE const void* element_at(const void* base, std::int64_t index) {
  return static_cast<const std::byte*>(base) + index * static_cast<std::int64_t>(sizeof(T));
}

template <typename T, typename Real>
void read_matrix_of(const ForeignMatrix& from, std::int64_t rows, std::int64_t columns,
                    Real* HWY_RESTRICT to, std::int64_t to_stride, Real* HWY_RESTRICT stage) {
  if (from.column_stride == 1) {
    for (std::int64_t r = 0; r < rows; ++r) {
      read_row<T>(element_at<T>(from.data, r * from.row_stride), columns, to + r * to_stride);
    }
  } else if (from.column_stride == 0) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const Real value = read_as<Real>(load<T>(from.data, r * from.row_stride));
      for (std::int64_t c = 0; c < columns; ++c) to[r * to_stride + c] = value;
    }
  } else if (from.row_stride == 1) {
    if constexpr (std::is_same_v<T, Real>) {
      if (reinterpret_cast<std::uintptr_t>(from.data) % alignof(Real) == 0) {
        std::int64_t stride = from.column_stride;
        const Real* source =
            spread_rows(static_cast<const Real*>(from.data), stride, columns, rows, stage);
        transpose(source, stride, columns, rows, to, to_stride);
        return;
      }
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      read_row<T>(element_at<T>(from.data, c * from.column_stride), rows, stage + c * rows);
    }
    transpose(stage, rows, columns, rows, to, to_stride);
  } else {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        to[r * to_stride + c] =
            read_as<Real>(load<T>(from.data, r * from.row_stride + c * from.column_stride));
      }
    }
  }
}

// to[r][c] = from[r][c], converted. `stage` has room for rows·columns.
template <typename Real>
void read_matrix(const ForeignMatrix& from, std::int64_t rows, std::int64_t columns, Real* to,
                 std::int64_t to_stride, Real* stage) {
  switch (from.dtype) {
    case DType::f32: return read_matrix_of<float>(from, rows, columns, to, to_stride, stage);
    case DType::f64: return read_matrix_of<double>(from, rows, columns, to, to_stride, stage);
    case DType::f16: return read_matrix_of<f16>(from, rows, columns, to, to_stride, stage);
    case DType::bf16: return read_matrix_of<bf16>(from, rows, columns, to, to_stride, stage);
    default: return read_matrix_of<bool>(from, rows, columns, to, to_stride, stage);
  }
}

// A matrix in a caller's memory to write to.
struct ForeignOutput {
  void* data;
  DType dtype;
  std::int64_t row_stride, column_stride;
};

template <typename T, typename Real, class Scale>
void write_matrix_of(const Real* HWY_RESTRICT from, std::int64_t from_stride, std::int64_t rows,
                     std::int64_t columns, const ForeignOutput& to, const Scale& scale,
                     Real* HWY_RESTRICT stage) {
  auto* base = static_cast<std::byte*>(to.data);
  const std::int64_t size = sizeof(T);
  if (to.row_stride == 1 && to.column_stride != 1) {
    if constexpr (std::is_same_v<T, Real>) {
      if (reinterpret_cast<std::uintptr_t>(to.data) % alignof(Real) == 0) {
        transpose(from, from_stride, rows, columns, static_cast<Real*>(to.data), to.column_stride,
                  scale);
        return;
      }
    }
    transpose(from, from_stride, rows, columns, stage, rows, scale);
    for (std::int64_t c = 0; c < columns; ++c) {
      write_row<T>(stage + c * rows, rows, base + c * to.column_stride * size);
    }
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      stage[c] = scale.apply(c, from[r * from_stride + c]);
    }
    if (to.column_stride == 1) {
      write_row<T>(stage, columns, base + r * to.row_stride * size);
    } else {
      for (std::int64_t c = 0; c < columns; ++c) {
        store(to.data, r * to.row_stride + c * to.column_stride, static_cast<T>(stage[c]));
      }
    }
  }
}

// to[r][c] = from[r][c] (times the scale of column c), rounded once to the dtype. `stage` has room
// for rows·columns.
template <typename Real, class Scale = Unscaled<Real>>
void write_matrix(const Real* from, std::int64_t from_stride, std::int64_t rows,
                  std::int64_t columns, const ForeignOutput& to, Real* stage,
                  const Scale& scale = Scale()) {
  switch (to.dtype) {
    case DType::f64:
      return write_matrix_of<double>(from, from_stride, rows, columns, to, scale, stage);
    case DType::f16:
      return write_matrix_of<f16>(from, from_stride, rows, columns, to, scale, stage);
    case DType::bf16:
      return write_matrix_of<bf16>(from, from_stride, rows, columns, to, scale, stage);
    default: return write_matrix_of<float>(from, from_stride, rows, columns, to, scale, stage);
  }
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
