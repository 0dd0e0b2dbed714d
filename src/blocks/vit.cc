#include "qkv/vit.h"

#include "blocks/fused.h"

namespace qkv {

void vit_forward(const VitWeights& weights, const TensorView& x, const MutableTensorView& out,
                 const BlockOptions& options) {
  const Call call("vit_forward", "x", x, options);
  FusedWeights fused;
  fused.qkv_name = "qkv";
  fused.qkv = weights.qkv;
  fused.proj_name = "proj";
  fused.proj = weights.proj;
  fused.q_norm = weights.q_norm ? &*weights.q_norm : nullptr;
  fused.k_norm = weights.k_norm ? &*weights.k_norm : nullptr;
  fused.heads = weights.heads;
  fused.show_split = true;
  fused_forward(call, fused, options.attention, x, out);
}

}  // namespace qkv
