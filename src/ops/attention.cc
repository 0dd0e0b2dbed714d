#include "qkv/attention.h"

#include <algorithm>

#include "base/element.h"
#include "base/parallel.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/fused.h"
#include "kernels/simd/targets.h"
#include "ops/attention_check.h"
#include "ops/decode.h"
#include "ops/refuse.h"
#include "ops/workspace.h"

namespace qkv {
namespace {

// One row of a [B, Hq, Tq, …] output.
MutableTensorView row_of(const MutableTensorView& view, std::int64_t b, std::int64_t h,
                         std::int64_t t) {
  return view.has_value() ? view.select(0, b).select(0, h).select(0, t) : view;
}

// Every row's output and LSE, and its stages unless only chosen rows of those are wanted.
void reference_all_rows(const AttentionProblem& p, int threads, Tensor& scratch) {
  const bool all_stages = !p.stages.rows.has_value();
  parallel_for(p.B * p.Hq * p.Tq, threads, [&](std::int64_t item, int worker) {
    const std::int64_t t = item % p.Tq, h = item / p.Tq % p.Hq, b = item / p.Tq / p.Hq;
    AttentionRow row;
    row.out = row_of(p.out, b, h, t);
    row.lse = row_of(p.stages.lse, b, h, t);
    if (all_stages) {
      row.scores = row_of(p.stages.scores, b, h, t);
      row.softcapped = row_of(p.stages.softcapped, b, h, t);
      row.masked = row_of(p.stages.masked, b, h, t);
      row.weights = row_of(p.stages.weights, b, h, t);
    }
    const Sequence sequence = p.sequence_of(b, t);
    attention_reference_row(p, sequence, h, t - sequence.query_begin, row,
                            scratch.as<std::uint8_t>().data() + worker * scratch.dim(1));
  });
}

// The stages of the rows that were named, each computed again by the same loops.
void reference_chosen_rows(const AttentionProblem& p, int threads, Tensor& scratch) {
  const TensorView& rows = p.stages.rows;
  parallel_for(rows.dim(0), threads, [&](std::int64_t n, int worker) {
    const auto index = [&](int c) {
      return load_integer(rows, n * rows.stride(0) + c * rows.stride(1));
    };
    const auto row_n = [&](const MutableTensorView& view) {
      return view.has_value() ? view.select(0, n) : view;
    };
    AttentionRow row;
    row.scores = row_n(p.stages.scores);
    row.softcapped = row_n(p.stages.softcapped);
    row.masked = row_n(p.stages.masked);
    row.weights = row_n(p.stages.weights);
    const Sequence sequence = p.sequence_of(index(0), index(2));
    attention_reference_row(p, sequence, index(1), index(2) - sequence.query_begin, row,
                            scratch.as<std::uint8_t>().data() + worker * scratch.dim(1));
  });
}

// All memory is had before the first output is written: a call that throws has written nothing.
void run_reference(const AttentionProblem& p, int threads) {
  const std::int64_t rows = p.B * p.Hq * p.Tq;
  const std::int64_t chosen = p.stages.rows.has_value() ? p.stages.rows.dim(0) : 0;
  constexpr std::int64_t kLine = Tensor::kAlignment;
  const std::int64_t bytes = (attention_reference_scratch(p) + kLine - 1) / kLine * kLine;
  Tensor scratch(DType::u8, {worker_count(std::max(rows, chosen), threads), bytes});
  reference_all_rows(p, threads, scratch);
  if (chosen > 0) reference_chosen_rows(p, threads, scratch);
}

// `workspace` empty: the calling thread's own.
void run_fused(const AttentionProblem& p, const FusedKernel& kernel, int threads,
               std::span<std::byte> workspace) {
  threads = fused_threads(p, threads);
  const FusedSplit split = split_fused(p, kernel, threads);
  const std::int64_t bytes = fused_workspace(p, split, threads);
  // Kept from call to call: getting memory anew would cost a short call more than its arithmetic.
  thread_local Workspace own;
  std::byte* memory =
      workspace.size() >= static_cast<std::size_t>(bytes) ? workspace.data() : own.of(bytes);
  attention_fused(p, kernel, split, threads, memory);
}

// The stages of a problem, and an output that is not used.
void run_stages(const AttentionProblem& p, SimdTarget target, int threads) {
  const AttentionStages& s = p.stages;
  if (!s.scores.has_value() && !s.softcapped.has_value() && !s.masked.has_value() &&
      !s.weights.has_value()) {
    return;
  }
  AttentionProblem stages = p;
  Tensor out(DType::f32, p.out.shape());
  stages.out = out;
  stages.stages.lse = {};
  run_fused(stages, *find_fused_kernel(stages, target), threads, {});
}

// `workspace` empty: the calling thread's own.
void run_few(const AttentionProblem& p, SimdTarget target, int threads,
             std::span<std::byte> workspace) {
  const PlainKeys keys(p);
  const DecodeSplit split = split_decode(p, keys.page_tokens, threads);
  thread_local Workspace own;
  std::byte* memory = workspace.size() >= static_cast<std::size_t>(split.workspace)
                          ? workspace.data()
                          : own.of(split.workspace);
  run_decode(p, keys, *find_decode_kernel(target), split, threads, memory);
}

// One sequence of a problem as a problem of its own: what it is alone.
AttentionProblem alone(const AttentionProblem& p, std::int64_t s) {
  const Sequence sequence = p.sequence(s);
  const std::int64_t b = sequence.batch;
  const auto rows = [&](const auto& view, std::int64_t begin, std::int64_t count) {
    return view.slice(0, b, b + 1).slice(2, begin, begin + count);
  };
  AttentionProblem one = p;
  one.B = 1;
  one.Tq = sequence.query_count;
  one.Tk = sequence.key_length;
  one.query = rows(p.query, sequence.query_begin, one.Tq);
  one.out = rows(p.out, sequence.query_begin, one.Tq);
  one.key = rows(p.key, sequence.key_begin, one.Tk);
  one.value = rows(p.value, sequence.key_begin, one.Tk);
  one.stages = {};
  if (p.stages.lse.has_value()) one.stages.lse = rows(p.stages.lse, sequence.query_begin, one.Tq);
  one.offset = sequence.offset;
  one.bottom_right = false;
  one.offsets = one.prefix = one.key_lengths = one.query_starts = one.key_starts = {};
  return one;
}

// Sequences of different lengths, each by the kernel that it would have alone.
void run_each(const AttentionProblem& p, AttentionKernel kernel, SimdTarget target, int threads) {
  for (std::int64_t s = 0; s < p.sequence_count(); ++s) {
    const AttentionProblem one = alone(p, s);
    if (kernel == AttentionKernel::decode || choose_decode(one) == DecodeChoice::all) {
      run_few(one, target, threads, {});
    } else {
      run_fused(one, *find_fused_kernel(one, target), threads, {});
    }
  }
}

void run_any(const AttentionProblem& p, AttentionKernel kernel, SimdTarget target, int threads,
             std::span<std::byte> workspace) {
  if (kernel == AttentionKernel::reference) return run_reference(p, threads);
  DecodeChoice choice = DecodeChoice::none;
  if (kernel == AttentionKernel::automatic) choice = choose_decode(p);
  if (kernel == AttentionKernel::decode && decode_can(p)) choice = DecodeChoice::all;
  if (choice == DecodeChoice::none) {
    return run_fused(p, *find_fused_kernel(p, target), threads, workspace);
  }
  run_stages(p, target, threads);
  if (choice == DecodeChoice::some || p.packed()) {
    return run_each(p, kernel, target, threads);
  }
  run_few(p, target, threads, workspace);
}

}  // namespace

void attention_forward(const TensorView& query, const TensorView& key, const TensorView& value,
                       const MutableTensorView& out, const AttentionOptions& options,
                       const AttentionStages& stages) {
  const AttentionProblem problem = check_attention(query, key, value, out, options, stages);
  const SimdTarget target =
      options.target == SimdTarget::automatic ? preferred_target() : options.target;
  run_any(problem, options.kernel, target, options.threads, {});
}

void attention_forward(const AttentionPlan& plan, const TensorView& query, const TensorView& key,
                       const TensorView& value, const MutableTensorView& out,
                       const AttentionOptions& options, const AttentionStages& stages,
                       std::span<std::byte> workspace) {
  AttentionOptions planned = options;
  planned.kernel = plan.kernel;
  planned.target = plan.target;
  planned.threads = plan.threads;
  const AttentionProblem p = check_attention(query, key, value, out, planned, stages);
  const AttentionShape& shape = plan.shape;
  constexpr Refuse kRefuse("attention_forward");
  kRefuse.unless_shape("query", query, {shape.B, shape.Hq, shape.Tq, shape.D}, "of the plan");
  kRefuse.unless_shape("key", key, {shape.B, shape.Hkv, shape.Tk, shape.D}, "of the plan");
  kRefuse.unless_shape("value", value, {shape.B, shape.Hkv, shape.Tk, shape.Dv}, "of the plan");
  kRefuse.unless_dtype("query", query, {shape.dtype});
  run_any(p, plan.kernel, plan.target, plan.threads, workspace);
}

}  // namespace qkv
