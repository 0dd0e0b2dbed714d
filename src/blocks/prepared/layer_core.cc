#include "blocks/prepared/layer_core.h"

#include <algorithm>

#include "ops/linear.h"
#include "ops/norm.h"

namespace qkv {
namespace {

constexpr std::int64_t kFeedForwardRows = 512;

// Whether [B, T, width] can be seen as [B·T, width].
bool is_rows(const TensorView& view) {
  return view.dim(0) == 1 || view.dim(1) == 1 || view.stride(0) == view.dim(1) * view.stride(1);
}

// diag(scale)·weights, in memory of its own.
struct Scaled {
  Tensor weight, bias;
  LinearWeights view() const { return {weight.view(), bias.view()}; }
};

Scaled scaled_rows(const LinearWeights& weights, const TensorView& scale) {
  Scaled result{Tensor::copy_of(weights.weight, DType::f64),
                Tensor::copy_of(weights.bias, DType::f64)};
  const std::int64_t in = weights.weight.dim(1);
  for (std::int64_t o = 0; o < weights.weight.dim(0); ++o) {
    const double s = scale.at({o});
    double* row = result.weight.as<double>().data() + o * in;
    for (std::int64_t i = 0; i < in; ++i) row[i] *= s;
    if (weights.bias.has_value()) result.bias.as<double>()[static_cast<std::size_t>(o)] *= s;
  }
  if (weights.weight.dtype() != DType::f64) {
    result.weight = Tensor::copy_of(result.weight.view(), DType::f32);
  }
  return result;
}

void check_scale(const Refuse& refuse, std::string_view name, const TensorView& scale,
                 std::int64_t width, bool norm_first) {
  if (!scale.has_value()) return;
  if (!norm_first) refuse.value(name, "none without norm_first", "one");
  refuse.unless_float(name, scale);
  refuse.unless_shape(name, scale, {width}, "[width]");
}

PreparedLinear prepare_scaled(const LinearWeights& weights, const TensorView& scale,
                              const PrepareOptions& options) {
  if (!scale.has_value()) return PreparedLinear(weights, options);
  return PreparedLinear(scaled_rows(weights, scale).view(), options);
}

OwnNorm own_norm(const Refuse& refuse, std::string_view name, const NormWeights& norm,
                 std::int64_t width) {
  check_norm(refuse, name, norm, width);
  return OwnNorm(norm);
}

constexpr Refuse kEncoder("PreparedEncoderLayer"), kDecoder("PreparedDecoderLayer");

// The attention, with the layer's scale folded into its output.
PreparedAttention::Core prepare_attention(const EncoderLayerWeights& weights,
                                          const PrepareOptions& options) {
  const auto scale = [&](LinearWeights& output) {
    if (!weights.scale1.has_value()) return Scaled{};
    kEncoder.unless_rank("attention's output", output.weight, 2, "[width, heads·d_v]");
    check_scale(kEncoder, "scale1", weights.scale1, output.weight.dim(0), weights.norm_first);
    Scaled scaled = scaled_rows(output, weights.scale1);
    output = scaled.view();
    return scaled;
  };
  if (const auto* vit = std::get_if<VitWeights>(&weights.attention)) {
    VitWeights changed = *vit;
    const Scaled keep = scale(changed.proj);
    return PreparedAttention::Core(changed, options);
  }
  TransformerWeights changed = std::get<TransformerWeights>(weights.attention);
  const Scaled keep = scale(changed.output);
  return PreparedAttention::Core(changed, options);
}

void check_width(const Refuse& refuse, std::string_view subject, std::int64_t width,
                 std::int64_t found) {
  if (found != width) {
    refuse.value(subject, fmt::format("an output of width {}, as its input", width),
                 fmt::format("{}", found));
  }
}

}  // namespace

// ---- feed-forward

FeedForward::FeedForward(const Refuse& refuse, const LinearWeights& linear1,
                         const LinearWeights& linear2, Activation activation,
                         const TensorView& scale, std::int64_t width, const PrepareOptions& options)
    : activation_(activation) {
  const std::int64_t hidden = check_linear(refuse, "linear1.", linear1, width);
  check_width(refuse, "linear2.weight", width, check_linear(refuse, "linear2.", linear2, hidden));
  expand_ = PreparedLinear(linear1, options);
  reduce_ = prepare_scaled(linear2, scale, options);
}

std::int64_t FeedForward::weight_bytes() const noexcept {
  return static_cast<std::int64_t>(expand_.bytes() + reduce_.bytes());
}

std::int64_t FeedForward::workspace(std::int64_t rows, DType dtype) const {
  return padded_bytes(dtype, {std::min(rows, kFeedForwardRows), expand_.out()});
}

void FeedForward::run(const Scope& scope, const TensorView& x, const MutableTensorView& out,
                      const TensorView& residual) const {
  if (!is_rows(out)) {  // a sequence at a time, then
    for (std::int64_t b = 0; b < x.dim(0); ++b) {
      run(scope, x.slice(0, b, b + 1), out.slice(0, b, b + 1), residual.slice(0, b, b + 1));
    }
    return;
  }
  const std::int64_t rows = x.dim(0) * x.dim(1);
  const TensorView from = x.flatten(0, 1), added = residual.flatten(0, 1);
  const MutableTensorView to = out.flatten(0, 1);
  Arena arena(scope.memory);
  const MutableTensorView all =
      arena.take(scope.dtype, {std::min(rows, kFeedForwardRows), expand_.out()});
  for (std::int64_t begin = 0; begin < rows; begin += kFeedForwardRows) {
    const std::int64_t end = std::min(rows, begin + kFeedForwardRows);
    const MutableTensorView hidden = all.slice(0, 0, end - begin);
    run_linear(expand_, from.slice(0, begin, end), hidden, scope.dtype, scope.threads,
               {activation_, {}});
    scope.clock->lap("mlp.expand");
    run_linear(reduce_, hidden, to.slice(0, begin, end), scope.dtype, scope.threads,
               {Activation::none, added.slice(0, begin, end)});
    scope.clock->lap("mlp.reduce");
  }
}

void FeedForward::describe(BlockPlan& plan, const std::string& prefix, std::int64_t rows) const {
  describe_product(plan, prefix + "mlp.expand", expand_, rows,
                   fmt::format(", then {}", name_of(activation_)));
  describe_product(plan, prefix + "mlp.reduce", reduce_, rows);
}

// ---- encoder layer

PreparedEncoderLayer::Core::Core(const EncoderLayerWeights& weights, const PrepareOptions& options)
    : attention_(prepare_attention(weights, options)),
      norm1_(own_norm(kEncoder, "norm1.", weights.norm1, attention_.width())),
      norm2_(own_norm(kEncoder, "norm2.", weights.norm2, attention_.width())),
      ffn_((check_scale(kEncoder, "scale2", weights.scale2, attention_.width(), weights.norm_first),
            kEncoder),
           weights.linear1, weights.linear2, weights.activation, weights.scale2, attention_.width(),
           options),
      norm_first_(weights.norm_first) {
  check_width(kEncoder, "attention", attention_.width(), attention_.out_width());
}

std::int64_t PreparedEncoderLayer::Core::weight_bytes() const noexcept {
  return attention_.weight_bytes() + norm1_.bytes() + norm2_.bytes() + ffn_.weight_bytes();
}

// y, what a norm gives, and then either the attention or the feed-forward.
std::int64_t PreparedEncoderLayer::Core::workspace(std::int64_t B, std::int64_t T,
                                                   DType dtype) const {
  return 2 * padded_bytes(dtype, {B, T, width()}) +
         std::max(attention_.workspace(B, T, dtype), ffn_.workspace(B * T, dtype));
}

void PreparedEncoderLayer::Core::run(const Scope& scope, const TensorView& x,
                                     const MutableTensorView& out) const {
  const std::int64_t wanted = out.dim(1);
  Arena arena(scope.memory);
  const MutableTensorView y = arena.take(scope.dtype, out.shape());
  const MutableTensorView all = arena.take(scope.dtype, x.shape());
  const MutableTensorView normed(all.data(), scope.dtype, out.shape());  // of what is wanted
  const Scope inner =
      scope.behind(padded_bytes(scope.dtype, out.shape()) + padded_bytes(scope.dtype, x.shape()));
  const auto norm = [&](const OwnNorm& weights, const TensorView& from,
                        const MutableTensorView& to) {
    run_norm(weights.view(), from, to, scope.dtype, scope.threads);
    scope.clock->lap("norm");
  };
  const TensorView residual = x.slice(1, 0, wanted);
  if (norm_first_) {
    norm(norm1_, x, all);
    attention_.run(inner, all, y, residual);
    norm(norm2_, y, normed);
    ffn_.run(inner, normed, out, y);
  } else {
    attention_.run(inner, x, y, residual);
    norm(norm1_, y, y);
    ffn_.run(inner, y, normed, y);
    norm(norm2_, normed, out);
  }
}

void PreparedEncoderLayer::Core::describe(BlockPlan& plan, const std::string& prefix,
                                          std::int64_t B, std::int64_t T, std::int64_t wanted,
                                          const AttentionOptions& options) const {
  attention_.describe(plan, prefix, B, T, wanted, options);
  ffn_.describe(plan, prefix, B * wanted);
}

// ---- decoder layer

PreparedDecoderLayer::Core::Core(const TransformerDecoderLayerWeights& weights,
                                 const PrepareOptions& options)
    : self_(weights.self_attention, options),
      cross_(weights.cross_attention, options),
      norm1_(own_norm(kDecoder, "norm1.", weights.norm1, self_.width())),
      norm2_(own_norm(kDecoder, "norm2.", weights.norm2, self_.width())),
      norm3_(own_norm(kDecoder, "norm3.", weights.norm3, self_.width())),
      ffn_(kDecoder, weights.linear1, weights.linear2, weights.activation, {}, self_.width(),
           options),
      norm_first_(weights.norm_first) {
  check_width(kDecoder, "self_attention", self_.width(), self_.out_width());
  check_width(kDecoder, "cross_attention's query", self_.width(), cross_.core().width());
  check_width(kDecoder, "cross_attention", self_.width(), cross_.core().out_width());
}

std::int64_t PreparedDecoderLayer::Core::weight_bytes() const noexcept {
  return self_.weight_bytes() + cross_.core().weight_bytes() + norm1_.bytes() + norm2_.bytes() +
         norm3_.bytes() + ffn_.weight_bytes();
}

std::int64_t PreparedDecoderLayer::Core::workspace(std::int64_t B, std::int64_t T,
                                                   DType dtype) const {
  return 2 * padded_bytes(dtype, {B, T, width()}) +
         std::max({self_.workspace(B, T, dtype), cross_.core().workspace(B, T, dtype),
                   ffn_.workspace(B * T, dtype)});
}

void PreparedDecoderLayer::Core::run(const Scope& scope, const AttentionOptions& cross_options,
                                     const TensorView& x, const TensorView& keys_values,
                                     const MutableTensorView& out) const {
  const Dims shape = x.shape();
  Arena arena(scope.memory);
  const MutableTensorView y = arena.take(scope.dtype, shape);
  const MutableTensorView normed = arena.take(scope.dtype, shape);
  const Scope inner = scope.behind(2 * padded_bytes(scope.dtype, shape));
  Scope crossing = inner;
  crossing.attention = cross_options;
  crossing.attention.threads = scope.attention.threads;
  const auto norm = [&](const OwnNorm& weights, const TensorView& from,
                        const MutableTensorView& to) {
    run_norm(weights.view(), from, to, scope.dtype, scope.threads);
    scope.clock->lap("norm");
  };
  if (norm_first_) {
    norm(norm1_, x, normed);
    self_.run(inner, normed, y, x);
    norm(norm2_, y, normed);
    cross_.core().run(crossing, normed, keys_values, y, y);
    norm(norm3_, y, normed);
    ffn_.run(inner, normed, out, y);
  } else {
    self_.run(inner, x, y, x);
    norm(norm1_, y, y);
    cross_.core().run(crossing, y, keys_values, normed, y);
    norm(norm2_, normed, normed);
    ffn_.run(inner, normed, y, normed);
    norm(norm3_, y, out);
  }
}

void PreparedDecoderLayer::Core::describe(BlockPlan& plan, std::int64_t B, std::int64_t T,
                                          std::int64_t Tk, const DecoderOptions& options) const {
  self_.describe(plan, "", B, T, T, options.self_attention);
  cross_.core().describe(plan, "", B, T, Tk, options.cross_attention);
  ffn_.describe(plan, "", B * T);
}

}  // namespace qkv
