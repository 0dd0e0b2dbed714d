#include <array>
#include <limits>

#include "base/element.h"
#include "ops/attention_check.h"
#include "ops/onnx_attention_check.h"

namespace qkv {
namespace {

using Problem = OnnxAttentionProblem;

// Keys or values on their way into attention: where they are read, and what is still to be copied.
struct Concat {
  TensorView past, added;
  MutableTensorView present;  // the caller's
  Tensor own;                 // stands in for it when the caller wants none
  TensorView attended;        // [B, Hkv, Tk, ·]
};

Concat plan_concat(const Problem& p, const TensorView& past, const TensorView& added,
                   const MutableTensorView& present) {
  Concat result{past, added, present, Tensor(), added};
  if (p.P == 0) return result;  // attended where it is; present is but a copy
  if (!present.has_value()) {
    result.own = Tensor(added.dtype(), {p.B, p.Hkv, p.Tk, added.dim(3)});
    result.present = result.own.view();
  }
  result.attended = result.present;
  return result;
}

void copy_unless_there(const TensorView& source, const MutableTensorView& target) {
  if (!same_window(source, target)) copy(source, target);
}

void write_concat(const Problem& p, const Concat& concat) {
  if (!concat.present.has_value()) return;
  if (p.P > 0) copy_unless_there(concat.past, concat.present.slice(2, 0, p.P));
  copy_unless_there(concat.added, concat.present.slice(2, p.P, p.Tk));
}

// The mask with its last axis filled up to Tk by what hides a key. Axes that the caller stretched
// by a stride of 0 stay small.
Tensor pad_mask(const TensorView& mask, std::int64_t Tk) {
  TensorView small = mask;
  Dims shape;
  for (int i = 0; i < mask.rank() - 1; ++i) {
    if (small.stride(i) == 0 && small.dim(i) > 1) small = small.slice(i, 0, 1);
    shape.push_back(small.dim(i));
  }
  shape.push_back(Tk);
  Tensor padded(mask.dtype(), shape);
  const int last = mask.rank() - 1;
  copy(small, padded.view().slice(last, 0, mask.dim(last)));
  const MutableTensorView rest = padded.view().slice(last, mask.dim(last), Tk);
  const float hidden = -std::numeric_limits<float>::infinity();
  if (mask.dtype() != DType::boolean) {  // a new tensor of bool is false throughout
    copy(TensorView(&hidden, DType::f32, {}).broadcast_to(rest.shape()), rest);
  }
  return padded;
}

// Positions of the first query, one per batch entry: the queries are the last of the tokens.
Tensor offsets_of(const TensorView& lengths, std::int64_t Tq) {
  Tensor offsets(DType::i64, lengths.shape());
  for (std::int64_t b = 0; b < lengths.dim(0); ++b) {
    offsets.as<std::int64_t>()[static_cast<std::size_t>(b)] =
        load_integer(lengths, b * lengths.stride(0)) - Tq;
  }
  return offsets;
}

AttentionOptions options_of(const OnnxAttentionAttributes& attributes,
                            const OnnxAttentionExecution& execution) {
  AttentionOptions options;
  options.scale = attributes.scale;
  if (attributes.softcap > 0) options.softcap = attributes.softcap;
  if (attributes.is_causal) options.causal = Causal::aligned;
  options.window = {attributes.left_window_size, attributes.right_window_size};
  if (attributes.softmax_precision == DType::f64) options.accumulate = Accumulate::f64;
  options.kernel = execution.kernel;
  options.target = execution.target;
  options.threads = execution.threads;
  return options;
}

AttentionStages stages_of(OnnxQkOutput mode, const MutableTensorView& output) {
  AttentionStages stages;
  switch (mode) {
    case OnnxQkOutput::raw: stages.scores = output; break;
    case OnnxQkOutput::softcapped: stages.softcapped = output; break;
    case OnnxQkOutput::biased: stages.masked = output; break;
    case OnnxQkOutput::probabilities: stages.weights = output; break;
  }
  return stages;
}

}  // namespace

OnnxAttentionShapes onnx_attention_shapes(const OnnxAttentionInputs& inputs,
                                          const OnnxAttentionAttributes& attributes) {
  return check_onnx_attention(inputs, attributes).shapes();
}

void onnx_attention(const OnnxAttentionInputs& inputs, const OnnxAttentionAttributes& attributes,
                    const OnnxAttentionOutputs& outputs, const OnnxAttentionExecution& execution) {
  const Problem p = check_onnx_attention(inputs, attributes, outputs, execution);
  AttentionOptions options = options_of(attributes, execution);
  Tensor padded_mask, offsets;  // what options point to
  if (inputs.nonpad_kv_seqlen.has_value()) {
    offsets = offsets_of(inputs.nonpad_kv_seqlen, p.Tq);
    options.offsets = offsets;
    options.key_lengths = inputs.nonpad_kv_seqlen;
  } else {
    options.offset = p.P;
  }
  if (inputs.attn_mask.has_value()) {
    TensorView mask = inputs.attn_mask;
    if (mask.dim(-1) < p.Tk) mask = padded_mask = pad_mask(mask, p.Tk);
    (mask.dtype() == DType::boolean ? options.mask : options.bias) = mask;
  }
  const AttentionStages stages =
      stages_of(attributes.qk_matmul_output_mode, outputs.qk_matmul_output);
  const std::array<Concat, 2> concats{
      plan_concat(p, inputs.past_key, p.new_key, outputs.present_key),
      plan_concat(p, inputs.past_value, p.new_value, outputs.present_value)};
  const TensorView &key = concats[0].attended, &value = concats[1].attended;
  // Attention reads from present, which is therefore written first: whatever attention could
  // refuse has to come up before that.
  check_attention(p.query, key, value, p.out, options, stages);
  for (const Concat& concat : concats) write_concat(p, concat);
  attention_forward(p.query, key, value, p.out, options, stages);
}

}  // namespace qkv
