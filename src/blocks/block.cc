#include "blocks/block.h"

#include "ops/attention_check.h"
#include "ops/compute.h"

namespace qkv {

Call::Call(std::string_view where_, std::string_view subject, const TensorView& x,
           const BlockOptions& options_)
    : where(where_), refuse(where_), options(options_) {
  refuse.unless_given(subject, x);
  refuse.unless_float(subject, x);
  if (options.threads < 0) {
    refuse.value("threads", "0 (default) or more", fmt::format("{}", options.threads));
  }
  input_dtype = x.dtype();
  dtype = compute_dtype(x, options.attention.accumulate);
}

Call Call::inside(std::string_view part) const {
  Call inner = *this;
  inner.prefix += fmt::format("{}.", part);
  return inner;
}

void Call::show(std::string_view step, const TensorView& value) const {
  if (observed()) options.observer(fmt::format("{}{}", prefix, step), value);
}

void Inputs::add(std::string_view name, const TensorView& view) { views_.emplace_back(name, view); }

void Inputs::add(std::string_view name, const LinearWeights& weights) {
  add(fmt::format("{}.weight", name), weights.weight);
  add(fmt::format("{}.bias", name), weights.bias);
}

void Inputs::add(std::string_view name, const ConvWeights& weights) {
  add(fmt::format("{}.weight", name), weights.weight);
  add(fmt::format("{}.bias", name), weights.bias);
}

void Inputs::add(std::string_view name, const NormWeights& weights) {
  add(fmt::format("{}.weight", name), weights.weight);
  add(fmt::format("{}.bias", name), weights.bias);
}

void Inputs::add(const AttentionOptions& options) {
  add("offsets", options.offsets);
  add("prefix", options.prefix);
  add("key_lengths", options.key_lengths);
  add("mask", options.mask);
  add("bias", options.bias);
  add("alibi", options.alibi);
  add("sinks", options.sinks);
  add("query_starts", options.query_starts);
  add("key_starts", options.key_starts);
}

void Inputs::check_output(const Refuse& refuse, const MutableTensorView& out, const Dims& shape,
                          std::string_view axes) const {
  refuse.unless_shape("out", out, shape, axes);
  refuse.unless_float("out", out);
  refuse.unless_writable("out", out);
  for (const auto& [name, view] : views_) refuse.if_overlap("out", out, name, view);
}

void check_positive(const Refuse& refuse, std::string_view subject, std::int64_t number) {
  if (number < 1) refuse.value(subject, "1 or more", fmt::format("{}", number));
}

namespace {

// Whether the masked stage differs from the scores.
bool changes_scores(const AttentionOptions& options) {
  return options.causal != Causal::none || options.window.left >= 0 || options.window.right >= 0 ||
         options.key_lengths.has_value() || options.mask.has_value() || options.bias.has_value() ||
         options.alibi.has_value() || options.query_starts.has_value();
}

}  // namespace

BlockAttention::BlockAttention(const Call& call, const AttentionOptions& options,
                               const TensorView& query, const TensorView& key,
                               const TensorView& value, const MutableTensorView& out)
    : call_(call), options_(options), query_(query), key_(key), value_(value), out_(out) {
  if (options_.threads == 0) options_.threads = call.options.threads;
  // Attention takes a bias of its query's dtype, which here is the block's and not the caller's.
  if (options_.bias.has_value() && options_.bias.dtype() == call.input_dtype &&
      size_of(call.input_dtype) < size_of(DType::f32)) {
    wide_bias_ = Tensor::copy_of(options_.bias, DType::f32);
    options_.bias = wide_bias_.view();
  }
  try {
    check_attention(query_, key_, value_, out_, options_, {});
  } catch (const Error& error) {  // say who was called
    throw Error(error.kind(), call.where, error.subject(), error.expected(), error.found());
  }
  if (!call.observed()) return;
  const Dims shape{query.dim(0), query.dim(1), query.dim(2), key.dim(2)};
  scores_ = Tensor(call.dtype, shape);
  if (options_.softcap) softcapped_ = Tensor(call.dtype, shape);
  if (changes_scores(options_)) masked_ = Tensor(call.dtype, shape);
  weights_ = Tensor(call.dtype, shape);
}

void BlockAttention::run() {
  AttentionStages stages;
  stages.scores = scores_;
  stages.softcapped = softcapped_;
  stages.masked = masked_;
  stages.weights = weights_;
  attention_forward(query_, key_, value_, out_, options_, stages);
}

void BlockAttention::show_stages() const {
  if (!call_.observed()) return;
  call_.show("scores", scores_);
  if (options_.softcap) call_.show("softcapped", softcapped_);
  if (changes_scores(options_)) call_.show("masked", masked_);
  call_.show("weights", weights_);
}

}  // namespace qkv
