#include "cli/block_flags.h"

#include <fmt/format.h>

#include "cli/tensor_argument.h"

namespace qkv::cli {

void BlockFlags::add_to(Command& command, bool required) {
  command.option("--block", block_, "what the weights are")
      .required(required)
      .one_of(block_names());
  command.option("--weights", weights_, "a checkpoint, .safetensors or .npz")
      .required(required)
      .type_name("FILE");
  command.option("--weights-prefix", options_.prefix, "the block's place: model.10.m.0.attn")
      .type_name("NAME");
  command
      .option("--heads", options_.heads,
              "needed, unless the weights tell: psa, c2psa (channels/64), vit with q_norm")
      .type_name("INT");
  command.option("--attn-ratio", options_.attn_ratio, "detector, psa, c2psa: key_dim/head_dim")
      .show_default();
  command.option("--bn-eps", options_.bn_eps, "detector, psa, c2psa: BatchNorm's eps")
      .show_default();
  command.option("--norm-eps", options_.norm_eps, "vit: eps of q_norm and k_norm").show_default();
}

Loaded<BlockWeights> BlockFlags::load() const {
  return load_block(block_, WeightFile::open(weights_), options_);
}

BlockInput load_block_input(std::string_view flag, const std::string& argument,
                            const BlockWeights& weights) {
  const FileTensor tensor = load_tensor(flag, argument);
  const int rank = takes_images(weights) ? 4 : 3;
  BlockInput input{tensor.view, tensor.owner, tensor.view.rank() == rank};
  if (input.has_batch) return input;
  if (tensor.view.rank() != rank - 1) {
    throw UsageError(fmt::format(
        "{}: expected {}, found shape {}", flag,
        rank == 4 ? "an image [B, C, H, W] or [C, H, W]" : "tokens [B, T, width] or [T, width]",
        to_string(tensor.view.shape())));
  }
  input.view = tensor.view.unflatten(0, {1, tensor.view.dim(0)});
  return input;
}

}  // namespace qkv::cli
