#pragma once

#include <cstdint>
#include <vector>

#include "qkv/conv.h"
#include "qkv/export.h"
#include "qkv/step.h"
#include "qkv/tensor.h"

// The attention of a convolutional detector (YOLO11). Images are [B, C, H, W] and stay so: the
// N = H·W pixels, row by row, are the tokens, and channels come first everywhere. All convolutions
// stand here with their BatchNorm folded in (see fold_batch_norm).

namespace qkv {

// The sizes of an attention of `dim` channels:
//   head_dim = dim / heads,  key_dim = int(head_dim·attn_ratio),  channels = dim + 2·heads·key_dim
struct DetectorDims {
  std::int64_t heads = 1, key_dim = 0, head_dim = 0;
  std::int64_t channels = 0;  // that the qkv convolution gives
};
// Refuses a dim that heads do not divide, and an attn_ratio that leaves no key_dim.
QKV_API DetectorDims detector_dims(std::int64_t dim, std::int64_t heads, double attn_ratio = 0.5);

//   q, k, v = split of qkv(x), per head [q | k | v], widths [key_dim, key_dim, head_dim]
//   out     = proj( v·softmax(qᵀ·k / √key_dim)ᵀ + pe(v) )
//
// The value's width heads·head_dim need not be x's.
struct DetectorWeights {
  ConvWeights qkv{};   // 1×1, C → heads·(2·key_dim + head_dim)
  ConvWeights proj{};  // 1×1, heads·head_dim → C; or none: identity
  ConvWeights pe{};    // depthwise 3×3 on heads·head_dim channels; or none: 0
  std::int64_t heads = 1, key_dim = 1, head_dim = 1;
};

// x [B, C, H, W]   out [B, channels that proj gives, H, W]
//
// Steps:
//   input              [B, C, H, W]
//   qkv                [B, heads·(2·key_dim + head_dim), H, W]
//   query, key         [B, heads, key_dim, N]     views of qkv
//   value              [B, heads, head_dim, N]
//   scores … weights   [B, heads, N, N]
//   heads              [B, heads, head_dim, N]    a view of concat
//   concat             [B, heads·head_dim, H, W]
//   pe, sum            [B, heads·head_dim, H, W]  where there is a pe; sum = concat + pe
//   output             [B, C, H, W]
//
// Computed in f64 if x is f64, otherwise in f32, and rounded once to out's dtype; weights are of
// any float dtype. Throws Error, before anything is written, if arguments do not fit or out
// overlaps any of them.
QKV_API void detector_forward(const DetectorWeights& weights, const TensorView& x,
                              const MutableTensorView& out, const BlockOptions& options = {});

//   y   = x + attention(x)
//   out = y + ffn(y),       ffn = expand, SiLU, reduce
//
// without the two additions of their input if shortcut is false.
struct PsaBlockWeights {
  DetectorWeights attention{};
  ConvWeights expand{};  // ffn.0: 1×1, c → 2·c (any width is fine)
  ConvWeights reduce{};  // ffn.1: 1×1, 2·c → c
  bool shortcut = true;
};

// x [B, c, H, W]   out the same
//
// Steps: input; the attention's, as attn.input … attn.output; residual (y); ffn.expand, ffn.silu,
// ffn.reduce; output.
QKV_API void psa_block_forward(const PsaBlockWeights& weights, const TensorView& x,
                               const MutableTensorView& out, const BlockOptions& options = {});

//   a, b = halves of silu(cv1(x))
//   b    = every block in turn of b
//   out  = silu(cv2(concat(a, b)))
struct C2psaWeights {
  ConvWeights cv1{};  // 1×1, c1 → 2·c
  ConvWeights cv2{};  // 1×1, 2·c → c1
  std::vector<PsaBlockWeights> blocks{};
};

// The family's number of heads in the blocks of c channels: max(c / 64, 1).
QKV_API std::int64_t c2psa_heads(std::int64_t c) noexcept;

// x [B, c1, H, W]   out [B, channels that cv2 gives, H, W]
//
// Steps: input; cv1 (after SiLU); the blocks', as blocks.0.input … blocks.0.output; concat; output.
QKV_API void c2psa_forward(const C2psaWeights& weights, const TensorView& x,
                           const MutableTensorView& out, const BlockOptions& options = {});

}  // namespace qkv
