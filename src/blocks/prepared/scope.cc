#include "blocks/prepared/scope.h"

#include "ops/attention_check.h"
#include "ops/compute.h"

namespace qkv {
namespace {

constexpr std::int64_t kRowsTogether = 96;    // tokens: the packing of weights is paid for
constexpr std::int64_t kLongSequence = 128;   // its products are large enough by themselves
constexpr std::int64_t kPiecesPerThread = 4;  // so that none waits long for another

TensorView sequences_of(const TensorView& view, int rank, std::int64_t begin, std::int64_t end) {
  if (!view.has_value() || view.rank() < rank || view.dim(0) == 1) return view;
  return view.slice(0, begin, end);
}

}  // namespace

std::int64_t sequences_together(std::int64_t B, std::int64_t T, int threads) noexcept {
  const int workers = worker_count(B, threads);
  if (T < 1 || T >= kLongSequence || workers < 2 || B < workers * kPiecesPerThread) return 0;
  return std::clamp<std::int64_t>(kRowsTogether / T, 1, B / (workers * kPiecesPerThread));
}

AttentionOptions options_of(const AttentionOptions& options, std::int64_t begin, std::int64_t end) {
  AttentionOptions part = options;
  part.offsets = sequences_of(options.offsets, 1, begin, end);
  part.prefix = sequences_of(options.prefix, 1, begin, end);
  part.key_lengths = sequences_of(options.key_lengths, 1, begin, end);
  part.mask = sequences_of(options.mask, 4, begin, end);
  part.bias = sequences_of(options.bias, 4, begin, end);
  return part;
}

AttentionOptions options_of_head(const AttentionOptions& options, std::int64_t b, std::int64_t h) {
  AttentionOptions part = options_of(options, b, b + 1);
  const auto head_of = [&](TensorView& view, int dim) {
    if (!view.has_value() || dim < 0 || view.dim(dim) == 1) return;
    view = view.slice(dim, h, h + 1);
  };
  head_of(part.mask, part.mask.rank() - 3);
  head_of(part.bias, part.bias.rank() - 3);
  head_of(part.alibi, 0);
  head_of(part.sinks, 0);
  part.threads = 1;
  return part;
}

void check_prepared_call(const Call& call, const TensorView& x, const MutableTensorView& out) {
  if (call.observed()) {
    call.refuse.value("observer", "none: the function for one call shows its steps", "one");
  }
  call.refuse.unless_float("out", out);
  call.refuse.unless_writable("out", out);
  call.refuse.if_overlap("out", out, "x", x);
  const AttentionOptions& a = call.options.attention;
  call.refuse.if_overlap("out", out, "offsets", a.offsets);
  call.refuse.if_overlap("out", out, "prefix", a.prefix);
  call.refuse.if_overlap("out", out, "key_lengths", a.key_lengths);
  call.refuse.if_overlap("out", out, "mask", a.mask);
  call.refuse.if_overlap("out", out, "bias", a.bias);
  call.refuse.if_overlap("out", out, "alibi", a.alibi);
  call.refuse.if_overlap("out", out, "sinks", a.sinks);
  call.refuse.if_overlap("out", out, "query_starts", a.query_starts);
  call.refuse.if_overlap("out", out, "key_starts", a.key_starts);
}

void check_inner_attention(const Call& call, const AttentionShape& shape,
                           const AttentionOptions& options) {
  try {
    check_attention_shape(shape, options);
  } catch (const Error& error) {  // say who was called
    throw Error(error.kind(), call.where, error.subject(), error.expected(), error.found());
  }
}

AttentionOptions inner_options(const Call& call, Tensor& wide) {
  AttentionOptions options = call.options.attention;
  if (options.bias.has_value() && options.bias.dtype() == call.input_dtype &&
      size_of(call.input_dtype) < size_of(DType::f32)) {
    wide = Tensor::copy_of(options.bias, DType::f32);
    options.bias = wide.view();
  }
  return options;
}

}  // namespace qkv
