// The product of the weights that wait with V, in the fused forward. Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_FUSED_WEIGH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_FUSED_WEIGH_INL_H_
#undef QKV_KERNELS_ATTENTION_FUSED_WEIGH_INL_H_
#else
#define QKV_KERNELS_ATTENTION_FUSED_WEIGH_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/fused-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {

template <class D>
inline void FusedRun<D>::weigh_waiting(const Block& b, BlockKeys& seen) {
  if (waiting_.keys > 0) {
    by_rows_ ? weigh_rows(b, seen) : weigh(b, seen);
    seen.untouched = false;
  }
  waiting_ = {waiting_.end(b)};
}

template <class D>
inline void FusedRun<D>::weigh(const Block& b, BlockKeys& seen) {
  const std::int64_t width = b.width();
  bool from_zero = seen.untouched;
  if (from_zero && waiting_.reach.keys[0] == 0) {
    b.out.clear();
    from_zero = false;
  }
  HWY_ALIGN Real inverse[kMaxVectors * N];
  typename T::Final final;
  if (waiting_.whole && b.rows == width && p_.out.stride(2) == 1) {
    final = end_sums(b, seen, inverse);
  }
  const TileRows<Real> v = v_.from(waiting_.first);
  each_part(b, waiting_.reach, [&](auto vectors, int q, std::int64_t from, std::int64_t to) {
    const Real* p = waiting_.p + from * width + q * N;
    T::template weigh<vectors.value>(p, width, v.from(from), to - from, from_zero, p_.Dv,
                                     b.out.at(0, q), final, ahead_);
    from_zero = false;
  });
}

// The same with lanes that are columns, some vectors of them at a time.
template <class D>
inline void FusedRun<D>::weigh_rows(const Block& b, BlockKeys& seen) {
  HWY_ALIGN Real inverse[kMaxVectors * N];
  const typename T::Final final = end_sums(b, seen, inverse);
  const TileRows<Real> v = v_.from(waiting_.first);
  const auto keys_of = [&](std::int64_t row, std::int64_t count) {
    if (waiting_.whole) return waiting_.keys;
    const std::int64_t* end = w_.end + b.row + row;
    const std::int64_t last = std::max(prefix_, *std::max_element(end, end + count));
    return std::clamp<std::int64_t>(last - waiting_.first, 0, waiting_.keys);
  };
  const std::int64_t vectors = p_.Dv / N, parts = (vectors + kMaxVectors - 1) / kMaxVectors;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t from = vectors * part / parts, to = vectors * (part + 1) / parts;
    const auto weigh = [&](auto count) {
      typename T::Final end = final;
      if (end.to != nullptr) end.to += from * N;
      T::template weigh_rows<count.value>(waiting_.p, b.width(), v.data + from * N, v.token_stride,
                                          keys_of, seen.untouched, b.rows, b.out.o + from * N,
                                          p_.Dv, end, ahead_);
    };
    switch (to - from) {
      case 2: weigh(std::integral_constant<int, 2>()); break;
      case 3: weigh(std::integral_constant<int, 3>()); break;
      default:
        if constexpr (kMaxVectors > 3) weigh(std::integral_constant<int, 4>());
    }
  }
}

// After these keys there are no more for the block: its sums go where the caller wants them, if
// they can.
template <class D>
inline typename FusedRun<D>::T::Final FusedRun<D>::end_sums(const Block& b, BlockKeys& seen,
                                                            Real* inverse) const {
  if (waiting_.key_end < std::max(seen.last_end, prefix_) || !may_write_sums_) return {};
  invert_sums(b, inverse);
  seen.written = true;
  const MutableTensorView& out = p_.out;
  return {static_cast<Real*>(out.data()) + offset_in(out, b), out.stride(by_rows_ ? 2 : 3),
          inverse};
}

// Whether all values of this step's keys are numbers.
template <class D>
inline bool FusedRun<D>::values_finite() {
  if (!v_checked_) {
    v_finite_ = all_finite(d, v_.from(step_begin_), step_end_ - step_begin_, p_.Dv);
    v_checked_ = true;
  }
  return v_finite_;
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
