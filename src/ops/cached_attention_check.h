#pragma once

#include <cstdint>
#include <vector>

#include "ops/kv_state.h"
#include "qkv/cached_attention.h"

namespace qkv {

// A call whose every argument was checked.
struct CachedProblem {
  const KVState* state = nullptr;
  std::int64_t layer = 0;
  std::vector<const KVSequence*> sequences;                            // [B]
  std::int64_t B = 0, Hq = 0, Hkv = 0, Tq = 0, Tk = 0, D = 0, Dv = 0;  // Tk: the longest
  TensorView query;
  MutableTensorView out;
  CachedAttentionOptions options;  // window as the cache narrows it
  double scale = 1;
  double softcap = 0;  // 0: none
  AttentionStages stages;

  const KVSequence& sequence(std::int64_t b) const noexcept {
    return *sequences[static_cast<std::size_t>(b)];
  }
  std::int64_t length(std::int64_t b) const noexcept { return sequence(b).end(); }
  std::int64_t key_length(std::int64_t b) const noexcept;
};

CachedProblem check_cached_attention(const TensorView& query, const KVState& state,
                                     std::vector<const KVSequence*> sequences, std::int64_t layer,
                                     const MutableTensorView& out,
                                     const CachedAttentionOptions& options,
                                     const AttentionStages& stages);

}  // namespace qkv
