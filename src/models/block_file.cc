#include "models/block_file.h"

#include <fmt/format.h>

#include <utility>

#include "qkv/error.h"

namespace qkv {
namespace {

template <typename Weights>
Loaded<BlockWeights> any(Loaded<Weights> loaded) {
  return {std::move(loaded.weights), std::move(loaded.owners), std::move(loaded.prefix)};
}

using Load = Loaded<BlockWeights> (*)(const WeightFile&, const LoadOptions&);

struct BlockLoader {
  std::string name;
  Load load;
};

const std::vector<BlockLoader>& loaders() {
  using File = const WeightFile&;
  using Options = const LoadOptions&;
  static const std::vector<BlockLoader> all = {
      {"transformer", [](File f, Options o) { return any(load_transformer(f, o)); }},
      {"vit", [](File f, Options o) { return any(load_vit(f, o)); }},
      {"detector", [](File f, Options o) { return any(load_detector(f, o)); }},
      {"psa", [](File f, Options o) { return any(load_psa_block(f, o)); }},
      {"c2psa", [](File f, Options o) { return any(load_c2psa(f, o)); }},
      {"gpt", [](File f, Options o) { return any(load_gpt(f, o)); }},
  };
  return all;
}

template <typename... Fns>
struct Overloaded : Fns... {
  using Fns::operator()...;
};
template <typename... Fns>
Overloaded(Fns...) -> Overloaded<Fns...>;

// The width of what the block gives: features of a token, or channels.
std::int64_t output_width(const BlockWeights& weights, std::int64_t input_width) {
  return std::visit(Overloaded{[](const TransformerWeights& w) { return w.output.weight.dim(0); },
                               [](const VitWeights& w) { return w.proj.weight.dim(0); },
                               [](const GptWeights& w) { return w.c_proj.weight.dim(0); },
                               [](const DetectorWeights& w) {
                                 return w.proj.weight.has_value() ? w.proj.weight.dim(0)
                                                                  : w.heads * w.head_dim;
                               },
                               [&](const PsaBlockWeights&) { return input_width; },
                               [](const C2psaWeights& w) { return w.cv2.weight.dim(0); }},
                    weights);
}

}  // namespace

const std::vector<std::string>& block_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const BlockLoader& loader : loaders()) all.push_back(loader.name);
    return all;
  }();
  return names;
}

Loaded<BlockWeights> load_block(std::string_view block, const WeightFile& file,
                                const LoadOptions& options) {
  for (const BlockLoader& loader : loaders()) {
    if (loader.name == block) return loader.load(file, options);
  }
  throw Error(ErrorKind::value, "load_block", "block",
              fmt::format("one of {}", fmt::join(block_names(), ", ")), block);
}

bool takes_images(const BlockWeights& weights) noexcept {
  return !std::holds_alternative<TransformerWeights>(weights) &&
         !std::holds_alternative<VitWeights>(weights) &&
         !std::holds_alternative<GptWeights>(weights);
}

Dims block_output_shape(const BlockWeights& weights, const Dims& x) {
  const bool tokens = !takes_images(weights);
  const int rank = tokens ? 3 : 4;
  if (x.rank() != rank) {
    throw Error(ErrorKind::value, "block_output_shape", "x",
                tokens ? "3 dimensions [B, T, width]" : "4 dimensions [B, C, H, W]",
                fmt::format("shape {}", to_string(x)));
  }
  Dims shape = x;
  const int axis = tokens ? 2 : 1;
  shape[axis] = output_width(weights, x[axis]);
  return shape;
}

std::int64_t block_heads(const BlockWeights& weights) {
  return std::visit(
      Overloaded{[](const PsaBlockWeights& w) { return w.attention.heads; },
                 [](const C2psaWeights& w) { return w.blocks.front().attention.heads; },
                 [](const auto& w) { return w.heads; }},
      weights);
}

void block_forward(const BlockWeights& weights, const TensorView& x, const TensorView& memory,
                   const MutableTensorView& out, const BlockOptions& options) {
  if (memory.has_value() && !std::holds_alternative<TransformerWeights>(weights)) {
    throw Error(ErrorKind::value, "block_forward", "memory",
                "none: only a transformer block attends to one", "a tensor");
  }
  std::visit(Overloaded{[&](const TransformerWeights& w) {
                          if (memory.has_value()) {
                            transformer_forward(w, x, memory, out, options);
                          } else {
                            transformer_forward(w, x, out, options);
                          }
                        },
                        [&](const VitWeights& w) { vit_forward(w, x, out, options); },
                        [&](const GptWeights& w) { gpt_forward(w, x, out, options); },
                        [&](const DetectorWeights& w) { detector_forward(w, x, out, options); },
                        [&](const PsaBlockWeights& w) { psa_block_forward(w, x, out, options); },
                        [&](const C2psaWeights& w) { c2psa_forward(w, x, out, options); }},
             weights);
}

}  // namespace qkv
