// What changes a score of the fused forward after the product: softcap, ALiBi, bias, and what hides
// keys. Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_FUSED_ADJUST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_FUSED_ADJUST_INL_H_
#undef QKV_KERNELS_ATTENTION_FUSED_ADJUST_INL_H_
#else
#define QKV_KERNELS_ATTENTION_FUSED_ADJUST_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/attention/fused-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {

// Everything after the product but bias and mask.
template <class D>
inline void FusedRun<D>::adjust(const Block& b, const ScoreTile<D>& tile,
                                std::int64_t first) const {
  if (p_.softcap != 0) tile.softcap(static_cast<Real>(p_.softcap));
  if (p_.alibi.has_value()) {
    tile.alibi(slope_, unit_.query_begin + b.row + seq_.offset - first);
  }
}

// `seen`, `largest`: as in ScoreTile::hide.
template <class D>
inline void FusedRun<D>::hide(const Block& b, const BlockKeys& keys, const ScoreTile<D>& tile,
                              std::int64_t first, Real* seen, Real* largest) const {
  const bool ends_only = keys.last_begin <= first && prefix_ <= first;
  const std::int64_t visible =
      keys.last_begin <= first ? std::clamp<std::int64_t>(keys.first_end - first, 0, tile.keys) : 0;
  tile.hide({first, visible, w_.begin + b.row, w_.end + b.row, b.rows, prefix_, ends_only}, seen,
            largest);
}

// The addend of a call that has neither bias nor mask.
template <class D>
inline void FusedRun<D>::structure_as_addend(const Block& b, const BlockKeys& keys,
                                             std::int64_t first, std::int64_t n) const {
  const ScoreTile<D> addend{w_.addend, n, b.vectors};
  std::fill(addend.s, addend.s + addend.size(), Real{0});
  hide(b, keys, addend, first, nullptr, nullptr);
}

// addend[j][query] = bias, -inf where the mask hides. Lanes past the last query: hidden.
template <class D>
inline ScoreTile<D> FusedRun<D>::read_addend(const Block& b, std::int64_t first, std::int64_t n,
                                             bool with_mask) {
  const std::int64_t width = b.width();
  const auto read = [&](const TensorView& view, Real* to) {
    const std::int64_t offset = seq_.batch * view.stride(0) + unit_.head * view.stride(1) +
                                (first_query() + b.row) * view.stride(2) +
                                (seq_.key_begin + first) * view.stride(3);
    const auto* data = static_cast<const std::byte*>(view.data()) + bytes(offset, view.dtype());
    read_matrix<Real>({data, view.dtype(), view.stride(3), view.stride(2)}, n, b.rows, to, width,
                      w_.stage);
    for (std::int64_t j = 0; b.rows < width && j < n; ++j) {
      for (std::int64_t c = b.rows; c < width; ++c) to[j * width + c] = -kInfinity;
    }
  };
  const ScoreTile<D> tile{w_.addend, n, b.vectors};
  if (p_.bias.has_value()) {
    read(p_.bias, w_.addend);
    prefetch_bias(b, first + n);
  }
  if (with_mask && p_.bias.has_value()) {
    read(p_.mask, w_.hidden);
    tile.hide_where_hidden(w_.hidden);
  } else if (with_mask) {
    read(p_.mask, w_.addend);
  }
  return tile;
}

// Rows of a bias are far apart, and only a block of keys is read of each: no prefetcher of the
// CPU sees what comes next.
template <class D>
inline void FusedRun<D>::prefetch_bias(const Block& b, std::int64_t next) {
  const TensorView& view = p_.bias;
  if (view.stride(3) != 1 || view.stride(2) == 0 || next >= seq_.key_length) return;
  const std::int64_t offset = seq_.batch * view.stride(0) + unit_.head * view.stride(1) +
                              (first_query() + b.row) * view.stride(2) + seq_.key_begin + next;
  const std::int64_t keys = std::min(key_block_, seq_.key_length - next);
  ahead_.soon(
      static_cast<const std::byte*>(view.data()) + bytes(offset, view.dtype()),
      bytes(view.stride(2), view.dtype()), bytes(keys, view.dtype()), b.rows,
      // Until then there are the tiles of a product, or of both.
      unit_.step_blocks > 1 ? key_block_ / tile_rows(b.vectors) : tiles_of_block({0, key_block_}));
}

// The mask of a block: most tiles of most masks are all true or all false, and then need not be
// read entry by entry. A mask whose keys are not contiguous counts as mixed.
template <class D>
inline Flags FusedRun<D>::look_at_mask(const Block& b, std::int64_t first, std::int64_t n) const {
  if (!p_.mask.has_value()) return Flags::all_true;
  const TensorView& mask = p_.mask;
  if (mask.stride(3) != 1) return Flags::mixed;
  const auto* row = static_cast<const std::uint8_t*>(mask.data()) + seq_.batch * mask.stride(0) +
                    unit_.head * mask.stride(1) + (first_query() + b.row) * mask.stride(2) +
                    seq_.key_begin + first;
  return scan_flags(row, mask.stride(2), mask.stride(2) == 0 ? 1 : b.rows, n);
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
