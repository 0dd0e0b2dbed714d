#pragma once

// GPTs by their definition, in f64, one plain loop after the other, for whole sequences at once:
// what the decoder is compared with. Shares no code with it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qkv::testing {

// Numbers of a tensor by name, row-major.
using Numbers = std::vector<double>;

struct OracleGpt {
  bool llama = false;
  int layers = 0, heads = 0, kv_heads = 0, head_dim = 0, width = 0, hidden = 0, vocabulary = 0;
  double eps = 1e-5;
  double rope_base = 10000;  // Llama
  bool conv1d = false;       // GPT-2: matrices are (in, out)
  bool exact_gelu = false;
  std::function<Numbers(const std::string& name)> tensor;  // empty if there is none

  // The logits after each token, [T][vocabulary].
  std::vector<Numbers> logits(const std::vector<int>& tokens) const;
};

}  // namespace qkv::testing
