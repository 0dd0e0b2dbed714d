#pragma once

#include <cstdint>
#include <memory>

#include "qkv/block_plan.h"
#include "qkv/detector.h"
#include "qkv/export.h"
#include "qkv/gpt.h"
#include "qkv/linear.h"
#include "qkv/step.h"
#include "qkv/tensor.h"
#include "qkv/transformer.h"
#include "qkv/vit.h"

// Blocks made ready for many calls. Weights are copied once into the order that the products read
// them in, queries, keys and values come from one product, attention reads them where they lie and
// writes where the output product reads; no step has a matrix of all scores. The memory of a call
// is kept by the block for the next one, so that calls of one shape allocate nothing after the
// first; what kernels work in is kept by threads, from when they first have something to do.
//
//   const PreparedAttention attention(weights);       // once
//   attention.forward(x, out);                        // often
//
// Meaning, dtypes and errors of each are those of the function for one call (vit_forward, …), to
// rounding. Differences: no observer, which is refused (the functions for one call have the steps),
// and a profile instead. All are immutable values: copies share the weights, and any threads may
// call at once. The same shape and number of threads give the same bits.

namespace qkv {

// Self-attention: Transformer, ViT or GPT. x [B, T, width]   out [B, T, d_out]
class QKV_API PreparedAttention {
 public:
  explicit PreparedAttention(const TransformerWeights& weights, const PrepareOptions& options = {});
  explicit PreparedAttention(const VitWeights& weights, const PrepareOptions& options = {});
  explicit PreparedAttention(const GptWeights& weights, const PrepareOptions& options = {});

  void forward(const TensorView& x, const MutableTensorView& out,
               const BlockOptions& options = {}) const;
  BlockPlan plan(const Dims& x, const BlockOptions& options = {}) const;

  class Core;
  const Core& core() const noexcept { return *core_; }  // for the library itself

 private:
  std::shared_ptr<const Core> core_;
};

// Cross-attention: x [B, Tq, …] asks, memory [B, Tk, …] answers.
class QKV_API PreparedCrossAttention {
 public:
  explicit PreparedCrossAttention(const TransformerWeights& weights,
                                  const PrepareOptions& options = {});

  // Keys and values of a memory, [B, Tk, heads·(d_k + d_v)]: computed once, for any number of
  // calls.
  class Memory {
   public:
    const Tensor& keys_values() const noexcept { return keys_values_; }

   private:
    friend class PreparedCrossAttention;
    Tensor keys_values_;
  };
  Memory read(const TensorView& memory, const BlockOptions& options = {}) const;

  // options are of the queries; memory as read() gave it, of the dtype that x is computed in.
  void forward(const TensorView& x, const Memory& memory, const MutableTensorView& out,
               const BlockOptions& options = {}) const;
  // The same with keys and values computed for this call.
  void forward(const TensorView& x, const TensorView& memory, const MutableTensorView& out,
               const BlockOptions& options = {}) const;
  // x [B, Tq, …], memory [B, Tk, …].
  BlockPlan plan(const Dims& x, const Dims& memory, const BlockOptions& options = {}) const;

  // For the library itself: read(), computed in a dtype (f32 or f64).
  Memory read_in(const TensorView& memory, DType dtype, const BlockOptions& options) const;
  class Core;
  const Core& core() const noexcept { return *core_; }

 private:
  std::shared_ptr<const Core> core_;
};

// The detector's blocks: images [B, C, H, W] in and out, of any strides, channels first throughout.
class QKV_API PreparedDetector {
 public:
  explicit PreparedDetector(const DetectorWeights& weights, const PrepareOptions& options = {});
  void forward(const TensorView& x, const MutableTensorView& out,
               const BlockOptions& options = {}) const;
  BlockPlan plan(const Dims& x, const BlockOptions& options = {}) const;

  class Core;

 private:
  std::shared_ptr<const Core> core_;
};

class QKV_API PreparedPsaBlock {
 public:
  explicit PreparedPsaBlock(const PsaBlockWeights& weights, const PrepareOptions& options = {});
  void forward(const TensorView& x, const MutableTensorView& out,
               const BlockOptions& options = {}) const;
  BlockPlan plan(const Dims& x, const BlockOptions& options = {}) const;

  class Core;

 private:
  std::shared_ptr<const Core> core_;
};

class QKV_API PreparedC2psa {
 public:
  explicit PreparedC2psa(const C2psaWeights& weights, const PrepareOptions& options = {});
  void forward(const TensorView& x, const MutableTensorView& out,
               const BlockOptions& options = {}) const;
  BlockPlan plan(const Dims& x, const BlockOptions& options = {}) const;

  class Core;

 private:
  std::shared_ptr<const Core> core_;
};

}  // namespace qkv
