#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qkv/decoder.h"
#include "qkv/export.h"
#include "qkv/tokenizer.h"

namespace qkv {

struct GptLoadOptions {
  WeightStorage storage = WeightStorage::as_given;
  // Told now and then how much of the model is prepared: layers done, of how many.
  std::function<void(std::int64_t done, std::int64_t of)> progress{};
};

// A GPT from a folder:
//
//   config.json                          what it is
//   model.safetensors                    its weights; or several files and
//   model.safetensors.index.json         the list of what is in which
//   tokenizer.json                       its tokenizer; or vocab.json and merges.txt; or none:
//                                        tokens are ids
//
// GPT-2's family: Hugging Face's names with Conv1D, (in, out); minGPT's and nanoGPT's names with
// Linear, (out, in); c_attn's shape tells which. Llama's family: rotary positions (plain, linear or
// Llama 3 scaling), grouped heads, RMSNorm, SwiGLU; a head of its own, or tied to the embedding.
// Weights are f32, f16, bf16 or f64, and computed with in f32.
//
// Every tensor in the files has to be one that the model knows, and every one that it needs has to
// be there once, of the shape that the config says: an Error names the tensor that is not.
class QKV_API GptModel {
 public:
  static GptModel load(const std::filesystem::path& folder, const GptLoadOptions& options = {});

  const std::string& family() const noexcept;  // "gpt2", "llama"
  const Decoder& decoder() const noexcept;
  const DecoderWeights& weights() const noexcept;  // views of the files
  const std::optional<Tokenizer>& tokenizer() const noexcept;
  const std::vector<std::int32_t>& end_tokens() const noexcept;  // after which a text is over

  std::string describe() const;  // "gpt2: 12 layers, 12 heads of 64, width 768, …"

  struct Parts;

 private:
  explicit GptModel(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace qkv
