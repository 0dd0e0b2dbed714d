#pragma once

// The contract between the attention operator and its kernels: a problem whose every argument was
// checked, and what a kernel computes of it.

#include <cstddef>
#include <cstdint>

#include "qkv/attention.h"
#include "qkv/tensor.h"

namespace qkv {

// A half-open range of keys.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
  bool contains(std::int64_t j) const noexcept { return begin <= j && j < end; }
  bool operator==(const KeyRange&) const = default;
};

// The keys that structure (causal, window, prefix, length) lets a query see: the union of two
// ranges, either of which may be empty. Mask and bias hide more.
struct VisibleKeys {
  KeyRange prefix, band;
  bool contains(std::int64_t j) const noexcept { return prefix.contains(j) || band.contains(j); }
};

// One sequence: a batch entry, or a part of a packed batch.
struct Sequence {
  std::int64_t batch = 0;                         // on the B axis
  std::int64_t query_begin = 0, query_count = 0;  // on the Tq axis
  std::int64_t key_begin = 0, key_count = 0;      // on the Tk axis
  std::int64_t key_length = 0;                    // keys that exist, ≤ key_count
  std::int64_t offset = 0;                        // position of query 0
  std::int64_t prefix = 0;
};

// Everything in it is checked: shapes agree, views are of rank 4 (mask and bias are broadcast by
// strides of 0), per-sequence numbers are in range, outputs are writable and overlap nothing.
struct AttentionProblem {
  std::int64_t B = 0, Hq = 0, Hkv = 0, Tq = 0, Tk = 0, D = 0, Dv = 0;
  TensorView query, key, value;  // [B, Hq, Tq, D], [B, Hkv, Tk, D], [B, Hkv, Tk, Dv]
  MutableTensorView out;         // [B, Hq, Tq, Dv]
  TensorView mask, bias;         // [B, Hq, Tq, Tk] or none
  TensorView alibi, sinks;       // [Hq] or none
  TensorView offsets, prefix, key_lengths, query_starts, key_starts;  // as in AttentionOptions
  AttentionStages stages;
  double scale = 1;
  double softcap = 0;  // 0: none; it and its inverse are normal numbers of what is computed in
  bool causal = false;
  bool bottom_right = false;  // the offset of a sequence is its Tk - Tq
  Window window;
  std::int64_t offset = 0;
  bool accumulate_f64 = false;

  bool packed() const noexcept { return query_starts.has_value(); }
  std::int64_t sequence_count() const noexcept;
  Sequence sequence(std::int64_t s) const noexcept;
  // The sequence that query t of the Tq axis of batch entry b belongs to.
  Sequence sequence_of(std::int64_t b, std::int64_t t) const noexcept;
  // What query i of a sequence sees. Both count from the sequence's own begin.
  VisibleKeys visible_keys(const Sequence& sequence, std::int64_t i) const noexcept;
};

// Positions (offset, window) beyond this are refused, so that their sums and differences with
// indices cannot overflow.
inline constexpr std::int64_t kMaxPosition = std::int64_t{1} << 61;

// Where one row goes. A view without a value is not wanted.
struct AttentionRow {
  MutableTensorView out;                                  // [Dv]
  MutableTensorView lse;                                  // []
  MutableTensorView scores, softcapped, masked, weights;  // [Tk]: the whole axis
};

// Computes the row of query i of a sequence and head h. `scratch` has
// attention_reference_scratch(problem) bytes, aligned to 8.
//
// This is the oracle of all other kernels: plain loops over the definition, never to be optimised.
void attention_reference_row(const AttentionProblem& problem, const Sequence& sequence,
                             std::int64_t h, std::int64_t i, const AttentionRow& row,
                             void* scratch) noexcept;
std::int64_t attention_reference_scratch(const AttentionProblem& problem) noexcept;

}  // namespace qkv
