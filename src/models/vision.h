#pragma once

// Whole vision transformers out of a folder: config.json, model.safetensors and, from Hugging Face,
// preprocessor_config.json.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/image/image.h"
#include "models/weight_file.h"
#include "qkv/vision.h"

namespace qkv {

struct VisionModel {
  VisionWeights weights;
  std::vector<std::shared_ptr<const void>> owners;  // of what the weights view
  io::ImageProcessing processing;
  std::vector<std::string> labels;  // one a class, or none
  std::string origin;               // "Hugging Face" or "timm"
};

// Hugging Face's ViTForImageClassification (model_type vit) and ViTModel, whose head is then none,
// with the names of transformers 4 (encoder.layer.0.attention.attention.query) and 5
// (layers.0.attention.q_proj); timm's VisionTransformer (blocks.0.attn.qkv). Refuses what would be
// another model: tokens besides CLS, gated feed-forwards, an activation that is not known.
// timm's checkpoints do not say the number of heads: 64 columns each, unless `heads` is given or
// config.json's model_args say so.
VisionModel load_vision(const std::filesystem::path& folder,
                        std::optional<std::int64_t> heads = std::nullopt);

}  // namespace qkv
