// K or V of a head, as the tiles of the fused forward read it. Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_OPERAND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_OPERAND_INL_H_
#undef QKV_KERNELS_ATTENTION_OPERAND_INL_H_
#else
#define QKV_KERNELS_ATTENTION_OPERAND_INL_H_
#endif

#include <cstdint>

#include "kernels/attention/tile-inl.h"
#include "kernels/simd/matrix-inl.h"
#include "qkv/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether elements can be read and written as they are.
template <typename Real>
bool holds_real(DType dtype, const void* data) {
  return dtype == (sizeof(Real) == 4 ? DType::f32 : DType::f64) &&
         reinterpret_cast<std::uintptr_t>(data) % alignof(Real) == 0;
}

// Whether all elements of so many tokens are numbers.
template <class D>
bool all_finite(D d, const TileRows<hn::TFromD<D>>& v, std::int64_t keys, std::int64_t columns) {
  using Real = hn::TFromD<D>;
  using V = hn::Vec<D>;
  constexpr std::int64_t N = hn::MaxLanes(D());
  const std::int64_t rows = v.turned() ? columns : keys, length = v.turned() ? keys : columns;
  // 0·x is 0, or NaN; in four chains, since one would wait for itself.
  V zero[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  Real tail = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const Real* row = v.data + r * (v.turned() ? v.column_stride : v.token_stride);
    const auto look = [&](V& chain, std::int64_t at) HWY_ATTR {
      chain = hn::MulAdd(hn::LoadU(d, row + at), hn::Zero(d), chain);
    };
    std::int64_t c = 0;
    for (; c + 4 * N <= length; c += 4 * N) {
      look(zero[0], c);
      look(zero[1], c + N);
      look(zero[2], c + 2 * N);
      look(zero[3], c + 3 * N);
    }
    for (; c + N <= length; c += N) look(zero[0], c);
    for (; c < length; ++c) tail += row[c] * Real{0};
  }
  const V all = hn::Add(hn::Add(zero[0], zero[1]), hn::Add(zero[2], zero[3]));
  return hn::AllTrue(d, hn::Eq(all, hn::Zero(d))) && tail == 0;
}

// In place where it can be: as rows of tokens, or turned, as a channel-first image has it. Else a
// step of keys is copied when it is first asked for.
template <typename Real>
class Operand {
 public:
  Operand() = default;
  // `token` is where the sequence begins, as an offset in elements. `passes`: how many blocks of
  // queries will read it. `by_vectors`: columns are read as vectors of so many; 0: one by one, and
  // then it may be turned.
  Operand(const TensorView& view, std::int64_t token, std::int64_t passes, std::int64_t by_vectors,
          Real* copy, Real* stage)
      : data_(static_cast<const std::byte*>(view.data()) +
              token * static_cast<std::int64_t>(size_of(view.dtype()))),
        dtype_(view.dtype()),
        token_stride_(view.stride(2)),
        column_stride_(view.stride(3)),
        columns_(view.dim(3)),
        copy_(copy),
        stage_(stage) {
    if (!holds_real<Real>(dtype_, data_)) return;
    // Rows far apart fall into few sets of the cache, and out of the prefetcher's sight: if several
    // blocks read them, a copy pays.
    if (column_stride_ == 1) in_place_ = token_stride_ == columns_ || passes < 4;
    // So it does for vectors that lie across two lines of the cache (NumPy aligns to 16 bytes).
    if (by_vectors > 0 && passes >= 3) in_place_ = in_place_ && is_aligned_to(by_vectors);
    // Lines of a multiple of 1 KB apart would meet in a few sets of the first cache.
    if (token_stride_ == 1 && column_stride_ != 1 && by_vectors == 0) {
      in_place_ = column_stride_ * static_cast<std::int64_t>(sizeof(Real)) % 1024 != 0;
    }
  }

  // The step [begin, end) of keys is what is asked for from now on.
  void enter(std::int64_t begin, std::int64_t end) {
    begin_ = begin;
    end_ = end;
    ready_ = false;
  }

  // Its keys from `first` on.
  TileRows<Real> from(std::int64_t first) {
    const auto at = [&](std::int64_t token) {
      return data_ + token * token_stride_ * static_cast<std::int64_t>(size_of(dtype_));
    };
    if (in_place_) {
      return {reinterpret_cast<const Real*>(at(first)), token_stride_, column_stride_};
    }
    if (!ready_) {
      read_matrix<Real>({at(begin_), dtype_, token_stride_, column_stride_}, end_ - begin_,
                        columns_, copy_, columns_, stage_);
      ready_ = true;
    }
    return {copy_ + (first - begin_) * columns_, columns_, 1};
  }

 private:
  bool is_aligned_to(std::int64_t elements) const {
    const std::int64_t bytes = elements * static_cast<std::int64_t>(sizeof(Real));
    return reinterpret_cast<std::uintptr_t>(data_) % static_cast<std::uintptr_t>(bytes) == 0 &&
           token_stride_ % elements == 0;
  }

  const std::byte* data_ = nullptr;
  DType dtype_ = DType::f32;
  std::int64_t token_stride_ = 0, column_stride_ = 0, columns_ = 0;
  Real *copy_ = nullptr, *stage_ = nullptr;
  bool in_place_ = false, ready_ = false;
  std::int64_t begin_ = 0, end_ = 0;
};

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
