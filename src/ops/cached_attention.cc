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
#include "qkv/merge.h"

namespace qkv {
namespace {

// Keys and values of batch entries [first, last) and positions `keys` as dense f32 tensors
// [entries, Hkv, keys, D] and [entries, Hkv, keys, Dv]; zeros where there is no token.
struct Gathered {
  Tensor key, value;
};

Gathered gather(const CachedProblem& p, std::int64_t first, std::int64_t last, KeyRange keys) {
  const KVState& state = *p.state;
  const KVStorage storage = state.config.storage;
  const std::int64_t size = size_of(storage), count = keys.end - keys.begin;
  Gathered g{Tensor(DType::f32, {last - first, p.Hkv, count, p.D}),
             Tensor(DType::f32, {last - first, p.Hkv, count, p.Dv})};
  float *to_keys = g.key.as<float>().data(), *to_values = g.value.as<float>().data();
  parallel_for((last - first) * p.Hkv, p.options.threads, [&](std::int64_t item, int) {
    const KVSequence& sequence = *p.sequences[static_cast<std::size_t>(first + item / p.Hkv)];
    const std::int64_t end = std::min(keys.end, sequence.end());
    for (std::int64_t t = std::max(keys.begin, sequence.first); t < end; ++t) {
      const KVStrip strip = state.pages.strip(state.page_of(sequence, t), p.layer, item % p.Hkv);
      const std::int64_t slot = state.slot_of(t), row = item * count + t - keys.begin;
      load_kv_row(strip.key + slot * p.D * size, storage, scale_at(strip.key_scale, slot), p.D,
                  to_keys + row * p.D);
      load_kv_row(strip.value + slot * p.Dv * size, storage, scale_at(strip.value_scale, slot),
                  p.Dv, to_values + row * p.Dv);
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

AttentionOptions dense_options(const CachedProblem& p) {
  AttentionOptions options;
  options.scale = p.scale;
  if (p.softcap > 0) options.softcap = p.softcap;
  options.causal = p.options.causal ? Causal::aligned : Causal::none;
  options.window = p.options.window;
  options.alibi = p.options.alibi;
  options.sinks = p.options.sinks;
  // Decode has read the cache itself, where it was asked for.
  options.kernel = p.options.kernel == AttentionKernel::reference ? AttentionKernel::reference
                                                                  : AttentionKernel::fused;
  options.target = p.options.target;
  options.threads = p.options.threads;
  return options;
}

// By way of a dense copy, for the stages.
void run_gathered(const CachedProblem& p) {
  const Gathered g = gather(p, 0, p.B, {0, p.Tk});
  Tensor offsets(DType::i64, {p.B}), lengths(DType::i64, {p.B});
  for (std::int64_t b = 0; b < p.B; ++b) {
    offsets.as<std::int64_t>()[static_cast<std::size_t>(b)] = p.length(b) - p.Tq;
    lengths.as<std::int64_t>()[static_cast<std::size_t>(b)] = p.key_length(b);
  }
  AttentionOptions options = dense_options(p);
  options.offsets = offsets;
  options.key_lengths = lengths;
  const bool wide = p.query.dtype() == DType::f32;
  const Tensor query = wide ? Tensor() : Tensor::copy_of(p.query, DType::f32);
  const bool direct = size_of(p.out.dtype()) >= sizeof(float);
  Tensor out = direct ? Tensor() : Tensor(DType::f32, p.out.shape());
  attention_forward(wide ? p.query : query.view(), g.key, g.value, direct ? p.out : out.view(),
                    options, p.stages);
  if (!direct) copy(out, p.out);
  hide_overwritten(p);
}

// Whether a batch entry's keys are one dense array of the query's dtype.
bool lies_dense(const CachedProblem& p) {
  const KVCacheConfig& c = p.state->config;
  return c.kind == KVCacheKind::contiguous &&
         ((c.storage == KVStorage::f32 && p.query.dtype() == DType::f32) ||
          (c.storage == KVStorage::f16 && p.query.dtype() == DType::f16) ||
          (c.storage == KVStorage::bf16 && p.query.dtype() == DType::bf16));
}

// Many queries of one batch entry over keys that are read where they lie.
void run_dense(const CachedProblem& p, std::int64_t b) {
  const KVSequence& sequence = *p.sequences[static_cast<std::size_t>(b)];
  const std::int64_t T = p.key_length(b), P = p.state->pages.page_tokens();
  AttentionOptions options = dense_options(p);
  options.offset = p.length(b) - p.Tq;
  AttentionStages stages;
  if (p.stages.lse.has_value()) stages.lse = p.stages.lse.slice(0, b, b + 1);
  const KVStrip strip = p.state->pages.strip(sequence.pages.front(), p.layer, 0);
  const DType dtype = p.query.dtype();
  attention_forward(p.query.slice(0, b, b + 1),
                    TensorView(strip.key, dtype, {1, p.Hkv, T, p.D}, {0, P * p.D, p.D, 1}),
                    TensorView(strip.value, dtype, {1, p.Hkv, T, p.Dv}, {0, P * p.Dv, p.Dv, 1}),
                    p.out.slice(0, b, b + 1), options, stages);
}

// Many queries over a cache of any kind: pieces of it are widened into a copy of bounded size, and
// what each gives is merged.
void run_entry_in_pieces(const CachedProblem& p, std::int64_t b, const TensorView& query) {
  constexpr std::int64_t kPiece = 4096;  // keys: enough that copies and merges do not count
  const std::int64_t offset = p.length(b) - p.Tq, T = p.key_length(b);
  const Dims shape{1, p.Hq, p.Tq, p.Dv}, rows{1, p.Hq, p.Tq};
  Tensor out(DType::f32, shape), lse(DType::f32, rows);
  Tensor part_out(DType::f32, shape), part_lse(DType::f32, rows);
  AttentionOptions options = dense_options(p);
  const std::int64_t left = p.options.window.left;
  const std::int64_t begin = left < 0 ? 0 : std::max<std::int64_t>(0, offset - left);
  bool first = true;
  for (std::int64_t at = begin; at < T || first; at += kPiece) {
    const KeyRange keys{at, std::max(at, std::min(T, at + kPiece))};
    const Gathered g = gather(p, b, b + 1, keys);
    options.offset = offset - at;
    if (!first) options.sinks = {};  // the first part carries it
    attention_forward(query.slice(0, b, b + 1), g.key, g.value, first ? out : part_out, options,
                      {.lse = first ? lse : part_lse});
    if (!first) {
      const AttentionPart parts[] = {{out, lse}, {part_out, part_lse}};
      merge_attention(parts, out, lse, p.options.threads);
    }
    first = false;
  }
  copy(out, p.out.slice(0, b, b + 1));
  if (p.stages.lse.has_value()) copy(lse, p.stages.lse.slice(0, b, b + 1));
}

void run_in_pieces(const CachedProblem& p) {
  if (p.Tq == 0 || p.Hq == 0) return;
  const bool dense = lies_dense(p);
  const Tensor wide =
      dense || p.query.dtype() == DType::f32 ? Tensor() : Tensor::copy_of(p.query, DType::f32);
  for (std::int64_t b = 0; b < p.B; ++b) {
    if (dense) {
      run_dense(p, b);
    } else {
      run_entry_in_pieces(p, b, wide.view().has_value() ? wide.view() : p.query);
    }
  }
}

// The cache as the decode kernel reads it.
class CachedKeys : public DecodeKeys {
 public:
  explicit CachedKeys(const CachedProblem& p) : p_(p) {
    storage = p.state->config.storage;
    key_stride = p.D;
    value_stride = p.Dv;
    page_tokens = p.state->pages.page_tokens();
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

bool wants_more_than_lse(const AttentionStages& s) {
  return s.scores.has_value() || s.softcapped.has_value() || s.masked.has_value() ||
         s.weights.has_value();
}

void run(const CachedProblem& p) {
  const AttentionKernel asked = p.options.kernel;
  const bool decode =
      asked == AttentionKernel::decode || (asked == AttentionKernel::automatic && p.Tq <= kFew);
  if (!decode) return wants_more_than_lse(p.stages) ? run_gathered(p) : run_in_pieces(p);
  if (wants_more_than_lse(p.stages)) {
    // The stages, and an output that is not used: asking for them changes no bit of the real one.
    Tensor out(DType::f32, p.out.shape());
    CachedProblem stages = p;
    stages.out = out;
    stages.stages.lse = {};
    run_gathered(stages);
  }
  const Plain plain(p);
  const SimdTarget target =
      p.options.target == SimdTarget::automatic ? preferred_target() : p.options.target;
  const CachedKeys keys(p);
  const DecodeSplit split = split_decode(plain.problem, keys.page_tokens, p.options.threads);
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
