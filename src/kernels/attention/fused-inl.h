// The fused forward for one SIMD target (see fused.h). Included once for each target.

#if defined(QKV_KERNELS_ATTENTION_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ATTENTION_FUSED_INL_H_
#undef QKV_KERNELS_ATTENTION_FUSED_INL_H_
#else
#define QKV_KERNELS_ATTENTION_FUSED_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/attention/ahead.h"
#include "kernels/attention/few-inl.h"
#include "kernels/attention/fused.h"
#include "kernels/attention/fused_workspace.h"
#include "kernels/attention/operand-inl.h"
#include "kernels/attention/output-inl.h"
#include "kernels/attention/scores-inl.h"
#include "kernels/attention/tile-inl.h"
#include "kernels/simd/matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The running maximum moves only when it grows by more than this: exp of it times a sum of V stays
// far from overflow, and O is seldom rescaled.
inline constexpr double kLazy = 8;

// A short sequence is one block of keys: as many as the second cache brings in time. (Where vectors
// are narrow, K and V are read so often that they should stay in the first.)
inline constexpr std::int64_t kWholeKeys = HWY_TARGET == HWY_AVX3 ? 240 : kFusedKeyBlock;

// D: the vectors that lanes are of.
template <class D>
class FusedRun {
  using Real = hn::TFromD<D>;
  using V = hn::Vec<D>;
  using T = Tile<D>;
  using Relative = typename ScoreTile<D>::Relative;
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D());
  static constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

 public:
  FusedRun(const AttentionProblem& problem, const FusedUnit& unit, const FusedUnit* next,
           void* workspace)
      : p_(problem),
        unit_(unit),
        seq_(unit.sequence),
        w_(problem, static_cast<int>(N), kMaxVectors, unit.query_count, unit.step_blocks,
           kWholeKeys, workspace),
        key_block_(unit.sequence.key_length <= kWholeKeys ? kWholeKeys : kFusedKeyBlock),
        kv_head_(unit.head / (problem.Hq / problem.Hkv)),
        by_rows_(OutputTile<D>::is_by_rows(problem)),
        may_write_sums_(holds_real<Real>(problem.out.dtype(), problem.out.data()) &&
                        !problem.sinks.has_value()),
        ahead_(problem, unit, next) {
    split_into_blocks();
    slope_ =
        p_.alibi.has_value() ? load_real<Real>(p_.alibi, unit.head * p_.alibi.stride(0)) : Real{0};
    const auto operand = [&](const TensorView& view, std::int64_t by_vectors, Real* copy) {
      const std::int64_t token =
          seq_.batch * view.stride(0) + kv_head_ * view.stride(1) + seq_.key_begin * view.stride(2);
      return Operand<Real>(view, token, blocks_, by_vectors, copy, w_.stage);
    };
    k_ = operand(p_.key, 0, w_.k);
    v_ = operand(p_.value, by_rows_ ? N : 0, w_.v);
  }

  void run() {
    attend(true);
    for (std::int64_t b = 0; b < blocks_; ++b) finish(block(b), w_.keys[b]);
    if (p_.stages.rows.has_value()) return;
    const auto rows = [&](const MutableTensorView& view) -> Rows {
      if (!view.has_value()) return {};
      const std::int64_t offset = seq_.batch * view.stride(0) + unit_.head * view.stride(1) +
                                  first_query() * view.stride(2);
      return {static_cast<std::byte*>(view.data()) + bytes(offset, view.dtype()), view.dtype(),
              view.stride(2), view.stride(3)};
    };
    write_stages({rows(p_.stages.scores), rows(p_.stages.softcapped), rows(p_.stages.masked),
                  rows(p_.stages.weights)});
  }

  void run_row(const AttentionRow& row) {
    attend(false);
    add_sink(block(0), false);
    const auto one = [](const MutableTensorView& view) -> Rows {
      if (!view.has_value()) return {};
      return {static_cast<std::byte*>(view.data()), view.dtype(), 0, view.stride(0)};
    };
    write_stages({one(row.scores), one(row.softcapped), one(row.masked), one(row.weights)});
  }

 private:
  // Some vectors of queries that go through the tiles together.
  struct Block {
    std::int64_t row, rows;  // of the unit
    int vectors;
    bool few;  // queries: see FewQueries
    Real* qt;  // [D][width]
    OutputTile<D> out;
    Real *max, *sum, *seen;  // [width]
    std::int64_t width() const { return vectors * N; }
  };
  // Where a stage goes: [queries of the unit, Tk].
  struct Rows {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t query_stride = 0, key_stride = 0;
  };
  struct Stages {
    Rows scores, softcapped, masked, weights;
    bool any() const {
      return scores.data != nullptr || softcapped.data != nullptr || masked.data != nullptr ||
             weights.data != nullptr;
    }
  };
  static std::int64_t bytes(std::int64_t elements, DType dtype) {
    return elements * static_cast<std::int64_t>(size_of(dtype));
  }

  std::int64_t first_query() const { return seq_.query_begin + unit_.query_begin; }

  // Blocks of about as many vectors each, and one of the few queries that are left after whole
  // vectors, if it pays to have them apart.
  void split_into_blocks() {
    const std::int64_t whole = unit_.query_count / N, rest = unit_.query_count % N;
    // (Where whole blocks leave vectors over, these would be a smaller block by themselves.)
    const bool apart = FewQueries<D>::kCan && rest > 0 && rest <= FewQueries<D>::kMost &&
                       whole > 0 && whole % kMaxVectors == 0 &&
                       p_.D >= FewQueries<D>::kLeastDepth && p_.key.stride(3) == 1;
    const std::int64_t vectors = whole + (rest > 0 && !apart ? 1 : 0);
    even_blocks_ = (vectors + kMaxVectors - 1) / kMaxVectors;
    base_vectors_ = vectors / even_blocks_;
    wider_blocks_ = vectors % even_blocks_;
    blocks_ = even_blocks_ + (apart ? 1 : 0);
  }

  Block block(std::int64_t b) const {
    const std::int64_t first = b * base_vectors_ + std::min(b, wider_blocks_);
    const bool few = b == even_blocks_;
    const int vectors = few ? 1 : static_cast<int>(base_vectors_ + (b < wider_blocks_ ? 1 : 0));
    const std::int64_t row = first * N;
    const std::int64_t rows = std::min<std::int64_t>(vectors * N, unit_.query_count - row);
    return {row,
            rows,
            vectors,
            few,
            w_.qt + row * p_.D,
            {w_.out + row * p_.Dv, rows, p_.Dv, vectors, by_rows_},
            w_.max + row,
            w_.sum + row,
            w_.seen + row};
  }

  // ---- the pass over the keys

  void attend(bool with_output) {
    const KeyRange all = keys_of_unit();
    for (std::int64_t b = 0; b < blocks_; ++b) start(block(b));
    ahead_.spread(even_blocks_ * tiles_of_block(all));  // those of a few queries hardly count
    for (std::int64_t begin = key_block(all.begin); begin < all.end; begin = step_end_) {
      enter_step(begin, unit_.step_blocks, all.end);
      for (std::int64_t b = 0; b < blocks_; ++b) attend_step(block(b), w_.keys[b], with_output);
    }
  }

  // About how many tiles a block of queries takes for these keys.
  std::int64_t tiles_of_block(KeyRange keys) const {
    const std::int64_t n = keys.end - keys.begin, rows = tile_rows(static_cast<int>(base_vectors_));
    const std::int64_t step = unit_.step_blocks * key_block_;
    return n / rows + (n + step - 1) / step * (p_.Dv / rows);
  }

  // All that any query of the unit may see.
  KeyRange keys_of_unit() {
    KeyRange all{seq_.key_length, 0};
    prefix_ = std::min(seq_.prefix, seq_.key_length);
    if (prefix_ > 0) all = {0, prefix_};
    if (!p_.causal && p_.window.left < 0 && p_.window.right < 0) {
      // Every query sees every key.
      const BlockKeys everything{0, seq_.key_length, 0, seq_.key_length, true, false};
      std::fill(w_.keys, w_.keys + blocks_, everything);
      std::fill(w_.begin, w_.begin + unit_.query_count, 0);
      std::fill(w_.end, w_.end + unit_.query_count, seq_.key_length);
      return {0, seq_.key_length};
    }
    for (std::int64_t n = 0; n < blocks_; ++n) {
      const Block b = block(n);
      BlockKeys& keys = w_.keys[n];
      keys = {seq_.key_length, 0, 0, seq_.key_length, true, false};
      for (std::int64_t i = b.row; i < b.row + b.rows; ++i) {
        const KeyRange band = p_.visible_keys(seq_, unit_.query_begin + i).band;
        const bool empty = band.begin >= band.end;
        w_.begin[i] = empty ? seq_.key_length : band.begin;
        w_.end[i] = empty ? 0 : band.end;
        keys.first_begin = std::min(keys.first_begin, w_.begin[i]);
        keys.last_begin = std::max(keys.last_begin, w_.begin[i]);
        keys.first_end = std::min(keys.first_end, w_.end[i]);
        keys.last_end = std::max(keys.last_end, w_.end[i]);
      }
      all.begin = std::min(all.begin, keys.first_begin);
      all.end = std::max(all.end, keys.last_end);
    }
    return all;
  }

  void start(const Block& b) {
    const TensorView& q = p_.query;
    const std::int64_t offset =
        seq_.batch * q.stride(0) + unit_.head * q.stride(1) + (first_query() + b.row) * q.stride(2);
    const auto* data = static_cast<const std::byte*>(q.data()) + bytes(offset, q.dtype());
    read_queries({data, q.dtype(), q.stride(3), q.stride(2)}, b);
    if constexpr (FewQueries<D>::kCan) {
      if (b.few) FewQueries<D>::spread(b.qt, p_.D, w_.few);
    }
    const V lowest = hn::Set(d, std::numeric_limits<Real>::lowest());
    for (std::int64_t i = 0; i < b.width(); i += N) {
      hn::StoreU(lowest, d, b.max + i);
      hn::StoreU(hn::Zero(d), d, b.sum + i);
      hn::StoreU(hn::Zero(d), d, b.seen + i);
    }
  }

  // qt[i][query] = scale·q. What lanes past the last query compute is not written.
  void read_queries(const ForeignMatrix& q, const Block& b) {
    const Real scale = static_cast<Real>(p_.scale);
    const std::int64_t width = b.width();
    if (q.row_stride == 1 && holds_real<Real>(q.dtype, q.data)) {
      std::int64_t stride = q.column_stride;
      const Real* rows =
          spread_rows(static_cast<const Real*>(q.data), stride, b.rows, p_.D, w_.stage);
      transpose_filling(d, rows, stride, b.rows, p_.D, b.qt, width, ScaledAll<Real>{scale});
      return;
    }
    if (q.column_stride == 1 && b.rows == width && holds_real<Real>(q.dtype, q.data)) {
      for (std::int64_t i = 0; i < p_.D; ++i) {
        const Real* row = static_cast<const Real*>(q.data) + i * q.row_stride;
        for (std::int64_t c = 0; c < width; c += N) {
          hn::StoreU(hn::Mul(hn::LoadU(d, row + c), hn::Set(d, scale)), d, b.qt + i * width + c);
        }
      }
      return;
    }
    read_matrix<Real>(q, p_.D, b.rows, b.qt, width, w_.stage);
    for (std::int64_t i = 0; i < p_.D; ++i) {
      Real* row = b.qt + i * width;
      std::fill(row + b.rows, row + width, row[b.rows - 1]);
      for (std::int64_t c = 0; c < width; c += N) {
        hn::StoreU(hn::Mul(hn::LoadU(d, row + c), hn::Set(d, scale)), d, row + c);
      }
    }
  }

  // Where the block of keys begins that has this key. The last block takes in a few keys more,
  // which would cost almost as much as a whole block if they were one.
  std::int64_t key_block(std::int64_t key) const {
    const std::int64_t begin = key / key_block_ * key_block_;
    return begin > 0 && seq_.key_length - begin <= kFusedKeyRest ? begin - key_block_ : begin;
  }

  // Of so many blocks of keys, the first of which begins here; fewer if others begin at `limit` or
  // behind it. What is asked of them is prepared when needed.
  void enter_step(std::int64_t begin, std::int64_t blocks, std::int64_t limit) {
    step_begin_ = step_end_ = begin;
    for (; blocks > 0 && step_end_ < limit; --blocks) {
      enter_keys(step_end_);
      step_end_ = key_end_;
    }
    enter_keys(begin);
    k_.enter(step_begin_, step_end_);
    v_.enter(step_begin_, step_end_);
    v_checked_ = false;
  }

  void enter_keys(std::int64_t begin) {
    key_begin_ = begin;
    const bool last = seq_.key_length - begin <= key_block_ + kFusedKeyRest;
    key_end_ = last ? seq_.key_length : begin + key_block_;
  }

  void attend_step(const Block& b, BlockKeys& seen, bool with_output) {
    waiting_ = {w_.s};
    for (std::int64_t begin = step_begin_; begin < step_end_; begin = key_end_) {
      enter_keys(begin);
      attend_block(b, seen, with_output);
    }
    weigh_waiting(b, seen);
  }

  void attend_block(const Block& b, BlockKeys& seen, bool with_output) {
    // The keys of this block that some query sees, and whether all queries see all of them.
    std::int64_t first = std::max(seen.first_begin, key_begin_);
    std::int64_t last = std::min(seen.last_end, key_end_);
    if (prefix_ > key_begin_) {
      first = key_begin_;
      last = std::max(last, std::min(prefix_, key_end_));
    }
    if (first >= last) return;
    const bool whole = prefix_ >= last || (seen.last_begin <= first && last <= seen.first_end);

    const std::int64_t n = last - first;
    if (waiting_.first + waiting_.keys != first) weigh_waiting(b, seen);
    const ScoreTile<D> tile{waiting_.end(b), n, b.vectors};
    const Flags mask = look_at_mask(b, first, n);
    if (mask == Flags::all_false) return;
    const bool data = mask == Flags::mixed || p_.bias.has_value();
    bool partly = !whole;
    if (data) {
      const ScoreTile<D> addend = read_addend(b, first, n, mask == Flags::mixed);
      if (!whole) hide(b, seen, addend, first, nullptr, nullptr);
      bool any = false, all = true;
      addend.scan(any, all);
      if (!any) return;
      partly = !all;
    }

    HWY_ALIGN Real largest[kMaxVectors * N];
    const Reach reach = whole ? Reach(n) : reach_of(b, first, n);
    scores(b, reach, k_.from(first), tile.s, largest);
    const bool changed = p_.softcap != 0 || p_.alibi.has_value();
    if (changed) adjust(b, tile, first);
    if (data) {
      tile.add(w_.addend, largest);
    } else if (!whole) {
      hide(b, seen, tile, first, b.seen, largest);
    } else if (changed) {
      tile.maximum(largest);
    }
    if (data && partly) {
      ScoreTile<D>{w_.addend, n, b.vectors}.mark_seen(b.seen);
    } else if (!partly) {
      for (std::int64_t i = 0; i < b.width(); i += N) {
        hn::StoreU(hn::Set(d, Real{1}), d, b.seen + i);
      }
    }
    // 0·NaN is NaN: where a hidden value may be no number, it is left out instead.
    const bool careful = with_output && partly && !values_finite();
    if (careful || (waiting_.keys > 0 && raises_maximum(b, largest))) weigh_waiting(b, seen);
    const bool nothing_yet = with_output && seen.untouched && waiting_.keys == 0;
    raise_maximum(b, largest, with_output, nothing_yet);
    if (careful && !data) structure_as_addend(b, seen, first, n);
    tile.exponentials(b.max, b.sum, careful ? w_.addend : nullptr);
    if (!with_output) return;
    if (careful) {
      if (seen.untouched) b.out.clear();
      b.out.weigh_carefully(tile.s, v_.from(first), n);
      seen.untouched = false;
    } else {
      waiting_.add(first, n, key_end_, whole, reach);
    }
  }

  // How many of a tile's keys each vector of queries may see: no less than the vector before it. In
  // a causal call the first queries are done with sooner, and what they do not see is not computed.
  struct Reach {
    std::int64_t keys[kMaxVectors];
    explicit Reach(std::int64_t n) { std::fill(keys, keys + kMaxVectors, n); }
  };

  // Weights of keys that follow each other and share a maximum: O has not seen them yet. It is
  // loaded and stored once for all of them.
  struct Waiting {
    Real* p = nullptr;  // [keys][width]
    std::int64_t first = 0, keys = 0;
    std::int64_t key_end = 0;  // of the last block
    bool whole = true;         // all queries see all keys
    Reach reach = Reach(0);

    Real* end(const Block& b) const { return p + keys * b.width(); }
    void add(std::int64_t from, std::int64_t n, std::int64_t end, bool all, const Reach& by) {
      if (keys == 0) first = from;
      for (int v = 0; v < kMaxVectors; ++v) reach.keys[v] = keys + by.keys[v];
      keys += n;
      key_end = end;
      whole = whole && all;
    }
  };

  // part(how many vectors, the first of them, keys from, to) for the parts of a tile that have the
  // same vectors.
  template <class Part>
  static void each_part(const Block& b, const Reach& reach, const Part& part) {
    std::int64_t done = 0;
    for (int v = 0; v < b.vectors; ++v) {
      const std::int64_t to = reach.keys[v];
      if (to == done) continue;
      switch (b.vectors - v) {
        case 1: part(std::integral_constant<int, 1>(), v, done, to); break;
        case 2: part(std::integral_constant<int, 2>(), v, done, to); break;
        case 3: part(std::integral_constant<int, 3>(), v, done, to); break;
        default:
          if constexpr (kMaxVectors > 3) part(std::integral_constant<int, 4>(), v, done, to);
      }
      done = to;
    }
  }

  Reach reach_of(const Block& b, std::int64_t first, std::int64_t n) const {
    Reach reach(std::clamp<std::int64_t>(prefix_ - first, 0, n));
    for (int v = 0; v < b.vectors; ++v) {
      std::int64_t& keys = reach.keys[v];
      if (v > 0) keys = reach.keys[v - 1];
      const std::int64_t end = std::min<std::int64_t>((v + 1) * N, b.rows);
      for (std::int64_t i = v * N; i < end; ++i) {
        keys = std::clamp(w_.end[b.row + i] - first, keys, n);
      }
    }
    return reach;
  }

  // ---- S = Qᵀ·K

  // s[j][query] = scale·q·k_j, and the largest of each query; -inf beyond a vector's reach.
  void scores(const Block& b, const Reach& reach, const TileRows<Real>& k, Real* s, Real* largest) {
    if constexpr (FewQueries<D>::kCan) {
      if (b.few) return FewQueries<D>::scores(w_.few, p_.D, k, reach.keys[0], s, largest, ahead_);
    }
    const std::int64_t width = b.width();
    each_part(b, reach, [&](auto vectors, int v, std::int64_t from, std::int64_t to) {
      for (std::int64_t j = from; j < to; ++j) {
        for (int hidden = 0; hidden < v; ++hidden) {
          hn::StoreU(hn::Set(d, -kInfinity), d, s + j * width + hidden * N);
        }
      }
      T::template scores<vectors.value>(b.qt + v * N, width, p_.D, k.from(from), to - from,
                                        s + from * width + v * N, largest + v * N, ahead_);
    });
  }

  // ---- what changes a score (fused_adjust-inl.h)

  void adjust(const Block& b, const ScoreTile<D>& tile, std::int64_t first) const;
  void hide(const Block& b, const BlockKeys& keys, const ScoreTile<D>& tile, std::int64_t first,
            Real* seen, Real* largest) const;
  void structure_as_addend(const Block& b, const BlockKeys& keys, std::int64_t first,
                           std::int64_t n) const;
  ScoreTile<D> read_addend(const Block& b, std::int64_t first, std::int64_t n, bool with_mask);
  void prefetch_bias(const Block& b, std::int64_t next);
  Flags look_at_mask(const Block& b, std::int64_t first, std::int64_t n) const;

  // ---- softmax

  static auto grows_from(V old, V top) {
    return hn::Gt(top, hn::Add(old, hn::Set(d, static_cast<Real>(kLazy))));
  }

  bool raises_maximum(const Block& b, const Real* largest) const {
    bool any = false;
    for (int v = 0; v < b.vectors; ++v) {
      const V old = hn::LoadU(d, b.max + v * N), top = hn::Load(d, largest + v * N);
      any = any || !hn::AllFalse(d, grows_from(old, top));
    }
    return any;
  }

  // `first`: nothing was summed up yet.
  void raise_maximum(const Block& b, const Real* largest, bool with_output, bool first) const {
    for (int v = 0; v < b.vectors; ++v) {
      const V old = hn::LoadU(d, b.max + v * N), top = hn::Load(d, largest + v * N);
      const auto grows = grows_from(old, top);
      if (hn::AllFalse(d, grows)) continue;
      const V now = hn::IfThenElse(grows, top, old);
      hn::StoreU(now, d, b.max + v * N);
      if (first) continue;
      // exp(0) need not be 1 to the last bit: lanes that stay are left alone.
      const V factor = hn::IfThenElse(grows, Relative(old).to(Relative(now)), hn::Set(d, Real{1}));
      hn::StoreU(hn::Mul(hn::LoadU(d, b.sum + v * N), factor), d, b.sum + v * N);
      if (with_output) b.out.scale(v, factor);
    }
  }

  // ---- O += P·V, of what waits (fused_weigh-inl.h)

  void weigh_waiting(const Block& b, BlockKeys& seen);
  void weigh(const Block& b, BlockKeys& seen);
  void weigh_rows(const Block& b, BlockKeys& seen);
  typename T::Final end_sums(const Block& b, BlockKeys& seen, Real* inverse) const;
  bool values_finite();

  // ---- the end (fused_finish-inl.h)

  bool add_sink(const Block& b, bool with_output);
  void invert_sums(const Block& b, Real* inverse) const;
  std::int64_t offset_in(const TensorView& view, const Block& b) const;
  void finish(const Block& b, const BlockKeys& keys);

  // ---- scores and weights, when asked for (fused_stages-inl.h)

  void write_stages(const Stages& stages);
  void write_stages_of(const Block& b, const BlockKeys& seen, const Stages& stages);
  void write_tile(const Block& b, const ScoreTile<D>& tile, const Rows& stage);
  void write_missing(const Stages& stages);

  const AttentionProblem& p_;
  const FusedUnit& unit_;
  const Sequence& seq_;
  FusedWorkspace<Real> w_;
  const std::int64_t key_block_, kv_head_;
  const bool by_rows_;
  const bool may_write_sums_;  // as they are, when the last key was seen
  FusedAhead ahead_;
  // Blocks of queries; those of about as many vectors, and how many have one more than the others.
  std::int64_t blocks_ = 0, even_blocks_ = 0, base_vectors_ = 0, wider_blocks_ = 0;
  std::int64_t prefix_ = 0;
  Real slope_ = 0;
  Operand<Real> k_, v_;
  std::int64_t step_begin_ = 0, step_end_ = 0;  // the blocks of keys that go past together
  std::int64_t key_begin_ = 0, key_end_ = 0;    // the one at hand
  Waiting waiting_;
  bool v_checked_ = false, v_finite_ = false;
};

template <class D>
void fused_run(const AttentionProblem& problem, const FusedUnit& unit, const FusedUnit* next,
               void* workspace) {
  FusedRun<D>(problem, unit, next, workspace).run();
}

template <class D>
void fused_run_row(const AttentionProblem& problem, const FusedUnit& unit, const AttentionRow& row,
                   void* workspace) {
  FusedRun<D>(problem, unit, nullptr, workspace).run_row(row);
}

template <class D>
constexpr FusedKernel fused_kernel(SimdTarget target) {
  return {target,          static_cast<int>(hn::MaxLanes(D())),
          kMaxVectors,     tile_rows(kMaxVectors),
          kWholeKeys,      fused_run<D>,
          fused_run_row<D>};
}

template <typename Real>
using Whole = hn::ScalableTag<Real>;
#if HWY_TARGET == HWY_AVX3
// Vectors of half the width, with all of the 32 registers: see cpu_splits_wide_vectors().
template <typename Real>
using Halves = hn::Half<hn::ScalableTag<Real>>;
#endif

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
