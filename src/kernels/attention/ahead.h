#pragma once

// What the next unit of the fused forward will read, brought near while this one computes: a core
// alone takes long to fetch from memory or from a cache that others share, and the first pass over
// a unit's keys would wait for it. Into the first level of cache, though most of it goes on to the
// second before it is used: what is asked for the second level alone is dropped more often.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/fused.h"
#include "qkv/dtype.h"

namespace qkv {

class FusedAhead {
 public:
  // `next` may be null: then nothing is fetched.
  FusedAhead(const AttentionProblem& p, const FusedUnit& unit, const FusedUnit* next) {
    if (next == nullptr) return;
    // Where this unit will write: a line has to come from memory for that, too.
    add(p.out, unit.sequence.batch, unit.head, unit.sequence.query_begin + unit.query_begin,
        unit.query_count);
    const Sequence& s = next->sequence;
    const std::int64_t group = p.Hq / p.Hkv, head = next->head / group;
    add(p.query, s.batch, next->head, s.query_begin + next->query_begin, next->query_count);
    if (s.batch != unit.sequence.batch || s.key_begin != unit.sequence.key_begin ||
        head != unit.head / group) {
      add(p.key, s.batch, head, s.key_begin, s.key_length);
      add(p.value, s.batch, head, s.key_begin, s.key_length);
    }
  }

  // To be fetched in so many steps, of about as many lines each.
  void spread(std::int64_t steps) {
    step_ = (lines_ + steps - 1) / std::max<std::int64_t>(steps, 1);
  }

  // Rows that are needed before all else, in about so many steps; what is left of the last such is
  // dropped.
  void soon(const std::byte* data, std::int64_t stride, std::int64_t bytes, std::int64_t count,
            std::int64_t steps) {
    soon_ = {data, stride, bytes, count};
    soon_step_ = (count * lines_of(bytes) + steps - 1) / std::max<std::int64_t>(steps, 1);
    soon_left_ = 0;
  }

  // A few lines at a time: a core has few on their way, and one more than that makes it wait.
  void step() {
    soon_left_ = fetch(soon_, soon_left_ + soon_step_);
    for (left_ += step_; left_ > 0 && at_ < count_;) {
      left_ = fetch(rows_[at_], left_);
      if (rows_[at_].count == 0) ++at_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  // No more than this: it should not drive out what this unit works with.
  static constexpr std::int64_t kMostLines = (256 << 10) / kLine;

  struct Rows {
    const std::byte* data = nullptr;
    std::int64_t stride = 0, bytes = 0, count = 0;
  };

  static constexpr std::int64_t lines_of(std::int64_t bytes) { return (bytes + kLine - 1) / kLine; }

  // So many lines, or a few more, since rows are fetched whole: returns what is left to do of them.
  static std::int64_t fetch(Rows& rows, std::int64_t lines) {
    for (; lines > 0 && rows.count > 0; --rows.count, rows.data += rows.stride) {
      for (std::int64_t byte = 0; byte < rows.bytes; byte += kLine) {
        __builtin_prefetch(rows.data + byte, 0, 3);
      }
      lines -= lines_of(rows.bytes);
    }
    return lines;
  }

  void add(const TensorView& view, std::int64_t batch, std::int64_t head, std::int64_t token,
           std::int64_t tokens) {
    const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
    const auto* data =
        static_cast<const std::byte*>(view.data()) +
        (batch * view.stride(0) + head * view.stride(1) + token * view.stride(2)) * size;
    Rows rows{data, view.stride(2) * size, view.dim(3) * size, tokens};
    if (view.stride(3) != 1) {
      if (view.stride(2) != 1) return;
      rows = {data, view.stride(3) * size, tokens * size, view.dim(3)};
    }
    const std::int64_t a_row = lines_of(rows.bytes);
    if (a_row == 0) return;
    rows.count = std::min(rows.count, (kMostLines - lines_) / a_row);
    lines_ += rows.count * a_row;
    rows_[count_++] = rows;
  }

  Rows rows_[4], soon_;
  int count_ = 0, at_ = 0;
  std::int64_t lines_ = 0, step_ = 0, left_ = 0, soon_step_ = 0, soon_left_ = 0;
};

}  // namespace qkv
