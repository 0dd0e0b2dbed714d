#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "qkv/block_plan.h"
#include "qkv/export.h"
#include "qkv/layers.h"
#include "qkv/linear.h"
#include "qkv/norm.h"
#include "qkv/tensor.h"

namespace qkv {

// What the head reads of the last layer's tokens.
enum class Pooling : std::uint8_t {
  first,  // the first token, CLS
  mean,   // the mean of all tokens but CLS
};

// A vision transformer as a whole:
//
//   patches of p×p pixels, row by row, each through one linear map; CLS before them; + positions
//   every layer in turn
//   scores = head(norm(pooled))            or, with norm_pooled = false, head(pooled(norm(tokens)))
//
// width is the number of rows of patch.weight.
struct VisionWeights {
  LinearWeights patch{};  // [width, C·p·p], the columns as a convolution [width, C, p, p] has them
  std::int64_t channels = 3, patch_size = 16;
  std::int64_t height = 224, width = 224;  // of the image, multiples of patch_size
  TensorView cls{};                        // [width], or none
  TensorView positions{};                  // [tokens, width], or none
  std::vector<EncoderLayerWeights> layers{};
  NormWeights norm{};    // of the tokens, before the head
  LinearWeights head{};  // [classes, width], or none: the pooled token itself
  Pooling pooling = Pooling::first;
  bool norm_pooled = false;  // mean: the norm follows the pooling (timm's fc_norm)
};

struct VisionOptions {
  int threads = 0;
  BlockProfile* profile = nullptr;
};

// Prepared like the blocks of prepared.h, whose rules hold here too.
class QKV_API PreparedVision {
 public:
  explicit PreparedVision(const VisionWeights& weights, const PrepareOptions& options = {});

  // pixels [B, C, H, W], normalised as the model wants them   scores [B, classes]
  // Computed in f64 if pixels are f64, otherwise in f32. Of the last layer, only what the head
  // reads is computed.
  void forward(const TensorView& pixels, const MutableTensorView& scores,
               const VisionOptions& options = {}) const;

  std::int64_t classes() const noexcept;  // that the head gives
  Dims image() const noexcept;            // [C, H, W]
  BlockPlan plan(std::int64_t B, const VisionOptions& options = {}) const;

  class Core;

 private:
  std::shared_ptr<const Core> core_;
};

}  // namespace qkv
