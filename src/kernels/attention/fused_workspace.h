#pragma once

// What one worker of the fused forward keeps in memory, laid out in a buffer that it is given.

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/fused.h"

namespace qkv {

// The keys that a block of queries sees by structure, apart from the prefix.
struct BlockKeys {
  std::int64_t first_begin, last_end;  // of any query
  std::int64_t last_begin, first_end;  // of all of them
  bool untouched;                      // nothing was added to its output yet
  bool written;                        // its output is where the caller wants it
};

template <typename Real>
struct FusedWorkspace {
  Real *qt, *out;             // [D], [Dv] × queries of the unit, block by block
  Real *max, *sum, *seen;     // [queries]
  Real* s;                    // [keys of a step × queries of a block]
  Real *addend, *hidden;      // [keys of a block × queries of a block]
  Real* few;                  // [D × 32], of few queries (few-inl.h)
  Real *k, *v;                // [keys of a step × D], … × Dv
  Real* stage;                // for matrices that are transposed
  std::int64_t *begin, *end;  // [queries]: visible keys
  BlockKeys* keys;            // [blocks]

  FusedWorkspace(const AttentionProblem& p, int lanes, int max_vectors, std::int64_t queries,
                 std::int64_t step_blocks, std::int64_t whole_keys, void* memory) {
    auto* at = static_cast<std::byte*>(memory);
    std::int64_t used = 0;
    const auto take = [&]<typename T>(T*& array, std::int64_t count) {
      array = reinterpret_cast<T*>(at + used);
      used += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    };
    const std::int64_t vectors = (queries + lanes - 1) / lanes, rows = vectors * lanes;
    const std::int64_t keys_of_block =
        std::max(kFusedKeyBlock + kFusedKeyRest, std::min(p.Tk, whole_keys));
    const std::int64_t keys_of_step =
        std::max(std::min(p.Tk, step_blocks * kFusedKeyBlock + kFusedKeyRest), keys_of_block);
    const std::int64_t lanes_of_block = std::int64_t{lanes} * max_vectors;
    const std::int64_t tile = keys_of_block * lanes_of_block;
    const std::int64_t widest = std::max(p.D, p.Dv);
    // What most calls do not touch is on the outside: a CPU fetches lines past those that it is
    // asked for, and would take them from the core that works there, behind the caller's output
    // or in the memory of the next worker.
    take(stage, std::max({lanes_of_block * keys_of_block, lanes_of_block * widest,
                          keys_of_step * widest}));
    take(k, keys_of_step * p.D);
    take(v, keys_of_step * p.Dv);
    take(qt, rows * p.D);
    take(out, rows * p.Dv);
    take(max, rows);
    take(sum, rows);
    take(seen, rows);
    take(begin, rows);
    take(end, rows);
    take(keys, vectors);
    take(s, keys_of_step * lanes_of_block);
    take(addend, tile);
    take(hidden, tile);
    take(few, p.D * 32);
    bytes = used;
  }
  std::int64_t bytes;  // all together
};

}  // namespace qkv
