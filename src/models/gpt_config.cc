#include "models/gpt_config.h"

#include <fmt/format.h>

#include "io/json_tree.h"
#include "io/report.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using io::JsonPlace;

constexpr std::int64_t kMost = std::int64_t{1} << 24;  // of widths, heads, tokens of a vocabulary
constexpr std::int64_t kLongest = std::int64_t{1} << 31;  // context
constexpr std::int64_t kDeepest = 4096;                   // layers

std::int64_t integer_or(const JsonPlace& place, std::int64_t otherwise, std::int64_t most = kMost) {
  return place.is_null() ? otherwise : place.integer(1, most);
}

double number_or(const JsonPlace& place, double otherwise) {
  return place.is_null() ? otherwise : place.number();
}

bool flag_or(const JsonPlace& place, bool otherwise) {
  return place.is_null() ? otherwise : place.boolean();
}

double eps_or(const JsonPlace& place, double otherwise) {
  const double eps = number_or(place, otherwise);
  if (eps < 0) place.refuse("0 or more");
  return eps;
}

Activation activation_of(const JsonPlace& place) {
  const std::string_view name = place.string();
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return Activation::gelu_tanh;
  }
  if (name == "gelu") return Activation::gelu;
  if (name == "relu") return Activation::relu;
  if (name == "silu" || name == "swish") return Activation::silu;
  place.refuse("gelu_new, gelu_pytorch_tanh, gelu, relu or silu");
}

// Ids past the vocabulary, a default that small models keep, can never come up.
void read_end_tokens(const JsonPlace& place, GptConfig& config) {
  if (place.is_null()) return;
  const auto add = [&](const JsonPlace& id) {
    const std::int64_t token = id.integer(0, kLongest - 1);
    if (token < config.vocabulary) config.end_tokens.push_back(static_cast<std::int32_t>(token));
  };
  if (std::get_if<io::JsonArray>(&place.value().is) == nullptr) return add(place);
  for (std::size_t i = 0; i < place.array().size(); ++i) add(place.item(i));
}

void split_width(const JsonPlace& heads, GptConfig& config) {
  if (config.shape.width % config.shape.heads != 0) {
    heads.refuse(fmt::format("a divisor of the width, {}", config.shape.width),
                 fmt::format("{}", config.shape.heads));
  }
  config.shape.head_dim = config.shape.width / config.shape.heads;
}

GptConfig parse_gpt2(const JsonPlace& root) {
  GptConfig config;
  DecoderShape& shape = config.shape;
  config.layers = root.at("n_layer").integer(1, kDeepest);
  shape.heads = shape.kv_heads = root.at("n_head").integer(1, kMost);
  shape.width = root.at("n_embd").integer(1, kMost);
  config.vocabulary = root.at("vocab_size").integer(1, kMost);
  const JsonPlace context = root.has("n_positions") ? root.at("n_positions") : root.get("n_ctx");
  config.context =
      context.is_null() ? root.at("block_size").integer(1, kLongest) : context.integer(1, kLongest);
  split_width(root.at("n_head"), config);
  shape.hidden = integer_or(root.get("n_inner"), 4 * shape.width);
  config.norm_eps = eps_or(root.get("layer_norm_epsilon"), 1e-5);
  // minGPT computes GELU by tanh, and nanoGPT, whose configs have "bias", by erf.
  const JsonPlace activation = root.get("activation_function");
  shape.activation = !activation.is_null() ? activation_of(activation)
                     : root.has("bias")    ? Activation::gelu
                                           : Activation::gelu_tanh;
  if (!flag_or(root.get("scale_attn_weights"), true)) {
    root.get("scale_attn_weights").refuse("true");
  }
  if (flag_or(root.get("scale_attn_by_inverse_layer_idx"), false)) {
    root.get("scale_attn_by_inverse_layer_idx").refuse("false");
  }
  if (flag_or(root.get("add_cross_attention"), false)) {
    root.get("add_cross_attention").refuse("false");
  }
  if (flag_or(root.get("tie_word_embeddings"), false)) config.head = GptConfig::Head::tied;
  read_end_tokens(root.get("eos_token_id"), config);
  return config;
}

RopeScaling parse_scaling(const JsonPlace& scaling) {
  RopeScaling result;
  if (scaling.is_null()) return result;
  const JsonPlace type = scaling.has("rope_type") ? scaling.at("rope_type") : scaling.get("type");
  const std::string_view name = type.is_null() ? "default" : type.string();
  if (name == "default") return result;
  if (name == "linear") {
    result.kind = RopeScalingKind::linear;
  } else if (name == "llama3") {
    result.kind = RopeScalingKind::llama3;
    result.low_freq_factor = scaling.at("low_freq_factor").number();
    result.high_freq_factor = scaling.at("high_freq_factor").number();
    result.original_context = scaling.at("original_max_position_embeddings").number();
  } else {
    type.refuse("default, linear or llama3");
  }
  result.factor = scaling.at("factor").number();
  return result;
}

// What rope_frequencies says of its arguments is said of the fields that they come from.
std::vector<double> frequencies_of(const JsonPlace& root, std::int64_t head_dim,
                                   const JsonPlace& base, const JsonPlace& scaling) {
  const RopeScaling parsed = parse_scaling(scaling);
  try {
    return rope_frequencies(head_dim, number_or(base, 10000), parsed);
  } catch (const Error& error) {
    const std::string& subject = error.subject();
    if (subject == "base") base.refuse(error.expected(), error.found());
    if (subject == "width") {
      if (root.has("head_dim")) root.at("head_dim").refuse(error.expected(), error.found());
      root.at("num_attention_heads")
          .refuse(fmt::format("heads whose width is {}", error.expected()), error.found());
    }
    const std::string_view field = std::string_view(subject).substr(subject.find('.') + 1);
    scaling.get(field == "original_context" ? "original_max_position_embeddings" : field)
        .refuse(error.expected(), error.found());
  }
}

GptConfig parse_llama(const JsonPlace& root) {
  GptConfig config;
  config.llama = true;
  DecoderShape& shape = config.shape;
  config.layers = root.at("num_hidden_layers").integer(1, kDeepest);
  shape.heads = root.at("num_attention_heads").integer(1, kMost);
  shape.kv_heads = integer_or(root.get("num_key_value_heads"), shape.heads);
  if (shape.heads % shape.kv_heads != 0) {
    root.at("num_key_value_heads")
        .refuse(fmt::format("a divisor of num_attention_heads, {}", shape.heads));
  }
  shape.width = root.at("hidden_size").integer(1, kMost);
  shape.hidden = root.at("intermediate_size").integer(1, kMost);
  config.vocabulary = root.at("vocab_size").integer(1, kMost);
  config.context = root.at("max_position_embeddings").integer(1, kLongest);
  if (root.has("head_dim")) {
    shape.head_dim = root.at("head_dim").integer(1, kMost);
  } else {
    split_width(root.at("num_attention_heads"), config);
  }
  config.norm_eps = eps_or(root.get("rms_norm_eps"), 1e-6);
  shape.activation =
      root.has("hidden_act") ? activation_of(root.at("hidden_act")) : Activation::silu;
  if (shape.activation != Activation::silu) root.at("hidden_act").refuse("silu");
  shape.rope = true;
  // transformers 5 has all of it in rope_parameters, the versions before in two places.
  const bool together = root.has("rope_parameters");
  const JsonPlace scaling = root.get(together ? "rope_parameters" : "rope_scaling");
  const JsonPlace base = together ? scaling.get("rope_theta") : root.get("rope_theta");
  if (number_or(root.get("partial_rotary_factor"), 1) != 1) {
    root.get("partial_rotary_factor").refuse("1");
  }
  config.rope_frequencies = frequencies_of(root, shape.head_dim, base, scaling);
  config.attention_bias = flag_or(root.get("attention_bias"), false);
  config.mlp_bias = flag_or(root.get("mlp_bias"), false);
  const bool tied = flag_or(root.get("tie_word_embeddings"), false);
  config.head = tied ? GptConfig::Head::tied : GptConfig::Head::own;
  read_end_tokens(root.get("eos_token_id"), config);
  return config;
}

}  // namespace

GptConfig parse_gpt_config(std::string_view text, std::string_view where) {
  const io::JsonValue tree = io::parse_json(text, where);
  const JsonPlace root(tree, where);
  const JsonPlace type = root.get("model_type");
  if (type.is_null()) {  // nanoGPT's has none
    if (root.has("n_layer")) return parse_gpt2(root);
    type.refuse("gpt2, gpt-… (minGPT) or llama");
  }
  const std::string_view name = type.string();
  if (name == "llama") return parse_llama(root);
  const bool min_gpt = name.starts_with("gpt-") && root.has("n_layer") && root.has("block_size");
  if (name == "gpt2" || min_gpt) return parse_gpt2(root);
  type.refuse("gpt2, gpt-… (minGPT) or llama");
}

std::vector<std::pair<std::string, std::string>> parse_shard_index(std::string_view text,
                                                                   std::string_view where) {
  const io::JsonValue tree = io::parse_json(text, where);
  const JsonPlace map = JsonPlace(tree, where).at("weight_map");
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [tensor, value] : map.object()) {
    const auto* file = std::get_if<std::string>(&value.is);
    if (file == nullptr || file->empty() || file->find('/') != file->npos || *file == "." ||
        *file == ".." || !file->ends_with(".safetensors")) {
      map.refuse(fmt::format("the name of a .safetensors file for {}", io::in_quotes(tensor)),
                 file == nullptr ? "no string" : io::in_quotes(*file));
    }
    result.emplace_back(tensor, *file);
  }
  if (result.empty()) map.refuse("tensors", "none");
  return result;
}

}  // namespace qkv
