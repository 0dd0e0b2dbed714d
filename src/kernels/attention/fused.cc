#include "kernels/attention/fused.h"

#include <algorithm>

#include "base/cpu.h"
#include "base/element.h"
#include "base/parallel.h"
#include "kernels/attention/fused_workspace.h"

namespace qkv {
namespace {

// Queries and partial outputs of a unit should stay in a core's own cache while keys go past.
constexpr std::int64_t kUnitBytes = 192 << 10;
// Enough units for each thread that none waits long for another.
constexpr std::int64_t kUnitsPerThread = 4;
// The same for units that are short, and go in groups.
constexpr std::int64_t kGroupsPerThread = 32;

std::int64_t workspace_bytes(const AttentionProblem& p, const FusedKernel& kernel,
                             std::int64_t queries) {
  return p.accumulate_f64
             ? FusedWorkspace<double>(p, kernel.lanes, kernel.max_vectors, queries, nullptr).bytes
             : FusedWorkspace<float>(p, kernel.lanes, kernel.max_vectors, queries, nullptr).bytes;
}

// Units are numbered head by head within a sequence. Sequence s of a packed batch gets the numbers
// from first_unit(s) on: a few more than it needs, so that no table has to be kept.
std::int64_t first_unit(const AttentionProblem& p, const FusedSplit& split, std::int64_t s) {
  const std::int64_t begin = load_integer(p.query_starts, s * p.query_starts.stride(0));
  return (begin / split.unit_queries + s) * p.Hq;
}

FusedUnit unit_at(const AttentionProblem& p, const FusedSplit& split, std::int64_t index) {
  std::int64_t s = 0;
  if (p.packed()) {
    std::int64_t high = p.sequence_count();
    while (high - s > 1) {
      const std::int64_t middle = s + (high - s) / 2;
      (first_unit(p, split, middle) <= index ? s : high) = middle;
    }
    index -= first_unit(p, split, s);
  } else {
    const std::int64_t per_sequence = split.units / p.B;
    s = index / per_sequence;
    index %= per_sequence;
  }
  FusedUnit unit;
  unit.sequence = p.sequence(s);
  unit.head = index % p.Hq;
  unit.query_begin = index / p.Hq * split.unit_queries;
  unit.query_count =
      std::clamp<std::int64_t>(unit.sequence.query_count - unit.query_begin, 0, split.unit_queries);
  return unit;
}

// Lanes that the queries of a sequence take up, empty ones included.
std::int64_t filled_lanes(const AttentionProblem& p, const FusedKernel& kernel) {
  const std::int64_t queries =
      p.packed() ? p.Tq / std::max<std::int64_t>(1, p.sequence_count()) : p.Tq;
  return (queries + kernel.lanes - 1) / kernel.lanes * kernel.lanes;
}

}  // namespace

const FusedKernel* find_fused_kernel(const AttentionProblem& problem, SimdTarget target) {
  const FusedKernel* found = nullptr;
  for (const FusedKernel& kernel :
       problem.accumulate_f64 ? fused_kernels_f64() : fused_kernels_f32()) {
    if (kernel.target != target) continue;
    if (found == nullptr || (cpu_splits_wide_vectors() && filled_lanes(problem, kernel) * 10 <
                                                              filled_lanes(problem, *found) * 9)) {
      found = &kernel;
    }
  }
  return found;
}

FusedSplit split_fused(const AttentionProblem& p, const FusedKernel& kernel, int threads) {
  const std::int64_t block = std::int64_t{kernel.lanes} * kernel.max_vectors;
  const std::int64_t blocks = (p.Tq + block - 1) / block;  // of one head
  const std::int64_t real = p.accumulate_f64 ? sizeof(double) : sizeof(float);
  const std::int64_t fit = std::max<std::int64_t>(1, kUnitBytes / (block * (p.D + p.Dv) * real));
  const std::int64_t workers = worker_count(p.B * p.Hq * blocks, threads);
  const std::int64_t fair = p.B * p.Hq * blocks / (workers * kUnitsPerThread);
  const std::int64_t per_unit =
      std::clamp<std::int64_t>(fair, 1, std::max<std::int64_t>(1, std::min(fit, blocks)));
  FusedSplit split;
  if (p.packed()) {
    split.unit_queries = per_unit * block;
    split.units = (p.Tq / split.unit_queries + p.sequence_count()) * p.Hq;
  } else {
    const std::int64_t per_head = std::max<std::int64_t>(1, (blocks + per_unit - 1) / per_unit);
    split.unit_queries = std::max<std::int64_t>(1, (blocks + per_head - 1) / per_head) * block;
    split.units = p.B * p.Hq * ((p.Tq + split.unit_queries - 1) / split.unit_queries);
  }
  // Many short sequences: neighbours share lines of the cache, and lie in the prefetcher's way.
  if (split.unit_queries >= p.Tq) {
    split.group = std::clamp<std::int64_t>(split.units / (workers * kGroupsPerThread), 1, 8);
  }
  split.workspace =
      workspace_bytes(p, kernel, std::min(split.unit_queries, std::max<std::int64_t>(p.Tq, 1)));
  split.row_workspace = workspace_bytes(p, kernel, 1);
  return split;
}

std::int64_t fused_workspace(const AttentionProblem& p, const FusedSplit& split, int threads) {
  const std::int64_t chosen = p.stages.rows.has_value() ? p.stages.rows.dim(0) : 0;
  return worker_count(std::max(split.units, chosen), threads) *
         std::max(split.workspace, split.row_workspace);
}

void attention_fused(const AttentionProblem& p, const FusedKernel& kernel, const FusedSplit& split,
                     int threads, std::byte* workspace) {
  const std::int64_t groups = (split.units + split.group - 1) / split.group;
  parallel_for(groups, threads, [&](std::int64_t item, int worker) {
    const std::int64_t end = std::min((item + 1) * split.group, split.units);
    for (std::int64_t index = item * split.group; index < end; ++index) {
      // The last queries of a causal call see the most keys: they go first, and the small ones fill
      // what time is left.
      const FusedUnit unit = unit_at(p, split, p.causal ? split.units - 1 - index : index);
      if (unit.query_count > 0) kernel.run(p, unit, workspace + worker * split.workspace);
    }
  });
  const TensorView& rows = p.stages.rows;
  if (!rows.has_value()) return;
  parallel_for(rows.dim(0), threads, [&](std::int64_t n, int worker) {
    const auto index = [&](int c) {
      return load_integer(rows, n * rows.stride(0) + c * rows.stride(1));
    };
    const auto row_n = [&](const MutableTensorView& view) {
      return view.has_value() ? view.select(0, n) : view;
    };
    FusedUnit unit;
    unit.sequence = p.sequence_of(index(0), index(2));
    unit.head = index(1);
    unit.query_begin = index(2) - unit.sequence.query_begin;
    unit.query_count = 1;
    AttentionRow row;
    row.scores = row_n(p.stages.scores);
    row.softcapped = row_n(p.stages.softcapped);
    row.masked = row_n(p.stages.masked);
    row.weights = row_n(p.stages.weights);
    kernel.run_row(p, unit, row, workspace + worker * split.row_workspace);
  });
}

}  // namespace qkv
