#include "ops/compute.h"
#include "ops/rope.h"
#include "qkv/onnx.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("onnx_rotary_embedding");

// [B, H, T, D] of an input of either rank.
template <typename View>
View as_heads(const View& view, std::int64_t heads) {
  return view.rank() == 4 ? view
                          : view.unflatten(2, {heads, view.dim(2) / heads}).permute({0, 2, 1, 3});
}

std::int64_t check_heads(const OnnxRotaryInputs& inputs, const OnnxRotaryAttributes& attributes) {
  const TensorView& x = inputs.input;
  kRefuse.unless_given("input", x);
  if (x.rank() != 3 && x.rank() != 4) {
    kRefuse.value("input", "shape [B, H, T, D] or [B, T, H·D]", to_string(x.shape()));
  }
  const std::int64_t heads = attributes.num_heads;
  const std::string found = fmt::format("{}", heads);
  if (x.rank() == 4) {
    if (heads != 0 && heads != x.dim(1)) {
      kRefuse.value("num_heads", fmt::format("{}, as input has, or 0", x.dim(1)), found);
    }
    return x.dim(1);
  }
  if (heads < 1 || x.dim(2) % heads != 0) {
    kRefuse.value("num_heads", fmt::format("a divisor of the hidden axis, {}", x.dim(2)), found);
  }
  return heads;
}

}  // namespace

void onnx_rotary_embedding(const OnnxRotaryInputs& inputs, const OnnxRotaryAttributes& attributes,
                           const MutableTensorView& output, int threads) {
  const std::int64_t heads = check_heads(inputs, attributes);
  kRefuse.unless_shape("output", output, inputs.input.shape(), "of input");
  const TensorView x = as_heads(inputs.input, heads);
  const std::int64_t D = x.dim(3), given = attributes.rotary_embedding_dim;
  if (given < 0 || given > D || given % 2 != 0 || (given == 0 && D % 2 != 0)) {
    kRefuse.value("rotary_embedding_dim",
                  fmt::format("an even number up to the heads' width, {}", D),
                  fmt::format("{}", given));
  }
  const std::int64_t half = (given == 0 ? D : given) / 2;
  const bool looked_up = inputs.position_ids.has_value();
  for (const auto& [name, view] :
       {std::pair{"cos_cache", &inputs.cos_cache}, std::pair{"sin_cache", &inputs.sin_cache}}) {
    kRefuse.unless_rank(name, *view, looked_up ? 2 : 3, looked_up ? "[P, R/2]" : "[B, T, R/2]");
    if (view->dim(-1) != half) {
      kRefuse.value(name, fmt::format("{} angles a token", half), to_string(view->shape()));
    }
  }
  if (looked_up) kRefuse.unless_rank("position_ids", inputs.position_ids, 2, "[B, T]");
  RopeProblem p;
  p.pairing = attributes.interleaved ? RopePairing::interleaved : RopePairing::half_split;
  check_rope(kRefuse, {inputs.cos_cache, inputs.sin_cache, inputs.position_ids}, x,
             as_heads(output, heads), p);
  if (threads < 0) kRefuse.value("threads", "0 (default) or more", fmt::format("{}", threads));
  run_rope(p, compute_dtype(x, Accumulate::natural), threads);
}

}  // namespace qkv
