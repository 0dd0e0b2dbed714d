#pragma once

// Self- and cross-attention with prepared weights, as parts of blocks and layers: arguments are
// checked by who calls.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "blocks/prepared/scope.h"
#include "blocks/prepared/workspace.h"
#include "qkv/plan.h"
#include "qkv/prepared.h"

namespace qkv {

// How the rows of the projections are heads.
struct HeadSplit {
  std::int64_t heads = 1, kv_heads = 1, d_k = 1, d_v = 1;
  std::int64_t queries() const noexcept { return heads * d_k; }
  std::int64_t keys() const noexcept { return kv_heads * d_k; }
  std::int64_t values() const noexcept { return kv_heads * d_v; }
  std::int64_t concat() const noexcept { return heads * d_v; }
};

// Refuses weights that do not fit; `where` is who was called.
HeadSplit check_heads(const Refuse& refuse, const TransformerWeights& weights,
                      std::int64_t query_width, std::int64_t memory_width);

class PreparedAttention::Core {
 public:
  Core(const TransformerWeights& weights, const PrepareOptions& options);
  Core(const VitWeights& weights, const PrepareOptions& options);
  Core(const GptWeights& weights, const PrepareOptions& options);

  std::int64_t width() const noexcept { return qkv_.in(); }
  std::int64_t out_width() const noexcept { return proj_.out(); }
  std::int64_t weight_bytes() const noexcept;

  // The attention inside, for x [B, T, width].
  AttentionShape shape(std::int64_t B, std::int64_t T, DType dtype) const noexcept;
  // The call's options, changed as the block needs.
  void adapt(AttentionOptions& options) const;

  // Bytes that run needs for x [B, T, width].
  std::int64_t workspace(std::int64_t B, std::int64_t T, DType dtype) const;
  // out = attention(x) + residual, where residual may be none, or out. x [B, T, width]; out may
  // have fewer tokens: then they are x's first ones.
  void run(const Scope& scope, const TensorView& x, const MutableTensorView& out,
           const TensorView& residual) const;

  // Steps for the plan of x [B, T, width] and an output of `wanted` tokens.
  void describe(BlockPlan& plan, const std::string& prefix, std::int64_t B, std::int64_t T,
                std::int64_t wanted, const AttentionOptions& options) const;

  WorkspacePool& pool() const noexcept { return pool_; }

 private:
  HeadSplit split_;
  PreparedLinear qkv_, proj_;
  std::optional<OwnNorm> q_norm_, k_norm_;
  bool causal_ = false;
  mutable WorkspacePool pool_;
};

class PreparedCrossAttention::Core {
 public:
  Core(const TransformerWeights& weights, const PrepareOptions& options);

  std::int64_t width() const noexcept { return query_.in(); }
  std::int64_t memory_width() const noexcept { return kv_.in(); }
  std::int64_t kv_width() const noexcept { return kv_.out(); }
  std::int64_t out_width() const noexcept { return proj_.out(); }
  std::int64_t weight_bytes() const noexcept;
  AttentionShape shape(std::int64_t B, std::int64_t Tq, std::int64_t Tk,
                       DType dtype) const noexcept;

  // keys_values [B, Tk, kv_width] of memory [B, Tk, memory_width].
  void read(const Scope& scope, const TensorView& memory,
            const MutableTensorView& keys_values) const;
  std::int64_t workspace(std::int64_t B, std::int64_t Tq, DType dtype) const;
  void run(const Scope& scope, const TensorView& x, const TensorView& keys_values,
           const MutableTensorView& out, const TensorView& residual) const;
  void describe(BlockPlan& plan, const std::string& prefix, std::int64_t B, std::int64_t Tq,
                std::int64_t Tk, const AttentionOptions& options) const;

  WorkspacePool& pool() const noexcept { return pool_; }

 private:
  HeadSplit split_;
  PreparedLinear query_, kv_, proj_;
  mutable WorkspacePool pool_;
};

// A step of a plan that is a product of so many rows, or pixels of channel-first images.
void describe_product(BlockPlan& plan, std::string name, const PreparedLinear& linear,
                      std::int64_t rows, std::string_view and_then = "", bool channels = false);
// `by_heads`: a thread does a head at a time, alone.
void describe_attention(BlockPlan& plan, std::string name, const AttentionShape& shape,
                        const AttentionOptions& options, bool by_heads = false);

// Deals the sequences of a call out to threads: run(scope, begin, end) for sequences
// [begin, end), each with memory of its own. `bytes(n)` is what n sequences need.
template <typename Bytes, typename Run>
void run_sequences(const Call& call, const AttentionOptions& attention, WorkspacePool& pool,
                   std::int64_t B, std::int64_t T, Bytes&& bytes, Run&& run) {
  const int threads = call.options.threads;
  const std::int64_t together =
      attention.query_starts.has_value() ? 0 : sequences_together(B, T, threads);
  Laps laps(call.options.profile);
  if (together == 0) {
    WorkspacePool::Lease memory = pool.borrow(bytes(B));
    Laps::Clock clock(laps, 1);
    Scope scope{call.dtype, threads, attention, memory.data(), &clock};
    if (scope.attention.threads == 0) scope.attention.threads = threads;
    return run(scope, 0, B);
  }
  const std::int64_t pieces = (B + together - 1) / together, each = bytes(together);
  const int workers = worker_count(pieces, threads);
  WorkspacePool::Lease memory = pool.borrow(workers * each);
  parallel_for(pieces, threads, [&](std::int64_t piece, int worker) {
    const std::int64_t begin = piece * together, end = std::min(B, begin + together);
    Laps::Clock clock(laps, workers);
    Scope scope{call.dtype, 1, options_of(attention, begin, end), memory.data() + worker * each,
                &clock};
    scope.attention.threads = 1;
    run(scope, begin, end);
  });
}

// The same for the plan.
template <typename Bytes>
void plan_sequences(BlockPlan& plan, const BlockOptions& options, std::int64_t B, std::int64_t T,
                    Bytes&& bytes) {
  const bool packed = options.attention.query_starts.has_value();
  plan.together = packed ? 0 : sequences_together(B, T, options.threads);
  plan.threads = options.threads > 0 ? options.threads : num_threads();
  if (plan.together == 0) {
    plan.workspace += bytes(B);
  } else {
    const std::int64_t pieces = (B + plan.together - 1) / plan.together;
    plan.workspace += worker_count(pieces, options.threads) * bytes(plan.together);
  }
}

}  // namespace qkv
