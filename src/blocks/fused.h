#pragma once

// Self-attention whose three projections are one: what ViT and GPT have in common.

#include <cstdint>
#include <string_view>

#include "blocks/block.h"

namespace qkv {

// The same block under two families' names.
struct FusedWeights {
  std::string_view qkv_name;
  LinearWeights qkv;  // [3·heads·head_dim, width]: [Q | K | V], heads in order inside each
  std::string_view proj_name;
  LinearWeights proj;  // [out, heads·head_dim]
  const NormWeights* q_norm = nullptr;
  const NormWeights* k_norm = nullptr;
  std::int64_t heads = 1;
  bool show_split = false;  // [B, T, 3, heads, head_dim] as a step of its own
};

// `attention` are the call's options, changed as the block needs.
void fused_forward(const Call& call, const FusedWeights& weights, const AttentionOptions& attention,
                   const TensorView& x, const MutableTensorView& out);

}  // namespace qkv
