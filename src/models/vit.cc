#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "models/transformer_names.h"

namespace qkv {
namespace {

// Each of them makes the result another one: BEiT's biases, positions inside the attention, timm's
// norm before proj.
constexpr std::array<std::string_view, 6> kNotComputed = {
    "q_bias", "v_bias", "rel_pos_h", "rel_pos_w", "relative_position_bias_table", "norm.weight"};

std::optional<NormWeights> read_norm(PlaceReader& reader, std::string_view name, double eps) {
  const std::string weight = fmt::format("{}.weight", name), bias = fmt::format("{}.bias", name);
  if (!reader.has(weight)) {
    if (reader.has(bias)) reader.refuse(weight, "a weight to go with the bias", "none");
    return std::nullopt;
  }
  NormWeights norm;
  norm.weight = reader.read(weight, {-1});
  norm.bias = reader.read_if_there(bias, {norm.weight.dim(0)});
  norm.eps = eps;
  norm.kind = norm.bias.has_value() ? NormKind::layer : NormKind::rms;
  return norm;
}

// A norm is as wide as a head.
LoadOptions with_heads(const LoadOptions& options, const VitWeights& w, std::int64_t width) {
  LoadOptions known = options;
  if (!known.heads && w.q_norm && w.q_norm->weight.dim(0) > 0) {
    known.heads = width / w.q_norm->weight.dim(0);
  }
  return known;
}

VitWeights read_timm(PlaceReader& reader, const LoadOptions& options) {
  reader.refuse_if_there(kNotComputed, "vit");
  VitWeights w;
  w.qkv.weight = reader.read("qkv.weight", {-1, -1});
  const std::int64_t rows = w.qkv.weight.dim(0);
  if (rows == 0 || rows % 3 != 0) {
    reader.refuse("qkv.weight", "shape [3·heads·head_dim, dim]", to_string(w.qkv.weight.shape()));
  }
  w.qkv.bias = reader.read_if_there("qkv.bias", {rows});
  w.proj.weight = reader.read("proj.weight", {-1, rows / 3});
  w.proj.bias = reader.read_if_there("proj.bias", {w.proj.weight.dim(0)});
  w.q_norm = read_norm(reader, "q_norm", options.norm_eps);
  w.k_norm = read_norm(reader, "k_norm", options.norm_eps);
  w.heads = heads_or_refuse(reader, with_heads(options, w, rows / 3), "qkv.weight");
  const std::int64_t head_dim = split_or_refuse(reader, "qkv.weight", rows / 3, w.heads);
  if (w.q_norm) reader.read("q_norm.weight", {head_dim});
  if (w.k_norm) reader.read("k_norm.weight", {head_dim});
  return w;
}

// Rows of several maps, one below the other, in memory of its own.
LinearWeights stack(PlaceReader& reader, const std::vector<const LinearWeights*>& parts) {
  const std::int64_t in = parts[0]->weight.dim(1);
  std::int64_t rows = 0;
  bool any_bias = false;
  DType dtype = parts[0]->weight.dtype();
  for (const LinearWeights* part : parts) {
    rows += part->weight.dim(0);
    any_bias = any_bias || part->bias.has_value();
    if (part->weight.dtype() != dtype) dtype = DType::f64;  // holds every one of them
  }
  auto weight = std::make_shared<Tensor>(dtype, Dims{rows, in});
  auto bias = any_bias ? std::make_shared<Tensor>(DType::f64, Dims{rows}) : nullptr;
  std::int64_t row = 0;
  for (const LinearWeights* part : parts) {
    const std::int64_t end = row + part->weight.dim(0);
    copy(part->weight, weight->view().slice(0, row, end));
    if (part->bias.has_value()) copy(part->bias, bias->view().slice(0, row, end));
    row = end;
  }
  LinearWeights stacked{*weight, bias ? TensorView(*bias) : TensorView()};
  reader.keep(weight);
  if (bias) reader.keep(bias);
  return stacked;
}

VitWeights stack_qkv(PlaceReader& reader, const TransformerWeights& parts,
                     std::string_view query_name) {
  const Dims& shape = parts.query.weight.shape();
  for (const LinearWeights* part : {&parts.key, &parts.value}) {
    if (!(part->weight.shape() == shape)) {
      reader.refuse(query_name,
                    fmt::format("the shape of key and value, {}", to_string(part->weight.shape())),
                    to_string(shape));
    }
  }
  VitWeights w;
  w.qkv = stack(reader, {&parts.query, &parts.key, &parts.value});
  w.proj = parts.output;
  w.heads = parts.heads;
  return w;
}

}  // namespace

Loaded<VitWeights> load_vit(const WeightFile& file, const LoadOptions& options) {
  static const std::vector<NameScheme> schemes = [] {
    std::vector<NameScheme> all = {{"timm", {"qkv.weight", "proj.weight"}}};
    const std::span<const NameScheme> more = transformer_schemes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  const FoundPlace place = find_place(file, options.prefix, "vit", schemes);
  PlaceReader reader(file, place.prefix);
  VitWeights weights;
  if (place.scheme == 0) {
    weights = read_timm(reader, options);
  } else {
    const TransformerWeights parts = read_transformer(reader, place.scheme - 1, options);
    weights = stack_qkv(reader, parts, schemes[place.scheme].required.front());
  }
  return {std::move(weights), std::move(reader.owners()), place.prefix};
}

}  // namespace qkv
