#pragma once

#include <functional>
#include <string_view>

#include "qkv/attention.h"
#include "qkv/block_plan.h"
#include "qkv/tensor.h"

namespace qkv {

// Is shown what a block computes, step by step, in the order in which the block does:
//
//   input, qkv, query, key, value, scores, weights, heads, concat, output
//
// Each block's header lists its own. Between scores (scaled) and weights stand, where an option
// makes them differ from scores, softcapped and masked. The values are the block's own
// intermediates, in its own layout, and valid during the call only. An exception that the
// observer throws leaves the block; only at the last step, output, is the output written by then.
using StepObserver = std::function<void(std::string_view step, const TensorView& value)>;

// What every block takes.
struct BlockOptions {
  // Of the attention inside. `accumulate` holds for the whole block: with f64, every step of it is
  // computed and kept in f64. `bias` may have the block input's dtype.
  AttentionOptions attention{};

  int threads = 0;  // of the whole block, attention too unless that has its own. 0: num_threads()

  // Scores and weights exist in full, [B, H, Tq, Tk], only if there is an observer. It does not
  // change a bit of the output.
  StepObserver observer{};

  // Prepared blocks (prepared.h) add to it where the time went. One call at a time may do so.
  BlockProfile* profile = nullptr;
};

}  // namespace qkv
