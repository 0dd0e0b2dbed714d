#pragma once

// Encoder and decoder layers as parts of models: arguments are checked by who calls.

#include <cstdint>
#include <string>

#include "blocks/prepared/attention_core.h"
#include "qkv/layers.h"

namespace qkv {

// linear2(activation(linear1(x))), some rows at a time: the hidden layer is wide, and should not
// leave the caches.
class FeedForward {
 public:
  // Refuses weights that do not take and give rows of that width. scale [width] or none: of what
  // linear2 gives.
  FeedForward(const Refuse& refuse, const LinearWeights& linear1, const LinearWeights& linear2,
              Activation activation, const TensorView& scale, std::int64_t width,
              const PrepareOptions& options);

  std::int64_t weight_bytes() const noexcept;
  std::int64_t workspace(std::int64_t rows, DType dtype) const;
  // out = ffn(x) + residual; views of [B, T, width], of which x and residual are dense.
  void run(const Scope& scope, const TensorView& x, const MutableTensorView& out,
           const TensorView& residual) const;
  void describe(BlockPlan& plan, const std::string& prefix, std::int64_t rows) const;

 private:
  PreparedLinear expand_, reduce_;
  Activation activation_;
};

class PreparedEncoderLayer::Core {
 public:
  Core(const EncoderLayerWeights& weights, const PrepareOptions& options);

  std::int64_t width() const noexcept { return attention_.width(); }
  const PreparedAttention::Core& attention() const noexcept { return attention_; }
  std::int64_t weight_bytes() const noexcept;
  std::int64_t workspace(std::int64_t B, std::int64_t T, DType dtype) const;
  // out may have fewer tokens than x: then they are the first ones.
  void run(const Scope& scope, const TensorView& x, const MutableTensorView& out) const;
  void describe(BlockPlan& plan, const std::string& prefix, std::int64_t B, std::int64_t T,
                std::int64_t wanted, const AttentionOptions& options) const;
  WorkspacePool& pool() const noexcept { return pool_; }

 private:
  PreparedAttention::Core attention_;
  OwnNorm norm1_, norm2_;
  FeedForward ffn_;
  bool norm_first_;
  mutable WorkspacePool pool_;
};

class PreparedDecoderLayer::Core {
 public:
  Core(const TransformerDecoderLayerWeights& weights, const PrepareOptions& options);

  std::int64_t width() const noexcept { return self_.width(); }
  const PreparedAttention::Core& self() const noexcept { return self_; }
  const PreparedCrossAttention& cross() const noexcept { return cross_; }
  std::int64_t weight_bytes() const noexcept;
  std::int64_t workspace(std::int64_t B, std::int64_t T, DType dtype) const;
  // scope.attention is the self-attention's, `cross` the other's.
  void run(const Scope& scope, const AttentionOptions& cross, const TensorView& x,
           const TensorView& keys_values, const MutableTensorView& out) const;
  void describe(BlockPlan& plan, std::int64_t B, std::int64_t T, std::int64_t Tk,
                const DecoderOptions& options) const;
  WorkspacePool& pool() const noexcept { return pool_; }

 private:
  PreparedAttention::Core self_;
  PreparedCrossAttention cross_;
  OwnNorm norm1_, norm2_, norm3_;
  FeedForward ffn_;
  bool norm_first_;
  mutable WorkspacePool pool_;
};

}  // namespace qkv
