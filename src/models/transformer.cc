#include <fmt/format.h>

#include <array>
#include <utility>

#include "models/transformer_names.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// A linear map's two names. Those of PyTorch's modules differ in the last part.
struct LinearNames {
  std::string weight, bias;
};

LinearNames module(std::string_view name) {
  return {fmt::format("{}.weight", name), fmt::format("{}.bias", name)};
}

struct MatrixNames {
  std::string_view origin;
  LinearNames query, key, value, output;
};

MatrixNames modules(std::string_view origin, std::string_view q, std::string_view k,
                    std::string_view v, std::string_view o) {
  return {origin, module(q), module(k), module(v), module(o)};
}

// Attentions that keep W^Q, W^K, W^V and W^O apart.
const std::vector<MatrixNames>& matrix_names() {
  static const std::vector<MatrixNames> names = {
      modules("Hugging Face", "q_proj", "k_proj", "v_proj", "out_proj"),
      modules("Llama", "q_proj", "k_proj", "v_proj", "o_proj"),
      modules("BERT", "self.query", "self.key", "self.value", "output.dense"),
      modules("Hugging Face ViT", "attention.query", "attention.key", "attention.value",
              "output.dense"),
      modules("DistilBERT", "q_lin", "k_lin", "v_lin", "out_lin"),
      modules("diffusers", "to_q", "to_k", "to_v", "to_out.0"),
      modules("modules", "W_query", "W_key", "W_value", "out_proj"),
      modules("modules", "query", "key", "value", "output"),
      modules("modules", "wq", "wk", "wv", "wo"),
      modules("modules", "w_q", "w_k", "w_v", "w_o"),
      modules("modules", "W_q", "W_k", "W_v", "W_o"),
      {"arrays", {"w_q", "b_q"}, {"w_k", "b_k"}, {"w_v", "b_v"}, {"w_o", "b_o"}},
      {"arrays", {"W_q", "b_q"}, {"W_k", "b_k"}, {"W_v", "b_v"}, {"W_o", "b_o"}},
      {"arrays", {"wq", "bq"}, {"wk", "bk"}, {"wv", "bv"}, {"wo", "bo"}},
  };
  return names;
}

// Before those of matrix_names(), in transformer_schemes().
constexpr std::size_t kPacked = 0, kPyTorchMatrices = 1, kFirstMatrices = 2;

// Each of them makes the result another one: extra keys, norms, positions inside the attention.
constexpr std::array<std::string_view, 8> kNotComputed = {
    "bias_k",        "bias_v",        "q_norm.weight",       "k_norm.weight",
    "norm_q.weight", "norm_k.weight", "rotary_emb.inv_freq", "relative_attention_bias.weight"};

TransformerWeights read_packed(PlaceReader& reader, std::int64_t heads) {
  const TensorView weight = reader.read("in_proj_weight", {-1, -1});
  const std::int64_t E = weight.dim(1);
  if (weight.dim(0) % 3 != 0 || weight.dim(0) / 3 != E) {
    reader.refuse("in_proj_weight", "shape [3·E, E]", to_string(weight.shape()));
  }
  return TransformerWeights::from_packed(weight, reader.read_if_there("in_proj_bias", {3 * E}),
                                         reader.read("out_proj.weight", {E, E}),
                                         reader.read_if_there("out_proj.bias", {E}), heads);
}

LinearWeights read_linear(PlaceReader& reader, const LinearNames& names, std::int64_t in) {
  const TensorView weight = reader.read(names.weight, {-1, in});
  return {weight, reader.read_if_there(names.bias, {weight.dim(0)})};
}

// The number of key heads, as wide as the query's, that the key's rows are.
std::int64_t key_heads(const PlaceReader& reader, std::string_view name, std::int64_t rows,
                       std::int64_t d_k, std::int64_t heads) {
  const std::int64_t found = rows % d_k == 0 ? rows / d_k : 0;
  if (found < 1 || heads % found != 0) {
    reader.refuse(name,
                  fmt::format("rows for heads of {}, as many as {} or a divisor of it", d_k, heads),
                  fmt::format("{} rows", rows));
  }
  return found;
}

TransformerWeights read_matrices(PlaceReader& reader, const MatrixNames& names,
                                 std::int64_t heads) {
  TransformerWeights w;
  w.heads = heads;
  w.query = read_linear(reader, names.query, -1);
  w.key = read_linear(reader, names.key, -1);
  w.value = read_linear(reader, names.value, -1);
  const std::int64_t d_k =
      split_or_refuse(reader, names.query.weight, w.query.weight.dim(0), heads);
  w.kv_heads = key_heads(reader, names.key.weight, w.key.weight.dim(0), d_k, heads);
  const std::int64_t d_v =
      split_or_refuse(reader, names.value.weight, w.value.weight.dim(0), w.kv_heads);
  w.output = read_linear(reader, names.output, heads * d_v);
  return w;
}

// With kdim or vdim, PyTorch keeps the matrices apart and the biases together.
TransformerWeights read_pytorch_matrices(PlaceReader& reader, std::int64_t heads) {
  const MatrixNames names{
      "", {"q_proj_weight", ""}, {"k_proj_weight", ""}, {"v_proj_weight", ""}, module("out_proj")};
  TransformerWeights w = read_matrices(reader, names, heads);
  const std::int64_t E = w.query.weight.dim(0);
  for (const auto& [linear, name] :
       {std::pair(&w.key, "k_proj_weight"), std::pair(&w.value, "v_proj_weight")}) {
    if (linear->weight.dim(0) != E) {
      reader.refuse(name, fmt::format("{} rows, as q_proj_weight", E),
                    fmt::format("{} rows", linear->weight.dim(0)));
    }
  }
  const TensorView bias = reader.read_if_there("in_proj_bias", {3 * E});
  if (!bias.has_value()) return w;
  w.query.bias = bias.slice(0, 0, E);
  w.key.bias = bias.slice(0, E, 2 * E);
  w.value.bias = bias.slice(0, 2 * E, 3 * E);
  return w;
}

}  // namespace

std::span<const NameScheme> transformer_schemes() {
  static const std::vector<NameScheme> schemes = [] {
    std::vector<NameScheme> all = {
        {"torch.nn.MultiheadAttention", {"in_proj_weight", "out_proj.weight"}},
        {"torch.nn.MultiheadAttention with kdim or vdim",
         {"q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"}}};
    for (const MatrixNames& names : matrix_names()) {
      all.push_back(
          {names.origin,
           {names.query.weight, names.key.weight, names.value.weight, names.output.weight}});
    }
    return all;
  }();
  return schemes;
}

std::int64_t heads_or_refuse(const PlaceReader& reader, const LoadOptions& options,
                             std::string_view from) {
  if (!options.heads) {
    throw Error(ErrorKind::value, reader.file().name(), "heads",
                fmt::format("their number (--heads): {} does not tell it", reader.full(from)),
                "none");
  }
  if (*options.heads < 1) {
    throw Error(ErrorKind::value, reader.file().name(), "heads", "1 or more",
                fmt::format("{}", *options.heads));
  }
  return *options.heads;
}

std::int64_t split_or_refuse(const PlaceReader& reader, std::string_view tensor, std::int64_t total,
                             std::int64_t heads) {
  if (total < heads || total % heads != 0) {
    reader.refuse(tensor, fmt::format("rows for each of {} heads", heads),
                  fmt::format("{} rows", total));
  }
  return total / heads;
}

TransformerWeights read_transformer(PlaceReader& reader, std::size_t scheme,
                                    const LoadOptions& options) {
  const std::string& anchor = transformer_schemes()[scheme].required.front();
  const std::int64_t heads = heads_or_refuse(reader, options, anchor);
  reader.refuse_if_there(kNotComputed, "transformer");
  if (scheme == kPyTorchMatrices) return read_pytorch_matrices(reader, heads);
  if (scheme >= kFirstMatrices) {
    return read_matrices(reader, matrix_names()[scheme - kFirstMatrices], heads);
  }
  static_assert(kPacked == 0);
  TransformerWeights w = read_packed(reader, heads);
  split_or_refuse(reader, "in_proj_weight", w.query.weight.dim(0), heads);
  return w;
}

Loaded<TransformerWeights> load_transformer(const WeightFile& file, const LoadOptions& options) {
  const FoundPlace place = find_place(file, options.prefix, "transformer", transformer_schemes());
  PlaceReader reader(file, place.prefix);
  TransformerWeights weights = read_transformer(reader, place.scheme, options);
  return {std::move(weights), std::move(reader.owners()), place.prefix};
}

}  // namespace qkv
