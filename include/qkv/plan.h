#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/attention.h"
#include "qkv/cpu.h"
#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

QKV_API std::string_view name_of(AttentionKernel kernel) noexcept;  // "automatic", "reference", …

// The shapes of an attention call; dimensions as in attention.h.
struct AttentionShape {
  std::int64_t B = 1, Hq = 1, Hkv = 1, Tq = 0, Tk = 0, D = 0, Dv = 0;
  DType dtype = DType::f32;  // of query, key and value
};

// What a plan is made for. A target that this CPU lacks can be planned for, not run.
struct PlanCpu {
  SimdTarget target = SimdTarget::automatic;
  int threads = 0;  // 0: num_threads()
};

// How a call will be computed. A value: immutable, shareable, usable without running anything.
struct AttentionPlan {
  AttentionShape shape;
  AttentionKernel kernel = AttentionKernel::reference;
  SimdTarget target = SimdTarget::scalar;
  int threads = 1;  // that will have work
  DType accumulate = DType::f32;

  // The kernel's tile and split; 0 for the reference. (automatic: some sequences of the batch go to
  // decode, the others to fused; the numbers are those of fused.)
  int lanes = 0;                  // queries in a vector
  int tile_vectors = 0;           // vectors of queries × …
  int tile_rows = 0;              // … keys or columns of V, all in registers
  std::int64_t key_block = 0;     // keys whose scores share a maximum; of decode, a chunk
  std::int64_t unit_queries = 0;  // queries of a head that a thread takes at once
  std::int64_t units = 0;         // pieces of work

  std::int64_t visible = 0;    // (query, key) pairs of all heads that structure leaves visible
  std::int64_t flops = 0;      // of the two products over these: 2·visible·(D + Dv)
  std::int64_t bytes = 0;      // query, key, value and output, each once
  std::int64_t workspace = 0;  // bytes, for all threads

  std::vector<std::string> notes;  // why no faster kernel, and where time is lost
};

// What attention_forward does for these shapes and options. Of the options' views only those that
// are structure (offsets, prefix, lengths, starts) are read. Throws Error as it does.
QKV_API AttentionPlan plan_attention(const AttentionShape& shape,
                                     const AttentionOptions& options = {}, const PlanCpu& cpu = {});

// The plan in words, a line each.
QKV_API std::string to_string(const AttentionPlan& plan);

// attention_forward as planned: same meaning, same bits. Allocates nothing if `workspace` has
// plan.workspace bytes (aligned to 64; if it is empty, the calling thread keeps one of its own).
// The options' kernel, target and threads are the plan's. Throws Error, before anything is
// written, if the arguments are not of the planned shape, or the CPU lacks the planned target.
QKV_API void attention_forward(const AttentionPlan& plan, const TensorView& query,
                               const TensorView& key, const TensorView& value,
                               const MutableTensorView& out, const AttentionOptions& options = {},
                               const AttentionStages& stages = {},
                               std::span<std::byte> workspace = {});

}  // namespace qkv
