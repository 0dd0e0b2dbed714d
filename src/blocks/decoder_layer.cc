#include <fmt/format.h>

#include <array>

#include "base/parallel.h"
#include "kernels/rope/rope.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/refuse.h"
#include "qkv/cached_attention.h"
#include "qkv/decoder.h"

namespace qkv {

struct DecoderLayer::Prepared {
  DecoderShape shape;
  Tensor norm_numbers[4];  // weight and bias of norm1 and norm2, in f32
  NormWeights norm1, norm2;
  PreparedLinear qkv, output, up, down;  // up: [gate | up] with a gate
  bool gated = false;
};

namespace {

constexpr Refuse kRefuse("DecoderLayer");

NormWeights owned_norm(const NormWeights& given, std::string_view name, std::int64_t width,
                       Tensor* numbers) {
  check_norm(kRefuse, fmt::format("{}.", name), given, width);
  NormWeights own = given;
  if (given.weight.has_value()) {
    own.weight = numbers[0] = Tensor::copy_of(given.weight, DType::f32);
  }
  if (given.bias.has_value()) own.bias = numbers[1] = Tensor::copy_of(given.bias, DType::f32);
  return own;
}

void check_map(const LinearWeights& weights, const std::string& name, std::int64_t in,
               std::int64_t out) {
  if (check_linear(kRefuse, name + ".", weights, in) != out) {
    kRefuse.value(name + ".weight", fmt::format("shape [{}, {}]", out, in),
                  to_string(weights.weight.shape()));
  }
}

void check_shape(const DecoderShape& s) {
  const auto positive = [](std::string_view name, std::int64_t value) {
    if (value < 1) kRefuse.value(name, "1 or more", fmt::format("{}", value));
  };
  positive("width", s.width);
  positive("heads", s.heads);
  positive("kv_heads", s.kv_heads);
  positive("head_dim", s.head_dim);
  positive("hidden", s.hidden);
  if (s.heads % s.kv_heads != 0) {
    kRefuse.value("heads", fmt::format("a multiple of kv_heads, {}", s.kv_heads),
                  fmt::format("{}", s.heads));
  }
}

// The channels of each head, of some of the heads of all tokens: [1, heads, T, D].
MutableTensorView heads_of(const MutableTensorView& rows, std::int64_t begin, std::int64_t heads,
                           std::int64_t D) {
  const MutableTensorView part = rows.slice(1, begin * D, (begin + heads) * D);
  return MutableTensorView(part.data(), part.dtype(), {1, heads, rows.dim(0), D},
                           {0, D, rows.stride(0), 1});
}

void turn(const DecoderStep& step, const DecoderShape& shape, const MutableTensorView& qkv) {
  const auto* cos = static_cast<const float*>(step.cos.data());
  const auto* sin = static_cast<const float*>(step.sin.data());
  auto* rows = static_cast<float*>(qkv.data());
  const std::int64_t half = step.cos.dim(1), D = shape.head_dim;
  const auto turn_token = [&](std::int64_t t, int) {
    for (std::int64_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
      float* head = rows + t * qkv.stride(0) + h * D;
      rope_row(head, cos + t * half, sin + t * half, half, D, shape.pairing, head);
    }
  };
  if (qkv.dim(0) == 1) {
    turn_token(0, 0);  // a few thousand numbers: not worth waking a thread
  } else {
    parallel_for(qkv.dim(0), step.threads, turn_token);
  }
}

// Attention over the cache, and its stages if someone is to see them.
class Attend {
 public:
  Attend(const DecoderStep& step, std::int64_t layer, const TensorView& query,
         const MutableTensorView& out)
      : step_(step) {
    CachedAttentionOptions options;
    options.threads = step.threads;
    AttentionStages stages;
    if (step.observer) {
      const std::int64_t keys = step.cache->length(step.sequence) + query.dim(2);
      const Dims shape{1, query.dim(1), query.dim(2), keys};
      for (Tensor* stage : {&scores_, &masked_, &weights_}) *stage = Tensor(DType::f32, shape);
      stages.scores = scores_;
      stages.masked = masked_;
      stages.weights = weights_;
    }
    cached_attention_forward(query, *step.cache, layer, std::span(&step.sequence, 1), out, options,
                             stages);
  }

  void show() const {
    if (!step_.observer) return;
    step_.observer("scores", scores_);
    step_.observer("masked", masked_);
    step_.observer("weights", weights_);
  }

 private:
  const DecoderStep& step_;
  Tensor scores_, masked_, weights_;
};

}  // namespace

DecoderWorkspace::DecoderWorkspace(const DecoderShape& s, std::int64_t tokens)
    : tokens_(tokens),
      norm_(DType::f32, {tokens, s.width}),
      qkv_(DType::f32, {tokens, s.heads + 2 * s.kv_heads, s.head_dim}),
      concat_(DType::f32, {tokens, s.heads, s.head_dim}),
      hidden_(DType::f32, {tokens, 2, s.hidden}),
      gated_(DType::f32, {tokens, s.hidden}) {}

DecoderLayer::DecoderLayer(const DecoderLayerWeights& w, const DecoderShape& s,
                           std::string_view name, const PrepareOptions& options) {
  check_shape(s);
  const std::int64_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  const auto named = [&](std::string_view part) { return fmt::format("{}{}", name, part); };
  check_map(w.query, named("query"), s.width, q_width);
  check_map(w.key, named("key"), s.width, kv_width);
  check_map(w.value, named("value"), s.width, kv_width);
  check_map(w.output, named("output"), q_width, s.width);
  check_map(w.up, named("up"), s.width, s.hidden);
  check_map(w.down, named("down"), s.hidden, s.width);
  auto p = std::make_shared<Prepared>();
  p->shape = s;
  p->gated = w.gate.weight.has_value();
  if (p->gated) check_map(w.gate, named("gate"), s.width, s.hidden);
  p->norm1 = owned_norm(w.norm1, named("norm1"), s.width, p->norm_numbers);
  p->norm2 = owned_norm(w.norm2, named("norm2"), s.width, p->norm_numbers + 2);
  const std::array<LinearWeights, 3> qkv{w.query, w.key, w.value};
  p->qkv = PreparedLinear(std::span(qkv), options);
  p->output = PreparedLinear(w.output, options);
  const std::array<LinearWeights, 2> both{w.gate, w.up};
  p->up = p->gated ? PreparedLinear(std::span(both), options) : PreparedLinear(w.up, options);
  p->down = PreparedLinear(w.down, options);
  prepared_ = std::move(p);
}

std::size_t DecoderLayer::bytes() const noexcept {
  const Prepared& p = *prepared_;
  return p.qkv.bytes() + p.output.bytes() + p.up.bytes() + p.down.bytes();
}

void DecoderLayer::forward(const MutableTensorView& x, std::int64_t layer, const DecoderStep& step,
                           DecoderWorkspace& w) const {
  const Prepared& p = *prepared_;
  const DecoderShape& s = p.shape;
  const std::int64_t T = x.dim(0), D = s.head_dim;
  const auto rows = [&](Tensor& buffer, std::int64_t width) {
    return MutableTensorView(buffer.view().data(), DType::f32, {T, width});
  };
  const auto show = [&](std::string_view name, const TensorView& value) {
    if (step.observer) step.observer(name, value);
  };
  // What a fused product never writes down is computed aside, for the observer alone.
  const auto show_product = [&](std::string_view name, const PreparedLinear& map,
                                const TensorView& in) {
    if (!step.observer) return;
    Tensor product(DType::f32, {T, map.out()});
    map.forward(in, product, {.threads = step.threads});
    step.observer(name, product);
  };
  const MutableTensorView norm = rows(w.norm_, s.width);
  const MutableTensorView qkv = rows(w.qkv_, (s.heads + 2 * s.kv_heads) * D);
  const MutableTensorView concat = rows(w.concat_, s.heads * D);
  const MutableTensorView query = heads_of(qkv, 0, s.heads, D);
  const MutableTensorView key = heads_of(qkv, s.heads, s.kv_heads, D);
  const MutableTensorView value = heads_of(qkv, s.heads + s.kv_heads, s.kv_heads, D);

  run_norm(p.norm1, x, norm, DType::f32, step.threads);
  show("norm1", norm);
  p.qkv.forward(norm, qkv, {.threads = step.threads});
  show("qkv", qkv);
  show("query", query);
  show("key", key);
  show("value", value);
  if (s.rope) {
    turn(step, s, qkv);
    show("query_rope", query);
    show("key_rope", key);
  }
  step.cache->write(step.sequence, layer, key.select(0, 0).transpose(0, 1),
                    value.select(0, 0).transpose(0, 1));
  const MutableTensorView heads = heads_of(concat, 0, s.heads, D);
  Attend(step, layer, query, heads).show();
  show("heads", heads);
  show("concat", concat);
  show_product("projected", p.output, concat);
  p.output.forward(concat, x, {.residual = x, .threads = step.threads});
  show("residual", x);

  run_norm(p.norm2, x, norm, DType::f32, step.threads);
  show("norm2", norm);
  const MutableTensorView activated = rows(p.gated ? w.gated_ : w.hidden_, s.hidden);
  if (p.gated) {
    const MutableTensorView both = rows(w.hidden_, 2 * s.hidden);
    p.up.forward(norm, both, {.threads = step.threads});
    const TensorView gate = both.slice(1, 0, s.hidden), up = both.slice(1, s.hidden, 2 * s.hidden);
    show("gate", gate);
    show("up", up);
    run_gated(s.activation, gate, up, activated, DType::f32, step.threads);
  } else {
    show_product("fc", p.up, norm);
    p.up.forward(norm, activated, {.activation = s.activation, .threads = step.threads});
  }
  show("activated", activated);
  show_product("mlp", p.down, activated);
  p.down.forward(activated, x, {.residual = x, .threads = step.threads});
  show("output", x);
}

}  // namespace qkv
