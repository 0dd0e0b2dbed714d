// Scores and weights that a caller of the fused forward asked for: the same products again, now
// that the sums are known. Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_FUSED_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_FUSED_STAGES_INL_H_
#undef QKV_KERNELS_ATTENTION_FUSED_STAGES_INL_H_
#else
#define QKV_KERNELS_ATTENTION_FUSED_STAGES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/attention/fused-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {

template <class D>
void FusedRun<D>::write_stages(const Stages& stages) {
  if (!stages.any()) return;
  write_missing(stages);
  for (std::int64_t begin = 0; begin < seq_.key_length; begin = key_end_) {
    enter_step(begin, 1, seq_.key_length);
    for (std::int64_t b = 0; b < blocks_; ++b) write_stages_of(block(b), w_.keys[b], stages);
  }
}

template <class D>
void FusedRun<D>::write_stages_of(const Block& b, const BlockKeys& seen, const Stages& stages) {
  const std::int64_t n = key_end_ - key_begin_;
  HWY_ALIGN Real largest[kMaxVectors * N];
  scores(b, Reach(n), k_.from(key_begin_), w_.s, largest);
  const ScoreTile<D> tile{w_.s, n, b.vectors};
  write_tile(b, tile, stages.scores);
  if (stages.softcapped.data != nullptr) {
    // In another tile: what follows starts from the product.
    const ScoreTile<D> capped{w_.hidden, n, b.vectors};
    std::copy(tile.s, tile.s + tile.size(), capped.s);
    if (p_.softcap != 0) capped.softcap(static_cast<Real>(p_.softcap));
    write_tile(b, capped, stages.softcapped);
  }
  if (stages.masked.data == nullptr && stages.weights.data == nullptr) return;
  const bool data = p_.mask.has_value() || p_.bias.has_value();
  adjust(b, tile, key_begin_);
  if (data) {
    hide(b, seen, read_addend(b, key_begin_, n, p_.mask.has_value()), key_begin_, nullptr, nullptr);
    tile.add(w_.addend, largest);
  } else {
    structure_as_addend(b, seen, key_begin_, n);
    hide(b, seen, tile, key_begin_, nullptr, nullptr);
  }
  write_tile(b, tile, stages.masked);
  if (stages.weights.data == nullptr) return;
  tile.weights(b.max, b.sum, b.seen, w_.addend);
  write_tile(b, tile, stages.weights);
}

// tile[j][query] to stage[query][key], for the keys of this block.
template <class D>
void FusedRun<D>::write_tile(const Block& b, const ScoreTile<D>& tile, const Rows& stage) {
  if (stage.data == nullptr) return;
  const std::int64_t offset =
      b.row * stage.query_stride + (seq_.key_begin + key_begin_) * stage.key_stride;
  write_matrix(
      tile.s, b.width(), tile.keys, b.rows,
      {stage.data + bytes(offset, stage.dtype), stage.dtype, stage.key_stride, stage.query_stride},
      w_.stage);
}

// Keys that do not exist: past the length, or of other sequences.
template <class D>
void FusedRun<D>::write_missing(const Stages& stages) {
  const auto fill = [&](const Rows& stage, Real value) {
    if (stage.data == nullptr) return;
    const std::int64_t begin = seq_.key_begin, end = begin + seq_.key_length;
    for (std::int64_t i = 0; i < unit_.query_count; ++i) {
      for (std::int64_t j = 0; j < p_.Tk; ++j) {
        if (begin <= j && j < end) continue;
        const std::int64_t index = i * stage.query_stride + j * stage.key_stride;
        write_matrix(&value, 1, 1, 1, {stage.data + bytes(index, stage.dtype), stage.dtype, 1, 1},
                     w_.stage);
      }
    }
  };
  fill(stages.scores, -kInfinity);
  fill(stages.softcapped, -kInfinity);
  fill(stages.masked, -kInfinity);
  fill(stages.weights, Real{0});
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
