#include "qkv/detector.h"

#include <cmath>

#include "base/checked.h"
#include "blocks/detector_run.h"
#include "ops/activation.h"
#include "ops/conv.h"

namespace qkv {

DetectorDims detector_dims(std::int64_t dim, std::int64_t heads, double attn_ratio) {
  constexpr Refuse refuse("detector_dims");
  check_positive(refuse, "heads", heads);
  if (dim < 1 || dim % heads != 0) {
    refuse.value("dim", fmt::format("channels for each of {} heads", heads),
                 fmt::format("{}", dim));
  }
  const std::int64_t head_dim = dim / heads;
  const double key_dim = std::trunc(static_cast<double>(head_dim) * attn_ratio);
  const double most = 1e15;  // a sane number, and exact as a double
  if (!(key_dim >= 1 && key_dim <= most)) {
    refuse.value("attn_ratio", fmt::format("a key_dim of 1 or more from head_dim = {}", head_dim),
                 fmt::format("{}", attn_ratio));
  }
  DetectorDims dims{heads, static_cast<std::int64_t>(key_dim), head_dim, 0};
  const auto twice = checked_mul(2 * dims.key_dim, heads);
  const auto channels = twice ? checked_add(*twice, dim) : twice;
  if (!channels) refuse.value("attn_ratio", "channels that fit in 63 bits", "more");
  dims.channels = *channels;
  return dims;
}

void add_inputs(Inputs& inputs, std::string_view prefix, const DetectorWeights& weights) {
  inputs.add(fmt::format("{}qkv", prefix), weights.qkv);
  inputs.add(fmt::format("{}proj", prefix), weights.proj);
  inputs.add(fmt::format("{}pe", prefix), weights.pe);
}

std::int64_t DetectorRun::check(const Refuse& refuse, std::string_view prefix,
                                const DetectorWeights& weights, std::int64_t channels) {
  const auto name = [&](std::string_view part) { return fmt::format("{}{}", prefix, part); };
  check_positive(refuse, name("heads"), weights.heads);
  check_positive(refuse, name("key_dim"), weights.key_dim);
  check_positive(refuse, name("head_dim"), weights.head_dim);
  const std::int64_t rows =
      check_pointwise(refuse, name("qkv."), weights.qkv, channels).weight.dim(0);
  const auto keys = checked_mul(2, weights.key_dim);
  const auto each = keys ? checked_add(*keys, weights.head_dim) : keys;
  const auto all = each ? checked_mul(*each, weights.heads) : each;
  if (all != rows) {
    refuse.value(name("qkv.weight"),
                 fmt::format("heads·(2·key_dim + head_dim) = {}·(2·{} + {}) rows", weights.heads,
                             weights.key_dim, weights.head_dim),
                 fmt::format("{} rows", rows));
  }
  const std::int64_t values = weights.heads * weights.head_dim;
  if (weights.pe.weight.has_value()) check_depthwise(refuse, name("pe."), weights.pe, values);
  if (!weights.proj.weight.has_value()) return values;
  return check_pointwise(refuse, name("proj."), weights.proj, values).weight.dim(0);
}

DetectorRun::DetectorRun(const Call& call, const DetectorWeights& weights, const TensorView& x,
                         const MutableTensorView& out)
    : call_(call), weights_(weights), x_(x), out_(out) {
  const std::int64_t B = x.dim(0), H = x.dim(2), W = x.dim(3);
  const std::int64_t kd = weights.key_dim, hd = weights.head_dim, each = 2 * kd + hd;
  qkv_ = Tensor(call.dtype, {B, weights.heads * each, H, W});
  concat_ = Tensor(call.dtype, {B, weights.heads * hd, H, W});
  if (weights.pe.weight.has_value()) pe_ = Tensor(call.dtype, concat_.shape());
  const TensorView split = qkv_.view().flatten(2, 3).unflatten(1, {weights.heads, each});
  query_ = split.slice(2, 0, kd);
  key_ = split.slice(2, kd, 2 * kd);
  value_ = split.slice(2, 2 * kd, each);
  heads_ = concat_.view().flatten(2, 3).unflatten(1, {weights.heads, hd});
  // Tokens before channels, as attention names them: strides, not copies.
  attention_.emplace(call_, call.options.attention, query_.transpose(2, 3), key_.transpose(2, 3),
                     value_.transpose(2, 3), heads_.transpose(2, 3));
}

void DetectorRun::run() {
  call_.show("input", x_);
  run_pointwise(pointwise_matrix(weights_.qkv), x_, qkv_, call_.dtype, call_.options.threads);
  call_.show("qkv", qkv_);
  call_.show("query", query_);
  call_.show("key", key_);
  call_.show("value", value_);
  attention_->run();
  attention_->show_stages();
  call_.show("heads", heads_);
  call_.show("concat", concat_);
  if (weights_.pe.weight.has_value()) add_position();
  project();
  call_.show("output", out_);
}

void DetectorRun::add_position() {
  const int threads = call_.options.threads;
  // v.reshape(B, C, H, W) is a gap-free image only inside each head: one head at a time.
  const std::int64_t hd = weights_.head_dim, H = x_.dim(2), W = x_.dim(3);
  for (std::int64_t h = 0; h < weights_.heads; ++h) {
    const std::int64_t first = h * hd;
    const TensorView image = value_.select(1, h).unflatten(2, {H, W});
    const ConvWeights part{
        weights_.pe.weight.slice(0, first, first + hd),
        weights_.pe.bias.has_value() ? weights_.pe.bias.slice(0, first, first + hd) : TensorView()};
    run_depthwise(part, image, pe_.view().slice(1, first, first + hd), call_.dtype, threads);
  }
  call_.show("pe", pe_);
  run_add(concat_, pe_, concat_, call_.dtype, threads);
  call_.show("sum", concat_);
}

void DetectorRun::project() {
  if (weights_.proj.weight.has_value()) {
    run_pointwise(pointwise_matrix(weights_.proj), concat_, out_, call_.dtype,
                  call_.options.threads);
  } else {
    copy(concat_, out_);
  }
}

void detector_forward(const DetectorWeights& weights, const TensorView& x,
                      const MutableTensorView& out, const BlockOptions& options) {
  const Call call("detector_forward", "x", x, options);
  call.refuse.unless_rank("x", x, 4, "[B, C, H, W]");
  const std::int64_t channels = DetectorRun::check(call.refuse, "", weights, x.dim(1));
  Inputs inputs;
  inputs.add("x", x);
  add_inputs(inputs, "", weights);
  inputs.add(options.attention);
  inputs.check_output(call.refuse, out, {x.dim(0), channels, x.dim(2), x.dim(3)}, "[B, C, H, W]");
  DetectorRun(call, weights, x, out).run();
}

}  // namespace qkv
