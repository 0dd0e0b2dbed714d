#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

struct SamplerOptions {
  double temperature = 1;  // logits are divided by it; 0: the most likely token, always
  std::int64_t top_k = 0;  // only the k most likely ones; 0: all
  double top_p = 1;        // of those, the fewest whose shares reach p, in (0, 1]
  std::uint64_t seed = 0;  // of the numbers that are drawn
};

// Chooses the next token:
//
//   p = softmax(logits / temperature), cut by top_k, then by top_p, and shared out anew
//
// Of equally likely tokens the smaller id counts as the more likely one. The same seed and logits
// give the same tokens, everywhere.
class QKV_API Sampler {
 public:
  explicit Sampler(const SamplerOptions& options = {});  // throws Error on what makes no sense

  // logits [n], f32 or f64, dense. Refuses NaN, and none that is finite.
  std::int32_t operator()(const TensorView& logits);

 private:
  double draw() noexcept;  // in [0, 1)

  SamplerOptions options_;
  std::uint64_t state_;
  std::vector<std::pair<double, std::int32_t>> candidates_;
};

}  // namespace qkv
