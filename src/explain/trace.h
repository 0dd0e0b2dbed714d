#pragma once

// What a block showed while it ran, and the pieces that explanations of blocks are made of.

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "explain/explanation.h"
#include "qkv/linear.h"
#include "qkv/step.h"

namespace qkv {

using SharedTensor = std::shared_ptr<const Tensor>;

SharedTensor share(Tensor tensor);

// Asks the thread's InterruptCheck, if there is one (base/parallel.h): a long text's steps are
// large, and copied between the parts of the work that ask themselves.
void ask_for_interrupt();

// Collects copies of a block's steps.
class Trace {
 public:
  // The options with this trace as their observer; it has to outlive the call.
  BlockOptions observe(const BlockOptions& options);

  // Null if the block did not show the step.
  SharedTensor find(std::string_view step) const;

 private:
  std::map<std::string, SharedTensor, std::less<>> steps_;
};

// A step whose text is that of its name; its entries are given, until told otherwise.
Step make_step(std::string name, std::string formula, const SharedTensor& value,
               std::vector<std::string> axes);

// What an entry is that was only moved from another step.
Expansion copied_from(std::string source, const Dims& index);

// An entry of y = x·Wᵀ + bias, where row `row` of x and output o are given by the caller.
Expansion expand_linear(const Tensor& x, const Dims& x_index, int x_axis, const Tensor& weight,
                        const Tensor* bias, std::int64_t o);

// The steps from query to heads, which every block has, in order. Values are as the block showed
// them.
struct AttentionTrace {
  SharedTensor query, key, value, scaled, softcapped, masked, weights, heads;
  AttentionOptions options;
  bool channel_first = false;  // [B, heads, width, N] instead of [B, heads, T, width]
};
struct AttentionLabels {
  std::string heads = "heads", tokens = "T", keys = "T", key_width = "d_k", value_width = "d_v";
  std::vector<std::string> query_names, key_names;  // one a token, or none
};
// Whether there are keys that a query may not see by the options' own rules (a bias may also hide).
bool hides_keys(const AttentionOptions& options);
void add_attention_steps(Explanation& explanation, const AttentionTrace& trace,
                         const AttentionLabels& labels, std::string_view prefix = "");

}  // namespace qkv
