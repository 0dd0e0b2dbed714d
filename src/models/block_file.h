#pragma once

// Blocks out of checkpoints: names of weights, as the well-known libraries write them, become the
// weights structs of the blocks. The only place where io meets blocks.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/weight_file.h"
#include "qkv/detector.h"
#include "qkv/gpt.h"
#include "qkv/step.h"
#include "qkv/transformer.h"
#include "qkv/vit.h"

namespace qkv {

// What a checkpoint does not say.
struct LoadOptions {
  std::string prefix;  // where to look: "model.10.m.0.attn"; empty: everywhere

  // psa, c2psa: c2psa_heads of their channels unless given. vit: told by the width of a q_norm, if
  // there is one. Needed for all others.
  std::optional<std::int64_t> heads;
  double attn_ratio = 0.5;  // detector, psa, c2psa: key_dim / head_dim
  double bn_eps = 1e-3;     // detector, psa, c2psa: of each BatchNorm
  double norm_eps = 1e-6;   // vit: of q_norm and k_norm
};

// A block's weights, and what keeps the elements that they view alive: mapped files, and memory
// where matrices were stacked or BatchNorms folded.
template <typename Weights>
struct Loaded {
  Weights weights;
  std::vector<std::shared_ptr<const void>> owners;
  std::string prefix;  // where it was found
};

// Each looks for the names listed here, at exactly one place in the file (see find_place), and
// ignores all other tensors: num_batches_tracked, GPT-2's attn.bias (a mask) and the rest of the
// model. Throws an Error that says what was looked for and what was found. Matrices are (out, in)
// unless said otherwise; names in [] may be missing.

// torch.nn.MultiheadAttention: in_proj_weight, or q_proj_weight, k_proj_weight, v_proj_weight;
// [in_proj_bias], out_proj.weight, [out_proj.bias].
// Separate matrices: q_proj.weight, k_proj.weight, v_proj.weight, out_proj.weight or o_proj.weight;
// BERT's self.query.weight, …, output.dense.weight; w_q, w_k, w_v, w_o; and more (see
// transformer.cc), with [biases]. The number of key heads follows from the shapes.
Loaded<TransformerWeights> load_transformer(const WeightFile& file, const LoadOptions& options);

// timm: qkv.weight, [qkv.bias], proj.weight, [proj.bias], [q_norm.weight, q_norm.bias, k_norm…]; a
// norm with a bias is a LayerNorm, one without an RMSNorm. Or any names of a transformer's, such as
// Hugging Face's attention.query.weight, … output.dense.weight, which are stacked.
Loaded<VitWeights> load_vit(const WeightFile& file, const LoadOptions& options);

// c_attn.weight, [c_attn.bias], c_proj.weight, [c_proj.bias]; (in, out) or (out, in), see
// GptWeights::from_arrays.
Loaded<GptWeights> load_gpt(const WeightFile& file, const LoadOptions& options);

// Ultralytics. A convolution X is X.conv.weight with X.bn.{weight, bias, running_mean,
// running_var}, or folded, X.conv.weight and [X.conv.bias], or a plain X.weight and [X.bias].
//   detector  qkv, proj, pe
//   psa       attn.{qkv, proj, pe}, ffn.0, ffn.1
//   c2psa     cv1, cv2, m.0.{attn…, ffn…}, m.1…; or, as YOLOv10's PSA, cv1, cv2, attn…, ffn…
Loaded<DetectorWeights> load_detector(const WeightFile& file, const LoadOptions& options);
Loaded<PsaBlockWeights> load_psa_block(const WeightFile& file, const LoadOptions& options);
Loaded<C2psaWeights> load_c2psa(const WeightFile& file, const LoadOptions& options);

// Any of them, by name.
using BlockWeights = std::variant<TransformerWeights, VitWeights, GptWeights, DetectorWeights,
                                  PsaBlockWeights, C2psaWeights>;

// "transformer", "vit", "detector", "psa", "c2psa", "gpt".
const std::vector<std::string>& block_names();
Loaded<BlockWeights> load_block(std::string_view block, const WeightFile& file,
                                const LoadOptions& options);

// Whether the block takes images [B, C, H, W]; the others take tokens [B, T, width].
bool takes_images(const BlockWeights& weights) noexcept;

// What the block makes of an input of that shape: [B, T, width] or [B, C, H, W].
Dims block_output_shape(const BlockWeights& weights, const Dims& x);
std::int64_t block_heads(const BlockWeights& weights);

// The block's own forward. `memory` is for a transformer's cross-attention, none otherwise.
void block_forward(const BlockWeights& weights, const TensorView& x, const TensorView& memory,
                   const MutableTensorView& out, const BlockOptions& options);

}  // namespace qkv
