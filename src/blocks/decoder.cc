#include "qkv/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/rows.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/refuse.h"

namespace qkv {

struct Decoder::Parts {
  DecoderShape shape;
  TensorView tokens, positions;
  std::shared_ptr<const void> owner;  // of these two
  std::vector<DecoderLayer> layers;
  Tensor norm_weight, norm_bias;
  NormWeights norm;
  PreparedLinear head;
  std::vector<double> frequencies;
  std::int64_t context = 0;
  std::size_t bytes = 0;
};

namespace {

void check_decoder(const Refuse& refuse, const DecoderWeights& w) {
  const std::int64_t d = w.shape.width;
  refuse.unless_rank("tokens", w.tokens, 2, "[vocabulary, width]");
  refuse.unless_float("tokens", w.tokens);
  if (w.tokens.dim(0) < 1 || w.tokens.dim(1) != d) {
    refuse.value("tokens", fmt::format("shape [vocabulary, {}]", d), to_string(w.tokens.shape()));
  }
  if (w.context < 1) refuse.value("context", "1 or more", fmt::format("{}", w.context));
  if (w.positions.has_value()) {
    refuse.unless_float("positions", w.positions);
    refuse.unless_shape("positions", w.positions, {w.context, d}, "[context, width]");
  }
  if (w.layers.empty()) refuse.value("layers", "at least one", "none");
  const auto pairs = static_cast<std::int64_t>(w.rope_frequencies.size());
  if (w.shape.rope ? pairs < 1 || pairs > w.shape.head_dim / 2 : pairs != 0) {
    refuse.value("rope_frequencies",
                 w.shape.rope ? fmt::format("1 to {}, half of head_dim", w.shape.head_dim / 2)
                              : "none without rope",
                 fmt::format("{}", pairs));
  }
  check_norm(refuse, "norm.", w.norm, d);
  if (check_linear(refuse, "head.", w.head, d) != w.tokens.dim(0)) {
    refuse.value("head.weight", fmt::format("shape {}", to_string(w.tokens.shape())),
                 to_string(w.head.weight.shape()));
  }
}

}  // namespace

Decoder::Decoder(const DecoderWeights& w, const PrepareOptions& options,
                 const std::function<void(std::int64_t)>& progress) {
  constexpr Refuse refuse("Decoder");
  check_decoder(refuse, w);
  auto p = std::make_shared<Parts>();
  p->shape = w.shape;
  p->tokens = w.tokens;
  p->positions = w.positions;
  p->owner = w.owner;
  p->context = w.context;
  p->frequencies = w.rope_frequencies;
  for (std::size_t n = 0; n < w.layers.size(); ++n) {
    p->layers.emplace_back(w.layers[n], w.shape, fmt::format("layers[{}].", n), options);
    p->bytes += p->layers.back().bytes();
    if (progress) progress(static_cast<std::int64_t>(n) + 1);
  }
  p->norm = w.norm;
  if (w.norm.weight.has_value()) {
    p->norm.weight = p->norm_weight = Tensor::copy_of(w.norm.weight, DType::f32);
  }
  if (w.norm.bias.has_value()) {
    p->norm.bias = p->norm_bias = Tensor::copy_of(w.norm.bias, DType::f32);
  }
  p->head = PreparedLinear(w.head, options);
  p->bytes += p->head.bytes();
  parts_ = std::move(p);
}

std::int64_t Decoder::layers() const noexcept {
  return static_cast<std::int64_t>(parts_->layers.size());
}
std::int64_t Decoder::vocabulary() const noexcept { return parts_->tokens.dim(0); }
std::int64_t Decoder::context() const noexcept { return parts_->context; }
const DecoderShape& Decoder::shape() const noexcept { return parts_->shape; }
std::size_t Decoder::bytes() const noexcept { return parts_->bytes; }

namespace {

constexpr Refuse kRefuse("DecoderSession");

KVCacheConfig cache_config(const Decoder& decoder, const DecoderSessionOptions& options) {
  if (options.capacity < 0 || options.capacity > decoder.context()) {
    kRefuse.value("capacity", fmt::format("at most the decoder's context, {}", decoder.context()),
                  fmt::format("{}", options.capacity));
  }
  if (options.chunk < 1) kRefuse.value("chunk", "1 or more", fmt::format("{}", options.chunk));
  if (options.threads < 0) {
    kRefuse.value("threads", "0 (default) or more", fmt::format("{}", options.threads));
  }
  KVCacheConfig config;
  config.layers = decoder.layers();
  config.heads = decoder.shape().kv_heads;
  config.D = decoder.shape().head_dim;
  config.storage = options.storage;
  config.capacity = options.capacity == 0 ? decoder.context() : options.capacity;
  return config;
}

}  // namespace

DecoderSession::DecoderSession(Decoder decoder, const DecoderSessionOptions& options)
    : decoder_(std::move(decoder)),
      options_(options),
      cache_(cache_config(decoder_, options)),
      sequence_(cache_.add()),
      workspace_(decoder_.shape(), std::min(options.chunk, cache_.config().capacity)) {
  const std::int64_t T = workspace_.tokens();
  x_ = Tensor(DType::f32, {T, decoder_.shape().width});
  normed_ = Tensor(DType::f32, {T, decoder_.shape().width});
  logits_ = Tensor(DType::f32, {1, decoder_.vocabulary()});
  const auto half = static_cast<std::int64_t>(decoder_.parts_->frequencies.size());
  cos_ = Tensor(DType::f32, {T, half});
  sin_ = Tensor(DType::f32, {T, half});
}

std::int64_t DecoderSession::length() const { return cache_.length(sequence_); }
std::int64_t DecoderSession::capacity() const noexcept { return cache_.config().capacity; }
void DecoderSession::truncate(std::int64_t length) { cache_.truncate(sequence_, length); }

std::int64_t DecoderSession::bytes_per_token() const noexcept {
  const KVCacheConfig& c = cache_.config();
  const std::int64_t each = c.storage == KVStorage::f32    ? 4 * c.D
                            : c.storage == KVStorage::int8 ? c.D + 4
                                                           : 2 * c.D;
  return 2 * c.layers * c.heads * each;
}

void DecoderSession::embed(std::span<const std::int32_t> tokens, const MutableTensorView& x) {
  const Decoder::Parts& p = *decoder_.parts_;
  const std::int64_t d = p.shape.width, first = length();
  auto* rows = static_cast<float*>(x.data());
  float* position = normed_.as<float>().data();  // free until the last layer is done
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    float* row = rows + static_cast<std::int64_t>(t) * d;
    gather(p.tokens, tokens[t] * p.tokens.stride(0), p.tokens.stride(1), d, row);
    if (!p.positions.has_value()) continue;
    gather(p.positions, (first + static_cast<std::int64_t>(t)) * p.positions.stride(0),
           p.positions.stride(1), d, position);
    for (std::int64_t i = 0; i < d; ++i) row[i] += position[i];
  }
}

void DecoderSession::run_layers(const MutableTensorView& x, const StepObserver& observer) {
  const Decoder::Parts& p = *decoder_.parts_;
  DecoderStep step;
  step.cache = &cache_;
  step.sequence = sequence_;
  step.threads = options_.threads;
  if (p.shape.rope) {
    const MutableTensorView cos = cos_.view().slice(0, 0, x.dim(0));
    const MutableTensorView sin = sin_.view().slice(0, 0, x.dim(0));
    rope_table(p.frequencies, length(), cos, sin);
    step.cos = cos;
    step.sin = sin;
  }
  for (std::size_t n = 0; n < p.layers.size(); ++n) {
    if (observer) {
      step.observer = [&observer, n](std::string_view name, const TensorView& value) {
        observer(fmt::format("h.{}.{}", n, name), value);
      };
    }
    p.layers[n].forward(x, static_cast<std::int64_t>(n), step, workspace_);
  }
}

// Up to a chunk of tokens. The logits of all of them, of the last one, or of none.
void DecoderSession::run_chunk(std::span<const std::int32_t> tokens, const StepObserver& observer,
                               const MutableTensorView& logits) {
  const Decoder::Parts& p = *decoder_.parts_;
  const auto T = static_cast<std::int64_t>(tokens.size());
  const MutableTensorView x = x_.view().slice(0, 0, T);
  embed(tokens, x);
  if (observer) observer("embedding", x);
  cache_.reserve(sequence_, T);
  try {
    run_layers(x, observer);
    const std::int64_t wanted = observer ? T : logits.has_value() ? logits.dim(0) : 0;
    if (wanted > 0) {
      const MutableTensorView normed = normed_.view().slice(0, 0, wanted);
      run_norm(p.norm, x.slice(0, T - wanted, T), normed, DType::f32, options_.threads);
      if (observer) {
        observer("norm", normed);
        Tensor all(DType::f32, {T, decoder_.vocabulary()});
        p.head.forward(normed, all, {.threads = options_.threads});
        observer("logits", all);
      }
      if (logits.has_value()) {
        p.head.forward(normed.slice(0, wanted - logits.dim(0), wanted), logits,
                       {.threads = options_.threads});
      }
    }
  } catch (...) {
    cache_.rollback(sequence_);
    throw;
  }
  cache_.commit(sequence_);
}

namespace {

void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocabulary,
                  std::int64_t room) {
  if (tokens.empty()) kRefuse.value("tokens", "at least one", "none");
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0 || tokens[t] >= vocabulary) {
      kRefuse.value(fmt::format("tokens[{}]", t), fmt::format("an id in [0, {})", vocabulary),
                    fmt::format("{}", tokens[t]));
    }
  }
  if (static_cast<std::int64_t>(tokens.size()) > room) {
    kRefuse.value("tokens", fmt::format("at most {}, for which there is room", room),
                  fmt::format("{}", tokens.size()));
  }
}

}  // namespace

TensorView DecoderSession::append(std::span<const std::int32_t> tokens,
                                  const StepObserver& observer) {
  const std::int64_t before = length();
  check_tokens(tokens, decoder_.vocabulary(), capacity() - before);
  const auto chunk = static_cast<std::size_t>(workspace_.tokens());
  try {
    for (std::size_t done = 0; done < tokens.size(); done += chunk) {
      const std::size_t count = std::min(chunk, tokens.size() - done);
      const bool last = done + count == tokens.size();
      run_chunk(tokens.subspan(done, count), observer, last ? logits_.view() : MutableTensorView());
    }
  } catch (...) {
    truncate(before);
    throw;
  }
  return std::as_const(logits_).view().select(0, 0);
}

void DecoderSession::append_all(std::span<const std::int32_t> tokens,
                                const MutableTensorView& logits) {
  const std::int64_t before = length();
  check_tokens(tokens, decoder_.vocabulary(), capacity() - before);
  const auto count = static_cast<std::int64_t>(tokens.size());
  kRefuse.unless_shape("logits", logits, {count, decoder_.vocabulary()}, "[T, vocabulary]");
  kRefuse.unless_dtype("logits", logits, {DType::f32, DType::f64});
  kRefuse.unless_writable("logits", logits);
  const std::int64_t chunk = workspace_.tokens();
  try {
    for (std::int64_t done = 0; done < count; done += chunk) {
      const std::int64_t end = std::min(done + chunk, count);
      run_chunk(
          tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(end - done)), {},
          logits.slice(0, done, end));
    }
  } catch (...) {
    truncate(before);
    throw;
  }
}

}  // namespace qkv
