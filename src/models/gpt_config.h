#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/decoder.h"

namespace qkv {

// config.json of a GPT, resolved: what is not given has its library's default.
struct GptConfig {
  bool llama = false;
  DecoderShape shape;
  std::int64_t layers = 0, vocabulary = 0, context = 0;
  double norm_eps = 1e-5;
  std::vector<double> rope_frequencies;           // Llama
  bool attention_bias = false, mlp_bias = false;  // Llama: whether these maps have one
  // Where the head's weights are: the embedding's (whatever the file has), lm_head's, or lm_head's
  // if there are any.
  enum class Head { tied, own, own_if_there } head = Head::own_if_there;
  std::vector<std::int32_t> end_tokens;
};

// Refuses what is no model of the two families, by its name, and options that would change what is
// computed.
GptConfig parse_gpt_config(std::string_view text, std::string_view where);

// model.safetensors.index.json: (tensor, file) in its order. Files are names, never paths.
std::vector<std::pair<std::string, std::string>> parse_shard_index(std::string_view text,
                                                                   std::string_view where);

}  // namespace qkv
