// The end of a block of the fused forward: sink, division by the sum, output and log-sum-exp.
// Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_FUSED_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_FUSED_FINISH_INL_H_
#undef QKV_KERNELS_ATTENTION_FUSED_FINISH_INL_H_
#else
#define QKV_KERNELS_ATTENTION_FUSED_FINISH_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "kernels/attention/fused-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {

// Adds the sink to the sum; returns false if there is none.
template <class D>
inline bool FusedRun<D>::add_sink(const Block& b, bool with_output) {
  if (!p_.sinks.has_value()) return false;
  const Real sink = load_real<Real>(p_.sinks, unit_.head * p_.sinks.stride(0));
  if (sink == -kInfinity) return false;
  for (std::int64_t i = 0; i < b.rows; ++i) {
    if (b.seen[i] == 0) continue;
    Real factor = 1;
    if (sink > b.max[i]) {
      factor = Relative::exp_between(b.max[i], sink);
      b.max[i] = sink;
    }
    b.sum[i] = b.sum[i] * factor + Relative::exp_of(sink, b.max[i]);
    if (with_output && factor != 1) b.out.scale_query(i, factor);
  }
  return true;
}

// What O is multiplied by at the end: 1 / l; 0 where nothing was seen.
template <class D>
inline void FusedRun<D>::invert_sums(const Block& b, Real* inverse) const {
  for (int v = 0; v < b.vectors; ++v) {
    const auto seen = hn::Ne(hn::LoadU(d, b.seen + v * N), hn::Zero(d));
    const V one_over = hn::Div(hn::Set(d, Real{1}), hn::LoadU(d, b.sum + v * N));
    hn::Store(hn::IfThenElseZero(seen, one_over), d, inverse + v * N);
  }
}

// Where the block's first query is in a view like the output.
template <class D>
inline std::int64_t FusedRun<D>::offset_in(const TensorView& view, const Block& b) const {
  return seq_.batch * view.stride(0) + unit_.head * view.stride(1) +
         (first_query() + b.row) * view.stride(2);
}

template <class D>
inline void FusedRun<D>::finish(const Block& b, const BlockKeys& keys) {
  if (keys.untouched) b.out.clear();
  const bool sink = add_sink(b, true);
  if (!keys.written) {
    HWY_ALIGN Real inverse[kMaxVectors * N];
    invert_sums(b, inverse);
    b.out.write(inverse, p_.out, offset_in(p_.out, b), w_.stage);
  }
  if (!p_.stages.lse.has_value()) return;
  const MutableTensorView& lse = p_.stages.lse;
  for (std::int64_t i = 0; i < b.rows; ++i) {
    Real value = -kInfinity;
    if (b.seen[i] != 0) {
      // All that is seen may be -inf: then there is no maximum to be relative to.
      value = b.sum[i] == 0 ? std::numeric_limits<Real>::quiet_NaN()
                            : Relative::log_sum(b.max[i], b.sum[i]);
    } else if (sink) {
      value = load_real<Real>(p_.sinks, unit_.head * p_.sinks.stride(0));
    }
    store_real(lse,
               seq_.batch * lse.stride(0) + unit_.head * lse.stride(1) +
                   (first_query() + b.row + i) * lse.stride(2),
               value);
  }
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
