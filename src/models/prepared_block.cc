#include "models/prepared_block.h"

#include "ops/refuse.h"

namespace qkv {
namespace {

using Any = std::variant<PreparedAttention, PreparedCrossAttention, PreparedDetector,
                         PreparedPsaBlock, PreparedC2psa>;

struct Prepare {
  bool cross;
  const PrepareOptions& options;

  Any operator()(const TransformerWeights& w) const {
    if (cross) return PreparedCrossAttention(w, options);
    return PreparedAttention(w, options);
  }
  Any operator()(const VitWeights& w) const { return PreparedAttention(w, options); }
  Any operator()(const GptWeights& w) const { return PreparedAttention(w, options); }
  Any operator()(const DetectorWeights& w) const { return PreparedDetector(w, options); }
  Any operator()(const PsaBlockWeights& w) const { return PreparedPsaBlock(w, options); }
  Any operator()(const C2psaWeights& w) const { return PreparedC2psa(w, options); }
};

}  // namespace

PreparedBlock::PreparedBlock(const BlockWeights& weights, bool cross, const PrepareOptions& options)
    : block_(std::visit(Prepare{cross, options}, weights)) {}

void PreparedBlock::forward(const TensorView& x, const TensorView& memory,
                            const MutableTensorView& out, const BlockOptions& options) const {
  std::visit(
      [&](const auto& block) {
        if constexpr (std::is_same_v<std::decay_t<decltype(block)>, PreparedCrossAttention>) {
          block.forward(x, memory, out, options);
        } else {
          if (memory.has_value()) {
            Refuse("block").value("memory", "none: the block attends to its own input", "one");
          }
          block.forward(x, out, options);
        }
      },
      block_);
}

BlockPlan PreparedBlock::plan(const Dims& x, const std::optional<Dims>& memory,
                              const BlockOptions& options) const {
  return std::visit(
      [&](const auto& block) {
        if constexpr (std::is_same_v<std::decay_t<decltype(block)>, PreparedCrossAttention>) {
          return block.plan(x, *memory, options);
        } else {
          return block.plan(x, options);
        }
      },
      block_);
}

}  // namespace qkv
