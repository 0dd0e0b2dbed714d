#pragma once

#include <optional>
#include <variant>

#include "models/block_file.h"
#include "qkv/prepared.h"

namespace qkv {

// Any block, prepared (qkv/prepared.h).
class PreparedBlock {
 public:
  // `cross`: a transformer that attends to a memory.
  PreparedBlock(const BlockWeights& weights, bool cross, const PrepareOptions& options = {});

  // `memory` if cross, none otherwise. Keys and values of a memory are computed in each call.
  void forward(const TensorView& x, const TensorView& memory, const MutableTensorView& out,
               const BlockOptions& options) const;
  BlockPlan plan(const Dims& x, const std::optional<Dims>& memory,
                 const BlockOptions& options) const;

 private:
  std::variant<PreparedAttention, PreparedCrossAttention, PreparedDetector, PreparedPsaBlock,
               PreparedC2psa>
      block_;
};

}  // namespace qkv
