#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "qkv/activation.h"
#include "qkv/block_plan.h"
#include "qkv/export.h"
#include "qkv/linear.h"
#include "qkv/norm.h"
#include "qkv/prepared.h"
#include "qkv/step.h"
#include "qkv/tensor.h"
#include "qkv/transformer.h"
#include "qkv/vit.h"

// The layers that models are stacked of: attention, a feed-forward network, norms and residuals.
// Prepared like the blocks of prepared.h, whose rules hold here too.

namespace qkv {

// The original Transformer's encoder layer (torch.nn.TransformerEncoderLayer) and the ViT's:
//
//   norm_first = false   y = norm1(x + attention(x))          out = norm2(y + ffn(y))
//   norm_first = true    y = x + scale1·attention(norm1(x))   out = y + scale2·ffn(norm2(y))
//
//   ffn(y) = linear2(activation(linear1(y)))
struct EncoderLayerWeights {
  std::variant<TransformerWeights, VitWeights> attention{};
  NormWeights norm1{}, norm2{};        // [width]
  LinearWeights linear1{}, linear2{};  // [hidden, width], [width, hidden]
  Activation activation = Activation::relu;
  bool norm_first = false;
  TensorView scale1{}, scale2{};  // [width], or none: 1. Layer scale, with norm_first only
};

// x [B, T, width]   out the same shape. Options are of the attention inside.
class QKV_API PreparedEncoderLayer {
 public:
  explicit PreparedEncoderLayer(const EncoderLayerWeights& weights,
                                const PrepareOptions& options = {});
  void forward(const TensorView& x, const MutableTensorView& out,
               const BlockOptions& options = {}) const;
  BlockPlan plan(const Dims& x, const BlockOptions& options = {}) const;

  class Core;
  const Core& core() const noexcept { return *core_; }  // for the library itself

 private:
  std::shared_ptr<const Core> core_;
};

// The original Transformer's decoder layer (torch.nn.TransformerDecoderLayer):
//
//   norm_first = false   y = norm1(x + self(x))    z = norm2(y + cross(y, memory))
//                        out = norm3(z + ffn(z))
//   norm_first = true    y = x + self(norm1(x))    z = y + cross(norm2(y), memory)
//                        out = z + ffn(norm3(z))
struct TransformerDecoderLayerWeights {
  TransformerWeights self_attention{}, cross_attention{};
  NormWeights norm1{}, norm2{}, norm3{};
  LinearWeights linear1{}, linear2{};
  Activation activation = Activation::relu;
  bool norm_first = false;
};

struct DecoderOptions {
  // Causal as the original is; with Causal::none every token sees all (PyTorch's default).
  AttentionOptions self_attention{.causal = Causal::aligned};
  AttentionOptions cross_attention{};
  int threads = 0;
  BlockProfile* profile = nullptr;
};

// x [B, T, width]   memory [B, Tk, memory's width]   out of x's shape
class QKV_API PreparedDecoderLayer {
 public:
  explicit PreparedDecoderLayer(const TransformerDecoderLayerWeights& weights,
                                const PrepareOptions& options = {});

  // Keys and values of a memory, for many calls (PreparedCrossAttention::read).
  PreparedCrossAttention::Memory read(const TensorView& memory, int threads = 0) const;

  void forward(const TensorView& x, const PreparedCrossAttention::Memory& memory,
               const MutableTensorView& out, const DecoderOptions& options = {}) const;
  void forward(const TensorView& x, const TensorView& memory, const MutableTensorView& out,
               const DecoderOptions& options = {}) const;
  BlockPlan plan(const Dims& x, const Dims& memory, const DecoderOptions& options = {}) const;

  class Core;

 private:
  std::shared_ptr<const Core> core_;
};

}  // namespace qkv
