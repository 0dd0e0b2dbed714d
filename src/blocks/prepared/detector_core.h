#pragma once

// The detector's blocks with prepared weights, as parts of each other: arguments are checked by who
// calls. Images are [B, C, H, W] of any strides.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "blocks/prepared/attention_core.h"
#include "blocks/prepared/pixel_image.h"
#include "blocks/prepared/pixel_steps.h"
#include "blocks/prepared/scope.h"
#include "blocks/prepared/workspace.h"
#include "qkv/prepared.h"

namespace qkv {

class PreparedDetector::Core {
 public:
  Core(const Refuse& refuse, std::string_view prefix, const DetectorWeights& weights,
       std::int64_t channels, const PrepareOptions& options);

  std::int64_t channels() const noexcept { return qkv_.in(); }
  std::int64_t out_channels() const noexcept { return proj_.has_value() ? proj_.out() : values(); }
  std::int64_t weight_bytes() const noexcept;
  // Refuses options that do not fit the attention inside.
  void check(const Call& call, const ImageSize& size, const AttentionOptions& options) const {
    check_inner_attention(call, shape(size, call.dtype), options);
  }
  std::int64_t workspace(const ImageSize& size, DType dtype, int threads) const;
  // Of the workspace, how much from its begin on is free as soon as the last step is all that
  // waits, and how much of that a thread each has had for itself, one behind the other.
  std::int64_t free_workspace(const ImageSize& size, DType dtype, int threads) const;
  std::int64_t own_workspace(const ImageSize& size, DType dtype, int threads) const;
  // out = attention(x) + residual, where residual may be none, or x; out may be x. Runs what waits,
  // and leaves its own last step to it.
  void run(const Scope& scope, const PixelImage& x, const MutablePixelImage& out,
           const PixelImage& residual, PixelSteps& waiting) const;
  void describe(BlockPlan& plan, const std::string& prefix, const ImageSize& size,
                const AttentionOptions& options) const;
  WorkspacePool& pool() const noexcept { return pool_; }

 private:
  std::int64_t values() const noexcept { return heads_ * head_dim_; }
  AttentionShape shape(const ImageSize& size, DType dtype) const noexcept;
  struct HeadRange {
    std::int64_t first, last;
  };
  bool has_heads_for(const ImageSize& size, int threads) const;
  bool goes_by_heads(const ImageSize& size, const AttentionOptions& options, int threads) const;
  void run_by_heads(const Scope& scope, const PixelImage& x, const MutableTensorView& concat,
                    const MutableTensorView& lines) const;
  struct Head {
    std::int64_t b, h;
    int worker;
  };
  void make_head(const Scope& scope, const PixelImage& x, const Head& head,
                 const MutableTensorView& qkv) const;
  void attend(const Scope& scope, const TensorView& qkv, const MutableTensorView& concat,
              HeadRange range, float* scratch) const;
  void add_position(const Scope& scope, const TensorView& value, const MutableTensorView& heads,
                    HeadRange range, float* scratch) const;
  void project(const Scope& scope, const TensorView& concat, const MutablePixelImage& out,
               const PixelImage& residual, PixelSteps& waiting) const;

  std::int64_t heads_, key_dim_, head_dim_;
  PreparedLinear qkv_, proj_;
  Tensor pe_weight_, pe_bias_;
  mutable WorkspacePool pool_;
};

class PreparedPsaBlock::Core {
 public:
  Core(const Refuse& refuse, std::string_view prefix, const PsaBlockWeights& weights,
       std::int64_t channels, const PrepareOptions& options);

  std::int64_t channels() const noexcept { return expand_.in(); }
  std::int64_t weight_bytes() const noexcept;
  void check(const Call& call, const ImageSize& size, const AttentionOptions& options) const {
    attention_.check(call, size, options);
  }
  std::int64_t workspace(const ImageSize& size, DType dtype, int threads) const;
  // Runs what waits, and leaves its last steps to it.
  void run(const Scope& scope, const PixelImage& x, const MutablePixelImage& out,
           PixelSteps& waiting) const;
  void describe(BlockPlan& plan, const std::string& prefix, const ImageSize& size,
                const AttentionOptions& options) const;
  WorkspacePool& pool() const noexcept { return pool_; }

 private:
  std::int64_t hidden_apart(const ImageSize& size, DType dtype, int threads) const;
  std::int64_t hidden_bytes(const ImageSize& size, DType dtype, int threads) const;

  PreparedDetector::Core attention_;
  PreparedLinear expand_, reduce_;
  bool shortcut_;
  mutable WorkspacePool pool_;
};

class PreparedC2psa::Core {
 public:
  Core(const C2psaWeights& weights, const PrepareOptions& options);

  std::int64_t channels() const noexcept { return cv1_.in(); }
  std::int64_t out_channels() const noexcept { return cv2_.out(); }
  std::int64_t weight_bytes() const noexcept;
  void check(const Call& call, const ImageSize& size, const AttentionOptions& options) const {
    for (const auto& block : blocks_) block->check(call, size, options);
  }
  std::int64_t workspace(const ImageSize& size, DType dtype, int threads) const;
  void run(const Scope& scope, const TensorView& x, const MutableTensorView& out) const;
  void describe(BlockPlan& plan, const ImageSize& size, const AttentionOptions& options) const;
  WorkspacePool& pool() const noexcept { return pool_; }

 private:
  std::int64_t halves_bytes(const ImageSize& size, DType dtype, int threads) const;

  PreparedLinear cv1_, cv2_;
  std::vector<std::unique_ptr<const PreparedPsaBlock::Core>> blocks_;
  mutable WorkspacePool pool_;
};

}  // namespace qkv
