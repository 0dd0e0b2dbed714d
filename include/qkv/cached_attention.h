#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "qkv/attention.h"
#include "qkv/cpu.h"
#include "qkv/export.h"
#include "qkv/kv_cache.h"
#include "qkv/tensor.h"

namespace qkv {

// As in AttentionOptions; what is not here does not apply to a cache.
struct CachedAttentionOptions {
  std::optional<double> scale{};
  std::optional<double> softcap{};
  bool causal = true;        // false: a query also sees the tokens that came with and after it
  Window window{};           // a windowed cache lowers `left` to its own window - 1
  TensorView key_lengths{};  // [B] (i32 or i64): positions from it on do not exist
  TensorView alibi{};        // [Hq]
  TensorView sinks{};        // [Hq]

  AttentionKernel kernel = AttentionKernel::automatic;
  SimdTarget target = SimdTarget::automatic;
  int threads = 0;
};

// Attention of new tokens over a cache: decoding with one or a few of them, chunked prefill with
// many.
//
//   query [B, Hq, Tq, D]   sequences [B]   out [B, Hq, Tq, Dv]
//
// Batch entry b reads one layer of sequences[b], which has T_b = length + pending tokens; query i
// of it stands at position T_b - Tq + i, as it does after reserve(Tq) and write(): those of the
// tokens that were just written. Tq is at most T_b. All else is as in attention_forward with that
// offset (semantics of rows without keys, of sinks, of NaN; same bits for any number of threads).
//
// A query is f32, f16 or bf16, sums are in f32; out is of the query's dtype, f32 or f64. Keys are
// read where they lie, and numbers of 16 or 8 bits are widened on the way. (Where AVX-512 has VNNI,
// int8 keys and values are multiplied by queries and weights as integers of 24 bits, beside the
// largest of a query or of a chunk's weights: as exact as f32, but a query with Inf gives NaN.)
//
// Stages index positions: [B, Hq, Tq, max T_b], lse [B, Hq, Tq]. Those other than lse take a copy
// of the layer's keys; a position that a ring overwrote does not exist.
//
// The same sequence may be named several times. Throws Error, before anything is written, if
// arguments do not fit.
QKV_API void cached_attention_forward(const TensorView& query, const KVCache& cache,
                                      std::int64_t layer, std::span<const SequenceId> sequences,
                                      const MutableTensorView& out,
                                      const CachedAttentionOptions& options = {},
                                      const AttentionStages& stages = {});

// The same for a reader beside the writer: over what the snapshot shows, all of its sequences in
// its order.
QKV_API void cached_attention_forward(const TensorView& query, const KVSnapshot& snapshot,
                                      std::int64_t layer, const MutableTensorView& out,
                                      const CachedAttentionOptions& options = {},
                                      const AttentionStages& stages = {});

}  // namespace qkv
