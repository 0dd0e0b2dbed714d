#include "ops/cached_attention_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/element.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("cached_attention_forward");

using Named = std::pair<std::string_view, TensorView>;
using NamedOutput = std::pair<std::string_view, MutableTensorView>;

void check_tensors(CachedProblem& p) {
  const KVCacheConfig& c = p.state->config;
  kRefuse.unless_rank("query", p.query, 4, "[B, Hq, Tq, D]");
  kRefuse.unless_dtype("query", p.query, {DType::f32, DType::f16, DType::bf16});
  p.B = p.query.dim(0);
  p.Hq = p.query.dim(1);
  p.Tq = p.query.dim(2);
  p.Hkv = c.heads;
  p.D = c.D;
  p.Dv = c.Dv;
  if (p.query.dim(3) != p.D) {
    kRefuse.value("query", fmt::format("a width D of {}, as the cache has", p.D),
                  to_string(p.query.shape()));
  }
  if (p.Hq % p.Hkv != 0) {
    kRefuse.value("query", fmt::format("a number of heads that the cache's {} divide", p.Hkv),
                  fmt::format("{} heads", p.Hq));
  }
  if (static_cast<std::int64_t>(p.sequences.size()) != p.B) {
    kRefuse.value("sequences", fmt::format("{}, as the query's batch", p.B),
                  fmt::format("{}", p.sequences.size()));
  }
  if (p.layer < 0 || p.layer >= c.layers) {
    kRefuse.value("layer", fmt::format("one of {}", c.layers), fmt::format("{}", p.layer));
  }
  for (std::int64_t b = 0; b < p.B; ++b) {
    p.Tk = std::max(p.Tk, p.length(b));
    if (p.Tq > p.length(b)) {
      kRefuse.value(
          "query",
          fmt::format("at most {} tokens, as sequence {} has", p.length(b), p.sequence(b).id),
          fmt::format("{}", p.Tq));
    }
  }
  kRefuse.unless_shape("out", p.out, {p.B, p.Hq, p.Tq, p.Dv}, "[B, Hq, Tq, Dv]");
  kRefuse.unless_dtype("out", p.out, {p.query.dtype(), DType::f32, DType::f64});
}

void check_options(CachedProblem& p) {
  CachedAttentionOptions& o = p.options;
  p.scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(p.D)));
  if (!std::isfinite(p.scale)) {
    kRefuse.value("scale", "a finite number", fmt::format("{}", p.scale));
  }
  p.softcap = o.softcap.value_or(0);
  if (o.softcap && !(std::isfinite(p.softcap) && p.softcap > 0)) {
    kRefuse.value("softcap", "a finite number above 0 (leave it out for none)",
                  fmt::format("{}", p.softcap));
  }
  for (const auto& [name, side] :
       {std::pair{"window.left", &o.window.left}, std::pair{"window.right", &o.window.right}}) {
    if (*side < -1) kRefuse.value(name, "-1 (unbounded) or more", fmt::format("{}", *side));
    // No token of a cache is further away.
    if (*side >= std::max<std::int64_t>(1, p.Tk)) *side = -1;
  }
  const std::int64_t kept = p.state->config.window - 1;
  if (p.state->ring() && (o.window.left < 0 || o.window.left > kept)) o.window.left = kept;
  if (o.threads < 0) {
    kRefuse.value("threads", "0 (default) or more", fmt::format("{}", o.threads));
  }
  const std::vector<SimdTarget>& targets = simd_targets();
  if (o.target != SimdTarget::automatic &&
      std::find(targets.begin(), targets.end(), o.target) == targets.end()) {
    kRefuse.value("target", "one that this CPU and build have", name_of(o.target));
  }
  for (const auto& [name, view] : {Named{"alibi", o.alibi}, Named{"sinks", o.sinks}}) {
    if (!view.has_value()) continue;
    kRefuse.unless_float(name, view);
    kRefuse.unless_shape(name, view, {p.Hq}, "[Hq]");
  }
}

// Numbers per sequence; also that a ring still has what the first query sees.
void check_sequences(CachedProblem& p) {
  const TensorView& lengths = p.options.key_lengths;
  if (lengths.has_value()) {
    kRefuse.unless_dtype("key_lengths", lengths, {DType::i32, DType::i64});
    kRefuse.unless_shape("key_lengths", lengths, {p.B}, "[B]");
  }
  for (std::int64_t b = 0; b < p.B; ++b) {
    const KVSequence& sequence = p.sequence(b);
    if (p.key_length(b) < 0 || p.key_length(b) > sequence.end()) {
      kRefuse.value(fmt::format("key_lengths[{}]", b),
                    fmt::format("a length in [0, {}]", sequence.end()),
                    fmt::format("{}", p.key_length(b)));
    }
    if (p.key_length(b) > sequence.length) check_written(kRefuse, sequence, p.layer);
    const std::int64_t position = sequence.end() - p.Tq;
    if (p.Tq > 0 && sequence.first > std::max<std::int64_t>(0, position - p.options.window.left)) {
      kRefuse.value("query",
                    fmt::format("at most {} tokens: the window of earlier ones was overwritten",
                                sequence.end() - sequence.first - p.options.window.left),
                    fmt::format("{}", p.Tq));
    }
  }
}

void check_stages(CachedProblem& p) {
  const AttentionStages& s = p.stages;
  const Dims full{p.B, p.Hq, p.Tq, p.Tk};
  for (const auto& [name, view] :
       {NamedOutput{"scores", s.scores}, NamedOutput{"softcapped", s.softcapped},
        NamedOutput{"masked", s.masked}, NamedOutput{"weights", s.weights}}) {
    if (!view.has_value()) continue;
    kRefuse.unless_dtype(name, view, {DType::f32, DType::f64});
    // Of chosen rows: checked by attention_forward.
    if (!s.rows.has_value()) kRefuse.unless_shape(name, view, full, "[B, Hq, Tq, Tk]");
  }
  if (s.lse.has_value()) {
    kRefuse.unless_dtype("lse", s.lse, {DType::f32, DType::f64});
    kRefuse.unless_shape("lse", s.lse, {p.B, p.Hq, p.Tq}, "[B, Hq, Tq]");
  }
  const std::array<NamedOutput, 6> outputs{{{"out", p.out},
                                            {"lse", s.lse},
                                            {"scores", s.scores},
                                            {"softcapped", s.softcapped},
                                            {"masked", s.masked},
                                            {"weights", s.weights}}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [name, output] = outputs[i];
    if (!output.has_value()) continue;
    kRefuse.unless_writable(name, output);
    for (const auto& [other, input] :
         {Named{"query", p.query}, Named{"alibi", p.options.alibi}, Named{"sinks", p.options.sinks},
          Named{"key_lengths", p.options.key_lengths}, Named{"rows", s.rows}}) {
      kRefuse.if_overlap(name, output, other, input);
    }
    for (std::size_t j = 0; j < i; ++j) {
      kRefuse.if_overlap(name, output, outputs[j].first, outputs[j].second);
    }
  }
}

}  // namespace

std::int64_t CachedProblem::key_length(std::int64_t b) const noexcept {
  const TensorView& lengths = options.key_lengths;
  return lengths.has_value() ? load_integer(lengths, b * lengths.stride(0)) : length(b);
}

CachedProblem check_cached_attention(const TensorView& query, const KVState& state,
                                     std::vector<const KVSequence*> sequences, std::int64_t layer,
                                     const MutableTensorView& out,
                                     const CachedAttentionOptions& options,
                                     const AttentionStages& stages) {
  CachedProblem p;
  p.state = &state;
  p.layer = layer;
  p.sequences = std::move(sequences);
  p.query = query;
  p.out = out;
  p.options = options;
  p.stages = stages;
  check_tensors(p);
  check_options(p);
  check_sequences(p);
  check_stages(p);
  return p;
}

}  // namespace qkv
