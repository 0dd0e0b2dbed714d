#pragma once

#include <string>

#include "cli/command.h"
#include "models/block_file.h"

namespace qkv::cli {

// Which block, and where its weights are: --block, --weights, --weights-prefix, --heads, …
class BlockFlags {
 public:
  // The flags belong to this object, which has to outlive parsing. `required`: --block and
  // --weights have to be given.
  void add_to(Command& command, bool required = true);

  const std::string& name() const noexcept { return block_; }  // "gpt"
  bool given() const noexcept { return !block_.empty(); }
  const std::string& file() const noexcept { return weights_; }
  Loaded<BlockWeights> load() const;

 private:
  std::string block_, weights_;
  LoadOptions options_;
};

// A block's input: [B, T, width] or [B, C, H, W]. One without a batch gets a batch of 1.
struct BlockInput {
  TensorView view;
  std::shared_ptr<const void> owner;
  bool has_batch = true;  // the file's
};
BlockInput load_block_input(std::string_view flag, const std::string& argument,
                            const BlockWeights& weights);

}  // namespace qkv::cli
