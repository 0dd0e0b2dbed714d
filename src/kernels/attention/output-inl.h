// O of a block of queries while keys go past: what is done to it besides the products. Included
// once for each target.

#if defined(QKV_KERNELS_ATTENTION_OUTPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_OUTPUT_INL_H_
#undef QKV_KERNELS_ATTENTION_OUTPUT_INL_H_
#else
#define QKV_KERNELS_ATTENTION_OUTPUT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/attention.h"
#include "kernels/attention/tile-inl.h"
#include "kernels/simd/matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// O lies in one of two ways, with the same bits: by rows, where lanes are columns, no lane is
// without a query and rows go out as they are; or with lanes that are queries, which suits an
// output that is channel-first, and any number of columns.
template <class D>
struct OutputTile {
  using Real = hn::TFromD<D>;
  using V = hn::Vec<D>;
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());

  Real* o;  // [queries][columns] by rows, else [columns][vectors·N]
  std::int64_t queries, columns;
  int vectors;
  bool by_rows;

  // Whether the output of a problem lies by rows.
  static bool is_by_rows(const AttentionProblem& p) {
    return p.out.stride(3) == 1 && p.Dv % N == 0 && p.Dv >= 2 * N && N > 1;
  }

  Real* at(std::int64_t column, int v) const { return o + (column * vectors + v) * N; }

  void clear() const { std::fill(o, o + columns * vectors * N, Real{0}); }

  void scale_query(std::int64_t query, Real factor) const {
    if (!by_rows) {
      for (std::int64_t c = 0; c < columns; ++c) o[c * vectors * N + query] *= factor;
      return;
    }
    Real* row = o + query * columns;
    for (std::int64_t c = 0; c < columns; c += N) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + c), hn::Set(d, factor)), d, row + c);
    }
  }

  // The queries of a vector, each by its lane.
  void scale(int v, V factor) const {
    if (!by_rows) {
      for (std::int64_t c = 0; c < columns; ++c) {
        hn::StoreU(hn::Mul(hn::LoadU(d, at(c, v)), factor), d, at(c, v));
      }
      return;
    }
    HWY_ALIGN Real factors[N];
    hn::Store(factor, d, factors);
    const std::int64_t end = std::min<std::int64_t>(N, queries - v * N);
    for (std::int64_t l = 0; l < end; ++l) {
      if (factors[l] != 1) scale_query(v * N + l, factors[l]);
    }
  }

  // O += P·V for n keys, where weights of -0 mark what is hidden and adds nothing.
  void weigh_carefully(const Real* p, const TileRows<Real>& v, std::int64_t n) const {
    if (by_rows) return weigh_rows_carefully(p, v.data, v.token_stride, n);
    const hn::RebindToUnsigned<D> du;
    const auto minus_zero = hn::BitCast(du, hn::Set(d, Real{-0.0}));
    for (std::int64_t c = 0; c < columns; ++c) {
      for (int q = 0; q < vectors; ++q) {
        V sum = hn::LoadU(d, at(c, q));
        for (std::int64_t j = 0; j < n; ++j) {
          const V weight = hn::LoadU(d, p + (j * vectors + q) * N);
          const auto off = hn::RebindMask(d, hn::Eq(hn::BitCast(du, weight), minus_zero));
          const V next = hn::MulAdd(hn::Set(d, *v.from(j, c).data), weight, sum);
          sum = hn::IfThenElse(off, sum, next);
        }
        hn::StoreU(sum, d, at(c, q));
      }
    }
  }

  // O times a factor for each query, rounded once to the caller's dtype. `stage` has room for it.
  void write(const Real* factors, const MutableTensorView& out, std::int64_t offset,
             Real* stage) const {
    auto* data = static_cast<std::byte*>(out.data()) +
                 offset * static_cast<std::int64_t>(size_of(out.dtype()));
    if (!by_rows) {
      write_matrix(o, vectors * N, columns, queries,
                   {data, out.dtype(), out.stride(3), out.stride(2)}, stage,
                   ScaledColumns<Real>{factors});
      return;
    }
    const ForeignOutput to{data, out.dtype(), out.stride(2), 1};
    switch (out.dtype()) {
      case DType::f64: return write_rows<double>(factors, to, stage);
      case DType::f16: return write_rows<f16>(factors, to, stage);
      case DType::bf16: return write_rows<bf16>(factors, to, stage);
      default: return write_rows<float>(factors, to, stage);
    }
  }

 private:
  void weigh_rows_carefully(const Real* p, const Real* v, std::int64_t stride,
                            std::int64_t n) const {
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t c = 0; c < columns; c += N) {
        Real* at = o + i * columns + c;
        V sum = hn::LoadU(d, at);
        for (std::int64_t j = 0; j < n; ++j) {
          const Real weight = p[j * vectors * N + i];
          if (weight == 0 && std::signbit(weight)) continue;
          sum = hn::MulAdd(hn::LoadU(d, v + j * stride + c), hn::Set(d, weight), sum);
        }
        hn::StoreU(sum, d, at);
      }
    }
  }

  // + 0, as in ScaledColumns: a sum that underflowed to -0 is 0.
  template <typename T>
  void write_rows(const Real* factors, const ForeignOutput& to, Real* stage) const {
    const bool in_place =
        std::is_same_v<T, Real> && reinterpret_cast<std::uintptr_t>(to.data) % alignof(T) == 0;
    for (std::int64_t i = 0; i < queries; ++i) {
      void* at = static_cast<std::byte*>(to.data) +
                 i * to.row_stride * static_cast<std::int64_t>(sizeof(T));
      Real* row = in_place ? static_cast<Real*>(at) : stage;
      const V factor = hn::Set(d, factors[i]);
      for (std::int64_t c = 0; c < columns; c += N) {
        const V sum = hn::LoadU(d, o + i * columns + c);
        hn::StoreU(hn::MulAdd(sum, factor, hn::Zero(d)), d, row + c);
      }
      if (!in_place) write_row<T>(stage, columns, at);
    }
  }
};

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
