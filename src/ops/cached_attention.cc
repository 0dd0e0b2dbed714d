#include "qkv/cached_attention.h"

#include <algorithm>
#include <limits>

#include "base/element.h"
#include "base/parallel.h"
#include "kernels/cache/store.h"
#include "kernels/simd/targets.h"
#include "ops/cached_attention_check.h"
#include "ops/decode.h"
#include "ops/workspace.h"

namespace qkv {
namespace {

// Keys and values of all sequences as dense f32 tensors [B, Hkv, Tk, D] and [B, Hkv, Tk, Dv];
// zeros where there is no token.
struct Gathered {
  Tensor key, value;
};

Gathered gather(const CachedProblem& p) {
  const KVState& state = *p.state;
  const KVStorage storage = state.config.storage;
  const std::int64_t size = size_of(storage);
  Gathered g{Tensor(DType::f32, {p.B, p.Hkv, p.Tk, p.D}),
             Tensor(DType::f32, {p.B, p.Hkv, p.Tk, p.Dv})};
  float *keys = g.key.as<float>().data(), *values = g.value.as<float>().data();
  parallel_for(p.B * p.Hkv, p.options.threads, [&](std::int64_t item, int) {
    const KVSequence& sequence = *p.sequences[static_cast<std::size_t>(item / p.Hkv)];
    for (std::int64_t t = sequence.first; t < sequence.end(); ++t) {
      const KVStrip strip = state.pages.strip(state.page_of(sequence, t), p.layer, item % p.Hkv);
      const std::int64_t slot = state.slot_of(t), row = item * p.Tk + t;
      load_kv_row(strip.key + slot * p.D * size, storage, scale_at(strip.key_scale, slot), p.D,
                  keys + row * p.D);
      load_kv_row(strip.value + slot * p.Dv * size, storage, scale_at(strip.value_scale, slot),
                  p.Dv, values + row * p.Dv);
    }
  });
  return g;
}

// Raw scores of positions that a ring has overwritten: the copy had zeros for their keys.
void hide_overwritten(const CachedProblem& p) {
  const TensorView& rows = p.stages.rows;
  const auto hide = [&](const MutableTensorView& row, std::int64_t b) {
    for (std::int64_t t = 0; t < p.sequences[static_cast<std::size_t>(b)]->first; ++t) {
      row.set({t}, -std::numeric_limits<double>::infinity());
    }
  };
  for (const MutableTensorView& stage : {p.stages.scores, p.stages.softcapped}) {
    if (!stage.has_value()) continue;
    if (rows.has_value()) {
      for (std::int64_t n = 0; n < rows.dim(0); ++n) {
        hide(stage.select(0, n), load_integer(rows, n * rows.stride(0)));
      }
      continue;
    }
    for (std::int64_t b = 0; b < p.B; ++b) {
      for (std::int64_t row = 0; row < p.Hq * p.Tq; ++row) {
        hide(stage.select(0, b).select(0, row / p.Tq).select(0, row % p.Tq), b);
      }
    }
  }
}

// By way of a dense copy, for everything that attention_forward can do.
void run_gathered(const CachedProblem& p) {
  const Gathered g = gather(p);
  Tensor offsets(DType::i64, {p.B}), lengths(DType::i64, {p.B});
  for (std::int64_t b = 0; b < p.B; ++b) {
    offsets.view().set({b}, static_cast<double>(p.length(b) - p.Tq));
    lengths.view().set({b}, static_cast<double>(p.key_length(b)));
  }
  AttentionOptions options;
  options.scale = p.scale;
  if (p.softcap > 0) options.softcap = p.softcap;
  options.causal = p.options.causal ? Causal::aligned : Causal::none;
  options.window = p.options.window;
  options.offsets = offsets;
  options.key_lengths = lengths;
  options.alibi = p.options.alibi;
  options.sinks = p.options.sinks;
  options.kernel =
      p.options.kernel == AttentionKernel::decode ? AttentionKernel::automatic : p.options.kernel;
  options.target = p.options.target;
  options.threads = p.options.threads;
  const bool wide = p.query.dtype() == DType::f32;
  const Tensor query = wide ? Tensor() : Tensor::copy_of(p.query, DType::f32);
  const bool direct = size_of(p.out.dtype()) >= sizeof(float);
  Tensor out = direct ? Tensor() : Tensor(DType::f32, p.out.shape());
  attention_forward(wide ? p.query : query.view(), g.key, g.value, direct ? p.out : out.view(),
                    options, p.stages);
  if (!direct) copy(out, p.out);
  hide_overwritten(p);
}

// The cache as the decode kernel reads it.
class CachedKeys : public DecodeKeys {
 public:
  explicit CachedKeys(const CachedProblem& p) : p_(p) {
    storage = p.state->config.storage;
    key_stride = p.D;
    value_stride = p.Dv;
  }
  std::int64_t runs(std::int64_t b, std::int64_t h, KeyRange keys,
                    DecodeRun* to) const noexcept override {
    const KVState& state = *p_.state;
    const KVSequence& sequence = *p_.sequences[static_cast<std::size_t>(b)];
    const std::int64_t size = size_of(storage);
    std::int64_t count = 0;
    for (std::int64_t at = keys.begin; at < keys.end; ++count) {
      const KVStrip strip = state.pages.strip(state.page_of(sequence, at), p_.layer, h);
      const std::int64_t slot = state.slot_of(at);
      DecodeRun& run = to[count];
      run.key = strip.key + slot * p_.D * size;
      run.value = strip.value + slot * p_.Dv * size;
      run.key_scale = scale_at(strip.key_scale, slot);
      run.value_scale = scale_at(strip.value_scale, slot);
      run.begin = at;
      at = run.end = std::min(keys.end, at + state.run_from(at));
    }
    return count;
  }
  std::int64_t max_runs(std::int64_t length) const noexcept override {
    return length / std::min(length, p_.state->pages.page_tokens()) + 2;
  }

 private:
  const CachedProblem& p_;
};

// A call in attention_forward's terms, without keys and values.
struct Plain {
  AttentionProblem problem;
  Tensor offsets, lengths;

  explicit Plain(const CachedProblem& p) : offsets(DType::i64, {p.B}), lengths(DType::i64, {p.B}) {
    AttentionProblem& a = problem;
    a.B = p.B, a.Hq = p.Hq, a.Hkv = p.Hkv, a.Tq = p.Tq, a.Tk = p.Tk, a.D = p.D, a.Dv = p.Dv;
    a.query = p.query;
    a.out = p.out;
    a.alibi = p.options.alibi;
    a.sinks = p.options.sinks;
    for (std::int64_t b = 0; b < p.B; ++b) {
      offsets.as<std::int64_t>()[static_cast<std::size_t>(b)] = p.length(b) - p.Tq;
      lengths.as<std::int64_t>()[static_cast<std::size_t>(b)] = p.key_length(b);
    }
    a.offsets = offsets;
    a.key_lengths = lengths;
    a.stages = p.stages;
    a.scale = p.scale;
    a.softcap = p.softcap;
    a.causal = p.options.causal;
    a.window = p.options.window;
  }
};

// More queries than this fill the lanes of the fused kernel.
constexpr std::int64_t kFew = 8;

void run(const CachedProblem& p) {
  const Plain plain(p);
  const AttentionKernel asked = p.options.kernel;
  const bool decode =
      asked == AttentionKernel::decode || (asked == AttentionKernel::automatic && p.Tq <= kFew);
  if (!decode || !decode_can(plain.problem)) return run_gathered(p);
  const SimdTarget target =
      p.options.target == SimdTarget::automatic ? preferred_target() : p.options.target;
  const CachedKeys keys(p);
  const DecodeSplit split =
      split_decode(plain.problem, keys.max_runs(decode_chunk(p.Tk)), p.options.threads);
  thread_local Workspace workspace;
  run_decode(plain.problem, keys, *find_decode_kernel(target), split, p.options.threads,
             workspace.of(split.workspace));
}

}  // namespace

void cached_attention_forward(const TensorView& query, const KVCache& cache, std::int64_t layer,
                              std::span<const SequenceId> sequences, const MutableTensorView& out,
                              const CachedAttentionOptions& options,
                              const AttentionStages& stages) {
  std::vector<const KVSequence*> found;
  for (const SequenceId id : sequences) {
    found.push_back(&KVAccess::sequence(cache, id, "cached_attention_forward"));
  }
  run(check_cached_attention(query, KVAccess::state(cache), std::move(found), layer, out, options,
                             stages));
}

void cached_attention_forward(const TensorView& query, const KVSnapshot& snapshot,
                              std::int64_t layer, const MutableTensorView& out,
                              const CachedAttentionOptions& options,
                              const AttentionStages& stages) {
  std::vector<const KVSequence*> found;
  for (const KVSequence& sequence : KVAccess::sequences(snapshot)) found.push_back(&sequence);
  run(check_cached_attention(query, KVAccess::state(snapshot), std::move(found), layer, out,
                             options, stages));
}

}  // namespace qkv
