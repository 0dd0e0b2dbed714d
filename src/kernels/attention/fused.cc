#include "kernels/attention/fused.h"

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "base/element.h"
#include "base/parallel.h"
#include "kernels/attention/fused_workspace.h"

namespace qkv {
namespace {

// Queries and partial outputs of a unit should stay in a core's own cache while keys go past.
constexpr std::int64_t kUnitBytes = 192 << 10;
// With fewer keys, a unit is over before what the next one reads has come.
constexpr std::int64_t kFewKeys = 48;
// Enough units for each thread that none waits long for another.
constexpr std::int64_t kUnitsPerThread = 4;
// Blocks of queries in a unit that copies its keys and values, and in a piece of the last units.
constexpr std::int64_t kCopyBlocks = 8, kPieceBlocks = 2;
// The same for units that are short, and go in groups.
constexpr std::int64_t kGroupsPerThread = 32;

// Queries in a block of the kernel's, at most.
std::int64_t block_of(const FusedKernel& kernel) {
  return std::int64_t{kernel.lanes} * kernel.max_vectors;
}

std::int64_t workspace_bytes(const AttentionProblem& p, const FusedKernel& kernel,
                             std::int64_t queries, std::int64_t step_blocks) {
  const auto bytes = [&](auto real) {
    return FusedWorkspace<decltype(real)>(p, kernel.lanes, kernel.max_vectors, queries, step_blocks,
                                          kernel.whole_keys, nullptr)
        .bytes;
  };
  return p.accumulate_f64 ? bytes(double{}) : bytes(float{});
}

// Blocks of keys that go past at a time: several where the second cache feeds a core as fast as
// vectors want it, as many as half of it holds.
std::int64_t step_blocks_of(const AttentionProblem& p, const FusedKernel& kernel) {
  constexpr std::int64_t kMost = 4;
  const std::int64_t real = p.accumulate_f64 ? sizeof(double) : sizeof(float);
  if (!cpu_has_fast_second_cache() || kernel.lanes * real < 64) return 1;
  const std::int64_t room = cpu_second_cache() / 2 / (kFusedKeyBlock * real);
  return std::clamp<std::int64_t>(room / (p.D + p.Dv + block_of(kernel)), 1, kMost);
}

// Units are numbered head by head within a sequence: those that read the same keys and values
// follow each other, while these are in the cache. Sequence s of a packed batch gets the numbers
// from first_unit(s) on: a few more than it needs, so that no table has to be kept.
std::int64_t first_unit(const AttentionProblem& p, const FusedSplit& split, std::int64_t s) {
  const std::int64_t begin = load_integer(p.query_starts, s * p.query_starts.stride(0));
  return (begin / split.unit_queries + s) * p.Hq;
}

FusedUnit unit_at(const AttentionProblem& p, const FusedKernel& kernel, const FusedSplit& split,
                  std::int64_t index) {
  std::int64_t s = 0, of_head = 0;
  if (p.packed()) {
    std::int64_t high = p.sequence_count();
    while (high - s > 1) {
      const std::int64_t middle = s + (high - s) / 2;
      (first_unit(p, split, middle) <= index ? s : high) = middle;
    }
    const std::int64_t first = first_unit(p, split, s);
    of_head = (first_unit(p, split, s + 1) - first) / p.Hq;
    index -= first;
  } else {
    of_head = split.units / (p.B * p.Hq);
    s = index / (of_head * p.Hq);
    index %= of_head * p.Hq;
  }
  FusedUnit unit;
  unit.sequence = p.sequence(s);
  unit.head = index / of_head;
  unit.step_blocks = split.step_blocks;
  // A unit of one vector alone would wait for its own sums: it gets another from the unit before.
  const std::int64_t all = unit.sequence.query_count, whole = split.unit_queries;
  const auto begin = [&](std::int64_t i) {
    const std::int64_t even = std::min(i * whole, all);
    const bool lone = i > 0 && all > even && all - even <= kernel.lanes && whole > 2 * kernel.lanes;
    return lone ? even - kernel.lanes : even;
  };
  const std::int64_t i = index % of_head;
  unit.query_begin = begin(i);
  unit.query_count = begin(i + 1) - unit.query_begin;
  return unit;
}

// Whether keys or values are read where they lie, as far as that is known beforehand (see Operand):
// of the type that is computed with, and contiguous; along tokens only if nobody wants vectors of
// columns, and lines do not meet in the first cache.
bool lies_as_read(const AttentionProblem& p, const TensorView& view, bool by_vectors) {
  if (view.dtype() != (p.accumulate_f64 ? DType::f64 : DType::f32)) return false;
  if (view.stride(3) == 1) return true;
  return view.stride(2) == 1 && !by_vectors &&
         view.stride(3) * static_cast<std::int64_t>(size_of(view.dtype())) % 1024 != 0;
}

// Whether a unit makes its own copy of keys or values.
bool copies_keys(const AttentionProblem& p, const FusedKernel& kernel) {
  const bool by_rows = p.out.stride(3) == 1 && p.Dv % kernel.lanes == 0 && p.Dv >= 2 * kernel.lanes;
  return !lies_as_read(p, p.key, false) || !lies_as_read(p, p.value, by_rows);
}

// Of a sequence, on average.
std::int64_t queries_of(const AttentionProblem& p) {
  return p.packed() ? p.Tq / std::max<std::int64_t>(1, p.sequence_count()) : p.Tq;
}

// Lanes that so many queries take up, empty ones included.
std::int64_t filled_lanes(std::int64_t queries, const FusedKernel& kernel) {
  return (queries + kernel.lanes - 1) / kernel.lanes * kernel.lanes;
}

// Whether it pays to take the rest of a sequence's queries apart: there is more than that rest, and
// no copy of keys that either would need for itself.
bool has_rest_apart(const AttentionProblem& p, const FusedKernel& kernel,
                    const FusedKernel& narrower) {
  return queries_of(p) >= block_of(kernel) && !copies_keys(p, kernel) && !copies_keys(p, narrower);
}

// Of a unit's queries, the first ones that go by whole vectors. What is left fits into a vector of
// the other kernel; of few queries that is all of them, since a short block waits for its own sums.
std::int64_t whole_queries(std::int64_t queries, const FusedKernel& kernel,
                           const FusedKernel* narrower) {
  const std::int64_t rest = queries % kernel.lanes;
  if (narrower == nullptr || rest == 0 || rest > narrower->lanes) return queries;
  return queries < block_of(kernel) ? 0 : queries - rest;
}

// Whether all that a call reads and writes fits into caches that are near. It was most likely
// written or read a moment ago, and is there: fetching it would only take time.
bool fits_near(const AttentionProblem& p, int workers) {
  const auto size = static_cast<std::int64_t>(size_of(p.query.dtype()));
  return p.B * (p.Hq * p.Tq + p.Hkv * p.Tk) * (p.D + p.Dv) * size <= cpu_near_cache(workers);
}

// What a worker takes at once: some units, or a piece of one.
struct FusedItem {
  std::int64_t first, last;  // units
  std::int64_t piece = -1;
};

FusedItem item_at(const FusedSplit& split, std::int64_t index) {
  if (split.even > 0) {
    const std::int64_t items = split.items() / split.even, units = split.units / split.even;
    const std::int64_t before = index % items;
    const std::int64_t piece = std::max<std::int64_t>(before - (units - 1), -1);
    const std::int64_t unit = index / items * units + std::min(before, units - 1);
    return {unit, unit + 1, piece};
  }
  const std::int64_t whole = split.units - split.tail, groups = split.groups();
  if (index < groups) {
    return {index * split.group, std::min((index + 1) * split.group, whole)};
  }
  const std::int64_t unit = whole + (index - groups) / split.pieces;
  return {unit, unit + 1, (index - groups) % split.pieces};
}

FusedUnit piece_of(const FusedUnit& unit, const FusedKernel& kernel, const FusedSplit& split,
                   std::int64_t piece) {
  const std::int64_t even = (split.unit_queries + split.pieces - 1) / split.pieces;
  const std::int64_t most = filled_lanes(even, kernel);
  const std::int64_t before = piece * most;
  FusedUnit part = unit;
  part.query_begin += before;
  part.query_count = std::clamp<std::int64_t>(unit.query_count - before, 0, most);
  return part;
}

}  // namespace

const FusedKernel* find_fused_kernel(const AttentionProblem& problem, SimdTarget target) {
  const FusedKernel* found = nullptr;
  const std::int64_t queries = queries_of(problem);
  for (const FusedKernel& kernel :
       problem.accumulate_f64 ? fused_kernels_f64() : fused_kernels_f32()) {
    if (kernel.target != target) continue;
    if (found == nullptr ||
        (cpu_splits_wide_vectors() && !has_rest_apart(problem, *found, kernel) &&
         filled_lanes(queries, kernel) * 100 < filled_lanes(queries, *found) * 98)) {
      found = &kernel;
    }
  }
  return found;
}

const FusedKernel* find_narrower_kernel(const FusedKernel& kernel) {
  for (const auto& all : {fused_kernels_f32(), fused_kernels_f64()}) {
    const auto at = std::find_if(all.begin(), all.end(),
                                 [&](const FusedKernel& other) { return other.run == kernel.run; });
    if (at == all.end()) continue;
    return at + 1 != all.end() && at[1].target == kernel.target ? &at[1] : nullptr;
  }
  return nullptr;
}

FusedSplit split_fused(const AttentionProblem& p, const FusedKernel& kernel, int threads,
                       const FusedTuning& tuning) {
  const std::int64_t block = block_of(kernel);
  const std::int64_t blocks = (p.Tq + block - 1) / block;  // of one head
  const std::int64_t real = p.accumulate_f64 ? sizeof(double) : sizeof(float);
  // (Widths that do not fit are found by division: a plan may ask about any.)
  const std::int64_t fit = std::max<std::int64_t>(1, kUnitBytes / (block * real) / (p.D + p.Dv));
  const std::int64_t workers = worker_count(p.B * p.Hq * blocks, threads);
  const std::int64_t all = p.B * p.Hq * blocks;
  std::int64_t fair = workers == 1 ? all : all / (workers * kUnitsPerThread);
  // Each unit of these makes its own copy, which should serve more than a block.
  const bool copies = copies_keys(p, kernel);
  if (copies) fair = std::max(fair, std::min(kCopyBlocks, all / workers));
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
  // One thread should not have a whole unit left when the others are done.
  const std::int64_t piece = kPieceBlocks * block;
  if (workers > 1 && split.unit_queries > piece && !copies) {
    split.tail = std::min(split.units, workers);
    split.pieces = (split.unit_queries + piece - 1) / piece;
  }
  // Many short sequences: neighbours share lines of the cache, and lie in the prefetcher's way.
  if (split.unit_queries >= p.Tq) {
    const std::int64_t whole = split.units - split.tail;
    split.group = std::clamp<std::int64_t>(whole / (workers * kGroupsPerThread), 1, 8);
  }
  // A worker then has the same units in every call, and what it wrote.
  if (split.tail > 0 && split.group == 1 && !p.causal && !p.packed() &&
      split.units % workers == 0) {
    split.even = workers;
  }
  split.step_blocks = tuning.step_blocks > 0 ? tuning.step_blocks : step_blocks_of(p, kernel);
  const std::int64_t most = std::min(split.unit_queries, std::max<std::int64_t>(p.Tq, 1));
  split.workspace = workspace_bytes(p, kernel, most, split.step_blocks);
  const FusedKernel* narrower = tuning.rest_apart ? find_narrower_kernel(kernel) : nullptr;
  if (narrower != nullptr && has_rest_apart(p, kernel, *narrower)) {
    split.rest = narrower;
    split.workspace = std::max(
        split.workspace, workspace_bytes(p, *narrower, std::min(most, block), split.step_blocks));
  }
  split.row_workspace = workspace_bytes(p, kernel, 1, 1);
  return split;
}

int fused_threads(const AttentionProblem& p, int threads) noexcept {
  constexpr double kSerial = 1 << 16;  // products
  const double products = static_cast<double>(p.B) * static_cast<double>(p.Hq) *
                          static_cast<double>(p.Tq) * static_cast<double>(p.Tk) *
                          static_cast<double>(p.D + p.Dv);
  return products < kSerial ? 1 : threads;
}

std::int64_t fused_workspace(const AttentionProblem& p, const FusedSplit& split, int threads) {
  const std::int64_t chosen = p.stages.rows.has_value() ? p.stages.rows.dim(0) : 0;
  return worker_count(std::max(split.items(), chosen), threads) *
         std::max(split.workspace, split.row_workspace);
}

void attention_fused(const AttentionProblem& p, const FusedKernel& kernel, const FusedSplit& split,
                     int threads, std::byte* workspace) {
  // The last queries of a causal call see the most keys: they go first, and the small ones fill
  // what time is left.
  const auto take = [&](std::int64_t index) {
    return unit_at(p, kernel, split, p.causal ? split.units - 1 - index : index);
  };
  const auto run = [&](const FusedUnit& unit, const FusedUnit* next, int worker) {
    std::byte* memory = workspace + worker * split.workspace;
    const std::int64_t whole = whole_queries(unit.query_count, kernel, split.rest);
    if (whole == unit.query_count) {
      if (whole > 0) kernel.run(p, unit, next, memory);
      return;
    }
    FusedUnit part = unit;
    part.query_count = whole;
    if (whole > 0) kernel.run(p, part, std::exchange(next, nullptr), memory);
    part.query_begin += whole;
    part.query_count = unit.query_count - whole;
    split.rest->run(p, part, next, memory);
  };
  // Units of unequal size balance best if all workers take them from one queue.
  const bool ranges = !p.causal;
  const int workers = worker_count(split.items(), threads);
  const bool ahead = p.Tk >= kFewKeys && !fits_near(p, workers);
  const std::int64_t shared = split.even > 0 ? 0 : split.items() - (ranges ? split.groups() : 0);
  const std::int64_t whole = split.even > 0 ? split.units : split.units - split.tail;
  parallel_ranges(split.items(), shared, threads, [&](std::int64_t index, int worker) {
    const FusedItem item = item_at(split, index);
    FusedUnit unit = take(item.first);
    if (item.piece >= 0) return run(piece_of(unit, kernel, split, item.piece), nullptr, worker);
    for (std::int64_t n = item.first; n < item.last; ++n) {
      // Of a range, what most likely follows is known. Else others have taken as much meanwhile.
      const bool inside = n + 1 < item.last;
      const std::int64_t after = inside || ranges ? n + 1 : item.first + workers * split.group;
      const bool known = (inside || ahead) && after < whole;
      FusedUnit next;
      if (known) next = take(after);
      run(unit, ahead && known ? &next : nullptr, worker);
      unit = next;
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
