#pragma once

// A second, independent evaluation of attention for tests: in f64, over the whole B×Hq×Tq×Tk, each
// rule of visibility asked separately for each (query, key) pair. It shares no code with the
// library but views, so that a mistake in the reference kernel shows.

#include <cstdint>
#include <vector>

#include "qkv/attention.h"

namespace qkv::testing {

struct AttentionOracle {
  std::vector<double> scores, softcapped, masked, weights;  // [B, Hq, Tq, Tk]
  std::vector<double> out;                                  // [B, Hq, Tq, Dv]
  std::vector<double> lse;                                  // [B, Hq, Tq]

  // Per row [B, Hq, Tq], what a computation in a type of rounding unit u may be off by, in units
  // of u; derivation at the definition. For scores (each stage up to masked), weights (relative to
  // 1), and out.
  std::vector<double> score_slack, weight_slack, out_slack;
};

AttentionOracle attention_oracle(const TensorView& query, const TensorView& key,
                                 const TensorView& value, const AttentionOptions& options);

}  // namespace qkv::testing
