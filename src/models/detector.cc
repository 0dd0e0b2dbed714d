#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

#include "models/transformer_names.h"

// Ultralytics' names. A module Conv is a convolution `conv` and a BatchNorm `bn`; fused (as its
// exporters do) the convolution has a bias and there is no bn.

namespace qkv {
namespace {

// With a BatchNorm beside it, all of its four tensors have to be there.
bool has_batch_norm(const PlaceReader& reader, const std::string& name) {
  for (const char* part : {"weight", "bias", "running_mean", "running_var"}) {
    if (reader.has(fmt::format("{}.bn.{}", name, part))) return true;
  }
  return false;
}

// The convolution `name`, out rows of `in` channels (-1: any), 1×1 unless it is depthwise.
ConvWeights read_conv(PlaceReader& reader, const std::string& name, std::int64_t out,
                      std::int64_t in, bool depthwise, double bn_eps) {
  const std::string module = fmt::format("{}.conv", name);
  const std::string conv = reader.has(module + ".weight") ? module : name;
  const Dims shape = depthwise ? Dims{out, 1, 3, 3} : Dims{out, in, 1, 1};
  const TensorView weight = reader.read(conv + ".weight", shape);
  const std::int64_t rows = weight.dim(0);
  const ConvWeights plain{weight, reader.read_if_there(conv + ".bias", {rows})};
  if (!has_batch_norm(reader, name)) return plain;
  BatchNorm norm;
  norm.weight = reader.read(name + ".bn.weight", {rows});
  norm.bias = reader.read(name + ".bn.bias", {rows});
  norm.mean = reader.read(name + ".bn.running_mean", {rows});
  norm.variance = reader.read(name + ".bn.running_var", {rows});
  norm.eps = bn_eps;
  auto folded = std::make_shared<FoldedConv>(fold_batch_norm(plain, norm));
  reader.keep(folded);
  return folded->view();
}

DetectorWeights read_detector(PlaceReader& reader, const std::string& prefix, std::int64_t dim,
                              std::int64_t heads, const LoadOptions& options) {
  const std::string qkv = prefix + "qkv";
  if (dim < 0) {
    const std::string anchor = reader.has(qkv + ".conv.weight") ? ".conv.weight" : ".weight";
    dim = reader.read(qkv + anchor, {-1, -1, 1, 1}).dim(1);
  }
  const DetectorDims dims = detector_dims(dim, heads, options.attn_ratio);
  DetectorWeights w;
  w.qkv = read_conv(reader, qkv, dims.channels, dim, false, options.bn_eps);
  w.proj = read_conv(reader, prefix + "proj", dim, dim, false, options.bn_eps);
  w.pe = read_conv(reader, prefix + "pe", dim, 1, true, options.bn_eps);
  w.heads = dims.heads;
  w.key_dim = dims.key_dim;
  w.head_dim = dims.head_dim;
  return w;
}

// `c` channels, or -1: as many as the attention's convolution takes.
PsaBlockWeights read_psa(PlaceReader& reader, const std::string& prefix, std::int64_t c,
                         const LoadOptions& options) {
  const std::string qkv = prefix + "attn.qkv";
  if (c < 0) {
    const std::string anchor = reader.has(qkv + ".conv.weight") ? ".conv.weight" : ".weight";
    c = reader.read(qkv + anchor, {-1, -1, 1, 1}).dim(1);
  }
  PsaBlockWeights w;
  w.attention =
      read_detector(reader, prefix + "attn.", c, options.heads.value_or(c2psa_heads(c)), options);
  w.expand = read_conv(reader, prefix + "ffn.0", -1, c, false, options.bn_eps);
  const std::int64_t hidden = w.expand.weight.dim(0);
  w.reduce = read_conv(reader, prefix + "ffn.1", c, hidden, false, options.bn_eps);
  return w;
}

// The names of some convolutions, of modules and plain.
std::array<NameScheme, 2> conv_schemes(const std::vector<std::string>& convs) {
  std::array<NameScheme, 2> schemes = {NameScheme{"Ultralytics", {}},
                                       NameScheme{"plain convolutions", {}}};
  for (const std::string& conv : convs) {
    schemes[0].required.push_back(conv + ".conv.weight");
    schemes[1].required.push_back(conv + ".weight");
  }
  return schemes;
}

}  // namespace

Loaded<DetectorWeights> load_detector(const WeightFile& file, const LoadOptions& options) {
  const FoundPlace place =
      find_place(file, options.prefix, "detector", conv_schemes({"qkv", "pe", "proj"}));
  PlaceReader reader(file, place.prefix);
  const std::string anchor = place.scheme == 0 ? "qkv.conv.weight" : "qkv.weight";
  const std::int64_t heads = heads_or_refuse(reader, options, anchor);
  DetectorWeights weights = read_detector(reader, "", -1, heads, options);
  return {weights, std::move(reader.owners()), place.prefix};
}

Loaded<PsaBlockWeights> load_psa_block(const WeightFile& file, const LoadOptions& options) {
  const FoundPlace place =
      find_place(file, options.prefix, "psa",
                 conv_schemes({"attn.qkv", "attn.pe", "attn.proj", "ffn.0", "ffn.1"}));
  PlaceReader reader(file, place.prefix);
  PsaBlockWeights weights = read_psa(reader, "", -1, options);
  return {weights, std::move(reader.owners()), place.prefix};
}

Loaded<C2psaWeights> load_c2psa(const WeightFile& file, const LoadOptions& options) {
  // The first two have blocks m.0, m.1, …; the others (YOLOv10) one block, without a name.
  std::vector<NameScheme> schemes;
  for (const std::string block : {"m.0.", ""}) {
    for (NameScheme& scheme :
         conv_schemes({block + "attn.qkv", block + "attn.pe", block + "attn.proj", block + "ffn.0",
                       block + "ffn.1", "cv1", "cv2"})) {
      schemes.push_back(std::move(scheme));
    }
  }
  const FoundPlace place = find_place(file, options.prefix, "c2psa", schemes);
  PlaceReader reader(file, place.prefix);
  C2psaWeights weights;
  weights.cv1 = read_conv(reader, "cv1", -1, -1, false, options.bn_eps);
  const std::int64_t both = weights.cv1.weight.dim(0);
  if (both < 2 || both % 2 != 0) {
    reader.refuse("cv1", "an even number of output channels, for two halves",
                  fmt::format("{}", both));
  }
  weights.cv2 = read_conv(reader, "cv2", -1, both, false, options.bn_eps);
  if (place.scheme >= 2) {
    weights.blocks.push_back(read_psa(reader, "", both / 2, options));
  }
  for (std::size_t i = 0; place.scheme < 2; ++i) {
    const std::string block = fmt::format("m.{}.", i);
    if (!reader.has(block + schemes[place.scheme].required[0].substr(4))) break;
    weights.blocks.push_back(read_psa(reader, block, both / 2, options));
  }
  return {std::move(weights), std::move(reader.owners()), place.prefix};
}

}  // namespace qkv
