#include "ops/attention_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/element.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("attention_forward");

// By pointer: a view is 150 bytes, and a short call has little time for copies.
using Named = std::pair<std::string_view, const TensorView*>;
using NamedOutput = std::pair<std::string_view, const MutableTensorView*>;

void check_tensors(AttentionProblem& p) {
  kRefuse.unless_rank("query", p.query, 4, "[B, Hq, Tq, D]");
  kRefuse.unless_rank("key", p.key, 4, "[B, Hkv, Tk, D]");
  kRefuse.unless_rank("value", p.value, 4, "[B, Hkv, Tk, Dv]");
  kRefuse.unless_float("query", p.query);
  kRefuse.unless_dtype("key", p.key, {p.query.dtype()});
  kRefuse.unless_dtype("value", p.value, {p.query.dtype()});
  p.B = p.query.dim(0);
  p.Hq = p.query.dim(1);
  p.Tq = p.query.dim(2);
  p.D = p.query.dim(3);
  p.Hkv = p.key.dim(1);
  p.Tk = p.key.dim(2);
  p.Dv = p.value.dim(3);
  if (p.D < 1) kRefuse.value("query", "a width D of 1 or more", to_string(p.query.shape()));
  if (p.Dv < 1) kRefuse.value("value", "a width Dv of 1 or more", to_string(p.value.shape()));
  if (p.key.dim(0) != p.B || p.key.dim(3) != p.D) {
    kRefuse.value("key", fmt::format("shape [{}, Hkv, Tk, {}] to fit the query", p.B, p.D),
                  to_string(p.key.shape()));
  }
  if (p.Hkv == 0 ? p.Hq != 0 : p.Hq % p.Hkv != 0) {
    kRefuse.value("key", fmt::format("a number of heads that divides the query's {}", p.Hq),
                  fmt::format("{} heads", p.Hkv));
  }
  kRefuse.unless_shape("value", p.value, {p.B, p.Hkv, p.Tk, p.Dv}, "[B, Hkv, Tk, Dv]");
  kRefuse.unless_shape("out", p.out, {p.B, p.Hq, p.Tq, p.Dv}, "[B, Hq, Tq, Dv]");
  kRefuse.unless_dtype("out", p.out, {p.query.dtype(), DType::f32, DType::f64});
}

void check_numbers(const AttentionOptions& options, AttentionProblem& p) {
  p.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(p.D)));
  if (!std::isfinite(p.scale)) {
    kRefuse.value("scale", "a finite number", fmt::format("{}", p.scale));
  }
  if (options.softcap) {
    if (!std::isfinite(*options.softcap) || *options.softcap <= 0) {
      kRefuse.value("softcap", "a finite number above 0 (leave it out for none)",
                    fmt::format("{}", *options.softcap));
    }
  }
  for (const auto& [name, side] : {std::pair{"window.left", options.window.left},
                                   std::pair{"window.right", options.window.right}}) {
    if (side < -1) {
      kRefuse.value(name, "-1 (unbounded) or more", fmt::format("{}", side));
    }
  }
  // A bound past every position is no bound.
  p.window.left = options.window.left > kMaxPosition ? -1 : options.window.left;
  p.window.right = options.window.right > kMaxPosition ? -1 : options.window.right;
  if (options.threads < 0) {
    kRefuse.value("threads", "0 (default) or more", fmt::format("{}", options.threads));
  }
  p.accumulate_f64 = p.query.dtype() == DType::f64 || options.accumulate == Accumulate::f64;
  if (options.softcap) {
    // Of what is computed in, so that the cap and its inverse are normal numbers: beyond that a
    // score is next to 0 beside eps, or is not capped at all.
    const double most = p.accumulate_f64 ? 0x1p1022 : 0x1p126;
    p.softcap = std::clamp(*options.softcap, 1 / most, most);
  }
}

void check_target(const AttentionOptions& options) {
  const std::vector<SimdTarget>& targets = simd_targets();
  if (options.target != SimdTarget::automatic &&
      std::find(targets.begin(), targets.end(), options.target) == targets.end()) {
    std::string known;
    for (const SimdTarget target : targets) known += fmt::format(", {}", name_of(target));
    kRefuse.value(
        "target", fmt::format("automatic{}", known),
        fmt::format("{}, which this CPU or build does not have", name_of(options.target)));
  }
}

std::int64_t integer_at(const TensorView& view, std::int64_t i) {
  return load_integer(view, i * view.stride(0));
}

void check_starts(std::string_view subject, const TensorView& starts, std::int64_t total) {
  kRefuse.unless_rank(subject, starts, 1, "[sequences + 1]");
  kRefuse.unless_dtype(subject, starts, {DType::i32, DType::i64});
  const std::int64_t count = starts.dim(0);
  if (count < 1) kRefuse.value(subject, "at least one number", "none");
  if (integer_at(starts, 0) != 0) {
    kRefuse.value(subject, "0 as the first number", fmt::format("{}", integer_at(starts, 0)));
  }
  for (std::int64_t i = 1; i < count; ++i) {
    if (integer_at(starts, i) < integer_at(starts, i - 1)) {
      kRefuse.value(
          subject, "numbers that do not decrease",
          fmt::format("{} after {} at [{}]", integer_at(starts, i), integer_at(starts, i - 1), i));
    }
  }
  if (integer_at(starts, count - 1) != total) {
    kRefuse.value(subject, fmt::format("{} (all tokens) as the last number", total),
                  fmt::format("{}", integer_at(starts, count - 1)));
  }
}

void check_packing(const AttentionOptions& options, AttentionProblem& p) {
  if (!options.query_starts.has_value() && !options.key_starts.has_value()) return;
  if (!options.query_starts.has_value() || !options.key_starts.has_value()) {
    kRefuse.value(options.key_starts.has_value() ? "query_starts" : "key_starts",
                  "query_starts and key_starts together", "only one of them");
  }
  if (p.B != 1) {
    kRefuse.value("query_starts", "a batch of 1 that holds all sequences end to end",
                  fmt::format("B = {}", p.B));
  }
  check_starts("query_starts", options.query_starts, p.Tq);
  check_starts("key_starts", options.key_starts, p.Tk);
  if (options.query_starts.dim(0) != options.key_starts.dim(0)) {
    kRefuse.value("key_starts",
                  fmt::format("{} numbers, as query_starts has", options.query_starts.dim(0)),
                  fmt::format("{}", options.key_starts.dim(0)));
  }
  p.query_starts = options.query_starts;
  p.key_starts = options.key_starts;
}

// Reads the per-sequence arrays, and checks every number in them, also the last one.
void check_per_sequence(const AttentionOptions& options, AttentionProblem& p) {
  const std::int64_t n = p.sequence_count();
  for (const auto& [subject, view, target] :
       {std::tuple{"offsets", &options.offsets, &p.offsets},
        std::tuple{"prefix", &options.prefix, &p.prefix},
        std::tuple{"key_lengths", &options.key_lengths, &p.key_lengths}}) {
    if (!view->has_value()) continue;
    kRefuse.unless_dtype(subject, *view, {DType::i32, DType::i64});
    kRefuse.unless_shape(subject, *view, {n}, p.packed() ? "[sequences]" : "[B]");
    *target = *view;
  }
  p.offset = options.offset.value_or(0);
  p.bottom_right = options.causal == Causal::bottom_right;
  for (std::int64_t s = 0; s < n; ++s) {
    const Sequence sequence = p.sequence(s);
    if (sequence.key_length < 0 || sequence.key_length > sequence.key_count) {
      kRefuse.value(fmt::format("key_lengths[{}]", s),
                    fmt::format("a length in [0, {}]", sequence.key_count),
                    fmt::format("{}", sequence.key_length));
    }
    if (sequence.prefix < 0) {
      kRefuse.value(fmt::format("prefix[{}]", s), "0 or more", fmt::format("{}", sequence.prefix));
    }
    if (sequence.offset < -kMaxPosition || sequence.offset > kMaxPosition) {
      kRefuse.value(options.offset ? "offset" : fmt::format("offsets[{}]", s),
                    "a position between -2^61 and 2^61", fmt::format("{}", sequence.offset));
    }
  }
}

void check_causal(const AttentionOptions& options, AttentionProblem& p) {
  const bool offset_given = options.offset.has_value() || options.offsets.has_value();
  if (options.offset && options.offsets.has_value()) {
    kRefuse.value("offset", "a number or one per sequence", "both");
  }
  const bool named = options.causal == Causal::top_left || options.causal == Causal::bottom_right;
  if (named && offset_given) {
    kRefuse.value("offset", "either an offset or a named alignment (top_left, bottom_right)",
                  "both");
  }
  p.causal = options.causal != Causal::none;
  if (options.causal != Causal::aligned || offset_given) return;
  for (std::int64_t s = 0; s < p.sequence_count(); ++s) {
    const Sequence sequence = p.sequence(s);
    if (sequence.query_count == sequence.key_count) continue;
    kRefuse.value("causal",
                  "Tq = Tk, an offset, or an alignment: top_left (the first query sees the first "
                  "key) or bottom_right (the last query sees the last key)",
                  fmt::format("Tq = {} and Tk = {}{}", sequence.query_count, sequence.key_count,
                              p.packed() ? fmt::format(" in sequence {}", s) : ""));
  }
}

TensorView broadcast(std::string_view subject, const TensorView& view, const AttentionProblem& p) {
  const Dims shape{p.B, p.Hq, p.Tq, p.Tk};
  const int missing = 4 - view.rank();
  bool fits = missing >= 0;
  for (int i = 0; fits && i < view.rank(); ++i) {
    fits = view.dim(i) == 1 || view.dim(i) == shape[i + missing];
  }
  if (!fits) {
    kRefuse.value(subject,
                  fmt::format("a shape that broadcasts to [B, Hq, Tq, Tk] {}", to_string(shape)),
                  to_string(view.shape()));
  }
  return view.broadcast_to(shape);
}

void check_masks(const AttentionOptions& options, AttentionProblem& p) {
  if (options.mask.has_value()) {
    kRefuse.unless_dtype("mask", options.mask, {DType::boolean});
    p.mask = broadcast("mask", options.mask, p);
  }
  if (options.bias.has_value()) {
    kRefuse.unless_dtype("bias", options.bias, {p.query.dtype(), DType::f32});
    p.bias = broadcast("bias", options.bias, p);
  }
  for (const auto& [subject, view, target] : {std::tuple{"alibi", &options.alibi, &p.alibi},
                                              std::tuple{"sinks", &options.sinks, &p.sinks}}) {
    if (!view->has_value()) continue;
    kRefuse.unless_float(subject, *view);
    kRefuse.unless_shape(subject, *view, {p.Hq}, "[Hq]");
    *target = *view;
  }
}

void check_rows(const TensorView& rows, const AttentionProblem& p) {
  kRefuse.unless_rank("rows", rows, 2, "[n, 3]");
  kRefuse.unless_dtype("rows", rows, {DType::i32, DType::i64});
  kRefuse.unless_shape("rows", rows, {rows.dim(0), 3}, "[n, 3]");
  const Dims extents{p.B, p.Hq, p.Tq};
  for (std::int64_t n = 0; n < rows.dim(0); ++n) {
    for (int c = 0; c < 3; ++c) {
      const std::int64_t index = load_integer(rows, n * rows.stride(0) + c * rows.stride(1));
      if (index >= 0 && index < extents[c]) continue;
      kRefuse.value(fmt::format("rows[{}, {}]", n, c),
                    fmt::format("a (batch, head, query) within {}", to_string(extents)),
                    fmt::format("{}", index));
    }
  }
}

void check_stages(const AttentionStages& stages, AttentionProblem& p) {
  p.stages = stages;
  if (stages.rows.has_value()) check_rows(stages.rows, p);
  const bool chosen = stages.rows.has_value();
  const Dims shape = chosen ? Dims{stages.rows.dim(0), p.Tk} : Dims{p.B, p.Hq, p.Tq, p.Tk};
  for (const auto& [subject, view] :
       {NamedOutput{"scores", &stages.scores}, NamedOutput{"softcapped", &stages.softcapped},
        NamedOutput{"masked", &stages.masked}, NamedOutput{"weights", &stages.weights}}) {
    if (!view->has_value()) continue;
    kRefuse.unless_dtype(subject, *view, {p.query.dtype(), DType::f32, DType::f64});
    kRefuse.unless_shape(subject, *view, shape, chosen ? "[rows, Tk]" : "[B, Hq, Tq, Tk]");
  }
  if (stages.lse.has_value()) {
    kRefuse.unless_dtype("lse", stages.lse, {DType::f32, DType::f64});
    kRefuse.unless_shape("lse", stages.lse, {p.B, p.Hq, p.Tq}, "[B, Hq, Tq]");
  }
}

void check_overlaps(const AttentionOptions& options, const AttentionProblem& p) {
  const std::array<NamedOutput, 6> outputs{{{"out", &p.out},
                                            {"lse", &p.stages.lse},
                                            {"scores", &p.stages.scores},
                                            {"softcapped", &p.stages.softcapped},
                                            {"masked", &p.stages.masked},
                                            {"weights", &p.stages.weights}}};
  const std::array<Named, 13> inputs{{{"query", &p.query},
                                      {"key", &p.key},
                                      {"value", &p.value},
                                      {"mask", &options.mask},
                                      {"bias", &options.bias},
                                      {"alibi", &p.alibi},
                                      {"sinks", &p.sinks},
                                      {"offsets", &p.offsets},
                                      {"prefix", &p.prefix},
                                      {"key_lengths", &p.key_lengths},
                                      {"query_starts", &p.query_starts},
                                      {"key_starts", &p.key_starts},
                                      {"rows", &p.stages.rows}}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [subject, output] = outputs[i];
    if (!output->has_value()) continue;
    kRefuse.unless_writable(subject, *output);
    for (const auto& [name, input] : inputs) kRefuse.if_overlap(subject, *output, name, *input);
    for (std::size_t j = 0; j < i; ++j) {
      kRefuse.if_overlap(subject, *output, outputs[j].first, *outputs[j].second);
    }
  }
}

}  // namespace

AttentionProblem check_attention(const TensorView& query, const TensorView& key,
                                 const TensorView& value, const MutableTensorView& out,
                                 const AttentionOptions& options, const AttentionStages& stages) {
  AttentionProblem p;
  p.query = query;
  p.key = key;
  p.value = value;
  p.out = out;
  check_tensors(p);
  check_numbers(options, p);
  check_target(options);
  check_packing(options, p);
  check_per_sequence(options, p);
  check_causal(options, p);
  check_masks(options, p);
  check_stages(stages, p);
  check_overlaps(options, p);
  return p;
}

AttentionProblem check_attention_shape(const AttentionShape& shape,
                                       const AttentionOptions& options) {
  // Views of the right shape that nobody reads, of dense rows.
  static std::byte nothing[sizeof(double)];
  const Dims still{0, 0, 0, 1};
  for (const std::int64_t extent :
       {shape.B, shape.Hq, shape.Hkv, shape.Tq, shape.Tk, shape.D, shape.Dv}) {
    if (extent < 0) kRefuse.value("shape", "dimensions of 0 or more", fmt::format("{}", extent));
  }
  AttentionProblem p;
  p.query = TensorView(nothing, shape.dtype, {shape.B, shape.Hq, shape.Tq, shape.D}, still);
  p.key = TensorView(nothing, shape.dtype, {shape.B, shape.Hkv, shape.Tk, shape.D}, still);
  p.value = TensorView(nothing, shape.dtype, {shape.B, shape.Hkv, shape.Tk, shape.Dv}, still);
  p.out = MutableTensorView(nothing, shape.dtype, {shape.B, shape.Hq, shape.Tq, shape.Dv}, still);
  check_tensors(p);
  check_numbers(options, p);
  check_packing(options, p);
  check_per_sequence(options, p);
  check_causal(options, p);
  check_masks(options, p);
  return p;
}

}  // namespace qkv
