#pragma once

// The detector's blocks as parts of each other: made (checked, with all memory) first, run later.
// Inputs and outputs are images [B, C, H, W] of any strides, and known when a part is made.

#include <cstdint>
#include <optional>
#include <string_view>

#include "blocks/block.h"
#include "qkv/detector.h"

namespace qkv {

// Adds the weights' views, with names that start with `prefix`.
void add_inputs(Inputs& inputs, std::string_view prefix, const DetectorWeights& weights);
void add_inputs(Inputs& inputs, std::string_view prefix, const PsaBlockWeights& weights);

// Refuses weights that do not fit `channels`; returns the channels that they give.
std::int64_t check_c2psa(const Refuse& refuse, const C2psaWeights& weights, std::int64_t channels);

// proj( v·softmax(qᵀ·k)ᵀ + pe(v) )
class DetectorRun {
 public:
  // Refuses weights that do not fit `channels`; returns the channels that they give. Names in
  // errors start with `prefix`.
  static std::int64_t check(const Refuse& refuse, std::string_view prefix,
                            const DetectorWeights& weights, std::int64_t channels);

  // x is read by run() only, so it may be memory that is yet to be filled.
  DetectorRun(const Call& call, const DetectorWeights& weights, const TensorView& x,
              const MutableTensorView& out);
  DetectorRun(const DetectorRun&) = delete;
  void run();

 private:
  void add_position();
  void project();

  const Call call_;
  const DetectorWeights& weights_;
  const TensorView x_;
  const MutableTensorView out_;
  Tensor qkv_;                      // [B, heads·(2·key_dim + head_dim), H, W]
  Tensor concat_;                   // [B, heads·head_dim, H, W]
  Tensor pe_;                       // the same, if there is a pe
  TensorView query_, key_, value_;  // [B, heads, width, N], of qkv_
  MutableTensorView heads_;         // [B, heads, head_dim, N], of concat_
  std::optional<BlockAttention> attention_;
};

// x + attention, then + ffn. `out` may be x: it is written when x has been read.
class PsaBlockRun {
 public:
  static void check(const Refuse& refuse, std::string_view prefix, const PsaBlockWeights& weights,
                    std::int64_t channels);

  PsaBlockRun(const Call& call, const PsaBlockWeights& weights, const TensorView& x,
              const MutableTensorView& out);
  PsaBlockRun(const PsaBlockRun&) = delete;
  void run();

 private:
  const Call call_;
  const PsaBlockWeights& weights_;
  const TensorView x_;
  const MutableTensorView out_;
  Tensor branch_;    // [B, c, H, W]: what attention gives, then what the ffn gives
  Tensor residual_;  // [B, c, H, W]
  Tensor hidden_;    // [B, width of the ffn, H, W]
  std::optional<DetectorRun> attention_;
};

}  // namespace qkv
