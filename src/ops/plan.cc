#include "qkv/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/parallel.h"
#include "kernels/attention/fused.h"
#include "kernels/simd/targets.h"
#include "ops/attention_check.h"
#include "ops/decode.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("plan_attention");

// Keys that structure leaves to the queries of one head, over all sequences.
std::int64_t visible_pairs(const AttentionProblem& p) {
  std::int64_t pairs = 0;
  const bool same_for_all =
      !p.causal && p.window.left < 0 && p.window.right < 0 && !p.prefix.has_value();
  for (std::int64_t s = 0; s < p.sequence_count(); ++s) {
    const Sequence sequence = p.sequence(s);
    if (same_for_all) {
      pairs += sequence.query_count * sequence.key_length;
      continue;
    }
    for (std::int64_t i = 0; i < sequence.query_count; ++i) {
      const VisibleKeys keys = p.visible_keys(sequence, i);
      const std::int64_t begin = std::max(keys.band.begin, keys.prefix.end);
      pairs += keys.prefix.end + std::max<std::int64_t>(0, keys.band.end - begin);
    }
  }
  return pairs;
}

// Products of extents that someone typed: refused when they do not fit.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors) {
    const auto next = checked_mul(result, factor);
    if (!next) kRefuse.value("shape", "a size below 2^63", "more");
    result = *next;
  }
  return result;
}

void note_kernel(const AttentionProblem& p, const AttentionOptions& options, AttentionPlan& plan) {
  auto& notes = plan.notes;
  if (plan.kernel == AttentionKernel::reference) {
    notes.push_back(
        "reference: asked for; plain loops, for checking. The fused kernel can do this call");
    return;
  }
  if (plan.kernel == AttentionKernel::automatic ||
      (plan.kernel == AttentionKernel::decode && p.packed())) {
    notes.push_back("sequences of different lengths: each by the kernel that it would have alone");
  }
  const SimdTarget best = simd_targets().front();
  if (plan.target != best) {
    notes.push_back(fmt::format("{} was chosen; the best target of this CPU is {}",
                                name_of(plan.target), name_of(best)));
  } else {
    notes.push_back(fmt::format("{} is the best target of this CPU", name_of(best)));
  }
  if (p.accumulate_f64 && plan.shape.dtype != DType::f64) {
    notes.push_back("f64 accumulation was asked for: half the lanes, and every input is converted");
  } else if (plan.shape.dtype == DType::f16 || plan.shape.dtype == DType::bf16) {
    notes.push_back("16-bit inputs are widened to f32, keys and values once for each unit");
  }
  if (plan.kernel != AttentionKernel::fused) return;
  const std::int64_t vectors = (plan.shape.Tq + plan.lanes - 1) / plan.lanes;
  const std::int64_t idle = vectors * plan.lanes - plan.shape.Tq;
  if (plan.shape.Tq > 0 && !options.query_starts.has_value() && idle * 5 >= vectors * plan.lanes) {
    notes.push_back(fmt::format("{} of {} lanes have no query: Tq = {} does not fill vectors of {}",
                                idle, vectors * plan.lanes, plan.shape.Tq, plan.lanes));
  }
  if (plan.units < plan.threads) {
    notes.push_back(fmt::format("{} pieces of work for {} threads", plan.units, plan.threads));
  }
}

DecodeChoice decode_choice(const AttentionProblem& p, AttentionKernel asked) {
  if (asked == AttentionKernel::automatic) return choose_decode(p);
  return asked == AttentionKernel::decode && decode_can(p) ? DecodeChoice::all : DecodeChoice::none;
}

void plan_decode(const AttentionProblem& p, int threads, AttentionPlan& plan) {
  const DecodeSplit split = split_decode(p, DecodeKeys::kOnePage, threads);
  plan.kernel = AttentionKernel::decode;
  plan.lanes = find_decode_kernel(plan.target)->lanes;
  plan.tile_vectors = 1;
  plan.tile_rows = static_cast<int>(split.rows);
  plan.key_block = split.chunk;
  plan.unit_queries = p.Tq;
  plan.units = split.units;
  plan.threads = worker_count(split.units, threads);
  plan.workspace = split.workspace;
  plan.notes.push_back(
      fmt::format("few queries: {} rows share each key that is read; chunks of {} keys", split.rows,
                  split.chunk));
}

}  // namespace

std::string_view name_of(AttentionKernel kernel) noexcept {
  constexpr std::string_view kNames[] = {"automatic", "reference", "fused", "decode"};
  return kNames[static_cast<std::size_t>(kernel)];
}

AttentionPlan plan_attention(const AttentionShape& shape, const AttentionOptions& options,
                             const PlanCpu& cpu) {
  AttentionOptions asked = options;
  if (cpu.threads != 0) asked.threads = cpu.threads;
  const AttentionProblem p = check_attention_shape(shape, asked);
  AttentionPlan plan;
  plan.shape = shape;
  plan.accumulate = p.accumulate_f64 ? DType::f64 : DType::f32;
  product({shape.B, shape.Hq, shape.Tq, shape.Tk, 2, shape.D + shape.Dv});
  plan.visible = visible_pairs(p) * shape.Hq;
  plan.flops = 2 * plan.visible * (shape.D + shape.Dv);
  const auto size = static_cast<std::int64_t>(size_of(shape.dtype));
  plan.bytes = product({shape.B, shape.Hq, shape.Tq, shape.D + shape.Dv, size}) +
               product({shape.B, shape.Hkv, shape.Tk, shape.D + shape.Dv, size});
  if (options.kernel == AttentionKernel::reference) {
    plan.units = product({shape.B, shape.Hq, shape.Tq});
    plan.threads = worker_count(plan.units, asked.threads);
    plan.workspace = plan.threads * attention_reference_scratch(p);
    note_kernel(p, options, plan);
    return plan;
  }
  const SimdTarget wanted = cpu.target != SimdTarget::automatic ? cpu.target : options.target;
  plan.target = wanted == SimdTarget::automatic ? preferred_target() : wanted;
  const FusedKernel* kernel = find_fused_kernel(p, plan.target);
  if (kernel == nullptr) {
    kRefuse.value("target", "a target that this build has", name_of(plan.target));
  }
  const DecodeChoice choice = decode_choice(p, options.kernel);
  if (choice == DecodeChoice::all && !p.packed()) {
    plan_decode(p, asked.threads, plan);
    note_kernel(p, options, plan);
    return plan;
  }
  const int threads = fused_threads(p, asked.threads);
  const FusedSplit split = split_fused(p, *kernel, threads);
  plan.kernel = choice == DecodeChoice::none ? AttentionKernel::fused : options.kernel;
  plan.lanes = kernel->lanes;
  plan.tile_vectors = kernel->max_vectors;
  plan.tile_rows = kernel->key_rows;
  plan.key_block = p.Tk <= kernel->whole_keys ? p.Tk : kFusedKeyBlock;
  plan.unit_queries = split.unit_queries;
  plan.units = split.units;
  plan.threads = worker_count(split.items(), threads);
  // Keys and values may lie otherwise than planned, channel-first: that should fit, too.
  AttentionProblem turned = p;
  turned.key = TensorView(p.key.data(), p.key.dtype(), p.key.shape(), {0, 0, 1, 0});
  const FusedSplit other = split_fused(turned, *find_fused_kernel(turned, plan.target), threads);
  plan.workspace =
      std::max(fused_workspace(p, split, threads), fused_workspace(turned, other, threads));
  const std::int64_t rest = p.Tq % kernel->lanes;
  if (split.rest != nullptr && !p.packed() && rest > 0 && rest <= split.rest->lanes) {
    plan.notes.push_back(fmt::format(
        "what is left of queries after whole vectors goes by a vector of {}", split.rest->lanes));
  }
  note_kernel(p, options, plan);
  return plan;
}

std::string to_string(const AttentionPlan& plan) {
  const AttentionShape& s = plan.shape;
  std::string text = fmt::format(
      "query      [{}, {}, {}, {}]  key [{}, {}, {}, {}]  value [{}, {}, {}, {}]  {}\n", s.B, s.Hq,
      s.Tq, s.D, s.B, s.Hkv, s.Tk, s.D, s.B, s.Hkv, s.Tk, s.Dv, name_of(s.dtype));
  if (plan.kernel == AttentionKernel::reference) {
    text += fmt::format("kernel     reference, sums in {}\n", name_of(plan.accumulate));
  } else if (plan.kernel == AttentionKernel::decode) {
    text += fmt::format("kernel     decode, {}, sums in {}\n", name_of(plan.target),
                        name_of(plan.accumulate));
    text += fmt::format("split      {} units of up to {} keys, on {} threads\n", plan.units,
                        plan.key_block, plan.threads);
  } else {
    text += fmt::format("kernel     {}, {}, sums in {}\n",
                        plan.kernel == AttentionKernel::fused ? "fused" : "fused or decode",
                        name_of(plan.target), name_of(plan.accumulate));
    text += fmt::format("tile       {} queries ({} vectors of {}) × {} keys, {} keys a block\n",
                        plan.tile_vectors * plan.lanes, plan.tile_vectors, plan.lanes,
                        plan.tile_rows, plan.key_block);
    text += fmt::format("split      {} units of up to {} queries, on {} threads\n", plan.units,
                        plan.unit_queries, plan.threads);
  }
  text += fmt::format(
      "work       {} visible (query, key) pairs, {:.4g} GFLOP, {:.4g} MB in and out\n",
      plan.visible, static_cast<double>(plan.flops) / 1e9, static_cast<double>(plan.bytes) / 1e6);
  text += fmt::format("workspace  {:.4g} kB\n", static_cast<double>(plan.workspace) / 1e3);
  for (const std::string& note : plan.notes) text += fmt::format("note       {}\n", note);
  return text;
}

}  // namespace qkv
