#include "blocks/fused.h"

#include "ops/linear.h"
#include "ops/norm.h"

namespace qkv {
namespace {

struct Widths {
  std::int64_t head_dim, out;
};

Widths check_weights(const Refuse& refuse, const FusedWeights& w, std::int64_t width) {
  check_positive(refuse, "heads", w.heads);
  const std::int64_t rows = check_linear(refuse, fmt::format("{}.", w.qkv_name), w.qkv, width);
  // heads may be anything: no product of it before it is known to be small.
  if (rows == 0 || rows % 3 != 0 || rows / 3 % w.heads != 0) {
    refuse.value(fmt::format("{}.weight", w.qkv_name),
                 fmt::format("3·heads·head_dim rows, for heads = {}", w.heads),
                 fmt::format("{} rows", rows));
  }
  const std::int64_t head_dim = rows / 3 / w.heads;
  if (w.q_norm) check_norm(refuse, "q_norm.", *w.q_norm, head_dim);
  if (w.k_norm) check_norm(refuse, "k_norm.", *w.k_norm, head_dim);
  return {head_dim, check_linear(refuse, fmt::format("{}.", w.proj_name), w.proj, rows / 3)};
}

void check_out(const Call& call, const FusedWeights& w, const TensorView& x,
               const MutableTensorView& out, std::int64_t width) {
  Inputs inputs;
  inputs.add("x", x);
  inputs.add(w.qkv_name, w.qkv);
  inputs.add(w.proj_name, w.proj);
  if (w.q_norm) inputs.add("q_norm", *w.q_norm);
  if (w.k_norm) inputs.add("k_norm", *w.k_norm);
  inputs.add(call.options.attention);
  inputs.check_output(call.refuse, out, {x.dim(0), x.dim(1), width}, "[B, T, out]");
}

}  // namespace

void fused_forward(const Call& call, const FusedWeights& w, const AttentionOptions& attention,
                   const TensorView& x, const MutableTensorView& out) {
  call.refuse.unless_rank("x", x, 3, "[B, T, width]");
  const Widths widths = check_weights(call.refuse, w, x.dim(2));
  check_out(call, w, x, out, widths.out);

  const std::int64_t B = x.dim(0), T = x.dim(1), dim = w.heads * widths.head_dim;
  const int threads = call.options.threads;
  Tensor qkv(call.dtype, {B, T, 3 * dim});
  Tensor concat(call.dtype, {B, T, dim});
  const MutableTensorView split = qkv.view().unflatten(2, {3, w.heads, widths.head_dim});
  const MutableTensorView drawers = split.permute({2, 0, 3, 1, 4});  // [3, B, heads, T, head_dim]
  const MutableTensorView query = drawers.select(0, 0), key = drawers.select(0, 1);
  const MutableTensorView value = drawers.select(0, 2);
  const MutableTensorView heads =
      concat.view().unflatten(2, {w.heads, widths.head_dim}).permute({0, 2, 1, 3});
  BlockAttention attend(call, attention, query, key, value, heads);

  call.show("input", x);
  run_linear(w.qkv, x, qkv, call.dtype, threads);
  call.show("qkv", qkv);
  if (w.show_split) call.show("split", split);
  call.show("query", query);
  call.show("key", key);
  call.show("value", value);
  if (w.q_norm) {
    run_norm(*w.q_norm, query, query, call.dtype, threads);
    call.show("query_norm", query);
  }
  if (w.k_norm) {
    run_norm(*w.k_norm, key, key, call.dtype, threads);
    call.show("key_norm", key);
  }
  attend.run();
  attend.show_stages();
  call.show("heads", heads);
  call.show("concat", concat);
  run_linear(w.proj, concat, out, call.dtype, threads);
  call.show("output", out);
}

}  // namespace qkv
