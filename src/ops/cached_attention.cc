#include "qkv/cached_attention.h"

#include <limits>

#include "base/element.h"
#include "base/parallel.h"
#include "kernels/cache/store.h"
#include "ops/cached_attention_check.h"

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
      load_kv_row(strip.key + slot * p.D * size, storage, strip.key_scale + slot, p.D,
                  keys + row * p.D);
      load_kv_row(strip.value + slot * p.Dv * size, storage, strip.value_scale + slot, p.Dv,
                  values + row * p.Dv);
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
  options.kernel = p.options.kernel;
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

}  // namespace

void cached_attention_forward(const TensorView& query, const KVCache& cache, std::int64_t layer,
                              std::span<const SequenceId> sequences, const MutableTensorView& out,
                              const CachedAttentionOptions& options,
                              const AttentionStages& stages) {
  std::vector<const KVSequence*> found;
  for (const SequenceId id : sequences) {
    found.push_back(&KVAccess::sequence(cache, id, "cached_attention_forward"));
  }
  run_gathered(check_cached_attention(query, KVAccess::state(cache), std::move(found), layer, out,
                                      options, stages));
}

void cached_attention_forward(const TensorView& query, const KVSnapshot& snapshot,
                              std::int64_t layer, const MutableTensorView& out,
                              const CachedAttentionOptions& options,
                              const AttentionStages& stages) {
  std::vector<const KVSequence*> found;
  for (const KVSequence& sequence : KVAccess::sequences(snapshot)) found.push_back(&sequence);
  run_gathered(check_cached_attention(query, KVAccess::state(snapshot), std::move(found), layer,
                                      out, options, stages));
}

}  // namespace qkv
