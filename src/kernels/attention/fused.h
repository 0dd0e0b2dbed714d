#pragma once

// The fused forward: attention in one pass over the keys, without a Tq×Tk matrix.
//
// Vector lanes are queries. A block of up to 4 vectors of queries is transposed once; keys and
// values are read where they lie. For each block of 96 keys (the last one may have up to 144, and a
// short sequence may be one; where the second cache is fast, O waits for a step of several blocks):
//
//   S = Qᵀ·K          a tile of accumulators, queries × keys
//   S = softcap, bias, alibi, hidden entries -inf        only what the call has
//   m = max(m, S)     the running maximum, moved only when it grows by much
//   P = exp(S - m)    l += ΣP
//   O = O + P·V       a tile of accumulators, queries × columns of V; lanes are columns where Dv
//                     fills vectors, and O is then kept as the caller wants it
//
// and at the end O / l. Each lane is a query of its own: nothing that it computes depends on its
// neighbours, on how queries are grouped into blocks and units, or on how many threads work. Hence
// the same bits for any split.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu.h"
#include "kernels/attention/attention.h"
#include "qkv/cpu.h"

namespace qkv {

// A piece of work: consecutive queries of one head of one sequence.
struct FusedUnit {
  Sequence sequence;
  std::int64_t head = 0;
  std::int64_t query_begin = 0, query_count = 0;  // counted from the sequence's own begin
  std::int64_t step_blocks = 1;                   // blocks of keys that go past at a time
};

// The kernel as compiled for one SIMD target and f32 or f64.
struct FusedKernel {
  SimdTarget target;
  int lanes;                // queries in a vector
  int max_vectors;          // vectors of queries in a block
  int key_rows;             // keys in a tile of accumulators, with max_vectors
  std::int64_t whole_keys;  // a sequence of no more keys than this is one block
  // Writes the unit's rows of the output, of LSE, and of the stages unless those are of chosen
  // rows. `next`: a unit that this thread may have to compute after it, or null.
  void (*run)(const AttentionProblem& problem, const FusedUnit& unit, const FusedUnit* next,
              void* workspace);
  // Writes the stages of a unit of one query, at `row`; not its output.
  void (*run_row)(const AttentionProblem& problem, const FusedUnit& unit, const AttentionRow& row,
                  void* workspace);
};

inline constexpr std::int64_t kFusedKeyBlock = 96;  // a multiple of every tile's keys
inline constexpr std::int64_t kFusedKeyRest = 48;   // at most, that the last block takes in besides

// The targets that were compiled, the best one first; not all of them may run on this CPU. Of one
// target, wider vectors come first.
std::span<const FusedKernel> fused_kernels_f32();
std::span<const FusedKernel> fused_kernels_f64();

// The kernel of a target; null if this build has none. Where a target has several, they give the
// same bits; the widest is chosen, unless the CPU is no slower with narrower vectors, the queries
// fill these better, and it is not enough that what is left of them goes that way
// (FusedSplit::rest).
const FusedKernel* find_fused_kernel(const AttentionProblem& problem, SimdTarget target);
// The kernel of the same target whose vectors are narrower; null if there is none.
const FusedKernel* find_narrower_kernel(const FusedKernel& kernel);

// How a problem is cut into units. It may depend on the number of threads, since bits do not
// depend on it.
struct FusedSplit {
  std::int64_t unit_queries = 0;  // at most, in a unit
  std::int64_t units = 0;         // some may be empty, in a packed batch
  std::int64_t group = 1;         // units that a thread takes at once
  std::int64_t tail = 0;          // units that are dealt out in pieces
  std::int64_t pieces = 1;        // of such a unit
  // Workers that have as many units each, of which they take the last one in pieces. 0: pieces are
  // of the last units of all, and anybody's.
  std::int64_t even = 0;
  std::int64_t step_blocks = 1;  // as in FusedUnit
  // Takes what is left of a unit's queries after whole vectors, where that fits into one of its
  // narrower ones; or null.
  const FusedKernel* rest = nullptr;
  // What threads take turn by turn: groups of units, and pieces.
  std::int64_t groups() const { return (units - tail + group - 1) / group; }
  std::int64_t items() const { return groups() + tail * pieces; }
  std::int64_t workspace = 0;      // bytes for one worker, a multiple of 64
  std::int64_t row_workspace = 0;  // the same for a unit of one query
};
// What suits the CPU, unless somebody asks for something else.
struct FusedTuning {
  std::int64_t step_blocks = 0;  // 0: as many as the second cache is good for
  bool rest_apart = cpu_splits_wide_vectors();
};
FusedSplit split_fused(const AttentionProblem& problem, const FusedKernel& kernel, int threads,
                       const FusedTuning& tuning = {});

// 1 where a call takes less time than waking another thread does; else `threads`.
int fused_threads(const AttentionProblem& problem, int threads) noexcept;

// Bytes that attention_fused needs for all workers.
std::int64_t fused_workspace(const AttentionProblem& problem, const FusedSplit& split, int threads);

// Runs it all. `workspace` is aligned to 64.
void attention_fused(const AttentionProblem& problem, const FusedKernel& kernel,
                     const FusedSplit& split, int threads, std::byte* workspace);

}  // namespace qkv
