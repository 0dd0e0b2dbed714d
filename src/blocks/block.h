#pragma once

// What all blocks have in common. A block checks every argument and takes all of its memory first,
// computes then, and writes its output last: a call that throws has written nothing.

#include <string>
#include <string_view>
#include <vector>

#include "ops/refuse.h"
#include "qkv/attention.h"
#include "qkv/conv.h"
#include "qkv/linear.h"
#include "qkv/norm.h"
#include "qkv/step.h"
#include "qkv/tensor.h"

namespace qkv {

// One call of a block.
struct Call {
  // Refuses an input x that is not given or no float, and options that no block takes.
  Call(std::string_view where_, std::string_view subject, const TensorView& x,
       const BlockOptions& options_);

  // The same call, seen from a block inside: its steps are shown as `part`.step.
  Call inside(std::string_view part) const;

  bool observed() const noexcept { return static_cast<bool>(options.observer); }
  void show(std::string_view step, const TensorView& value) const;

  std::string_view where;
  Refuse refuse;
  const BlockOptions& options;
  DType input_dtype;
  DType dtype;  // of all intermediates: f32 or f64
  std::string prefix;
};

// Everything that a block reads, by name, in order to refuse an output that overlaps it.
class Inputs {
 public:
  void add(std::string_view name, const TensorView& view);
  void add(std::string_view name, const LinearWeights& weights);
  void add(std::string_view name, const ConvWeights& weights);
  void add(std::string_view name, const NormWeights& weights);
  void add(const AttentionOptions& options);

  // Refuses an output of another shape, of no float dtype, or that overlaps itself or an input.
  void check_output(const Refuse& refuse, const MutableTensorView& out, const Dims& shape,
                    std::string_view axes) const;

 private:
  std::vector<std::pair<std::string, TensorView>> views_;
};

// Refuses a number (of heads, say) below 1.
void check_positive(const Refuse& refuse, std::string_view subject, std::int64_t number);

// The attention inside a block. Views as in attention_forward; inputs are read by run() only, so
// they may be memory that is yet to be filled.
class BlockAttention {
 public:
  // Checks the options against the views and takes memory for the stages, if anyone is to see them.
  // `options` are the call's, changed as the block needs.
  BlockAttention(const Call& call, const AttentionOptions& options, const TensorView& query,
                 const TensorView& key, const TensorView& value, const MutableTensorView& out);

  void run();
  void show_stages() const;  // scores … weights

 private:
  const Call& call_;
  AttentionOptions options_;
  TensorView query_, key_, value_;
  MutableTensorView out_;
  Tensor wide_bias_;
  Tensor scores_, softcapped_, masked_, weights_;
};

}  // namespace qkv
