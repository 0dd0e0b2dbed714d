#include "kernels/linear/panel.h"

#include <algorithm>

#include "base/cpu.h"
#include "base/parallel.h"
#include "kernels/linear/panel_workspace.h"
#include "kernels/rows.h"

namespace qkv {
namespace {

// Rows that a block of weights in the L2 cache meets before the next one comes. More where it has
// to be packed first.
constexpr std::int64_t kUnitRows = 96, kUnitRowsPacking = 384;
// Fewer rows than this read weights as fast as they come: there is no time to fetch others in.
constexpr std::int64_t kRowsAhead = 24;
// Bytes that stay in the first cache beside what goes past.
constexpr std::int64_t kFirstCache = 32 << 10;
// Enough units for each thread that none waits long for another.
constexpr std::int64_t kUnitsPerThread = 24;
// Multiplications that are done sooner than a thread is woken.
constexpr std::int64_t kSerial = 1 << 17;

// The step from row to row of a view, while dimension after dimension is looked at, the inner ones
// first: whether dimension d goes on with it.
bool goes_on(const TensorView& view, int d, std::int64_t rows, std::int64_t& step) {
  if (!view.has_value() || view.dim(d) == 1) return true;
  if (rows == 1) step = view.stride(d);
  return view.stride(d) == step * rows;
}

std::int64_t multiples(std::int64_t n, std::int64_t of) { return (n + of - 1) / of * of; }
std::int64_t parts(std::int64_t n, std::int64_t of) { return (n + of - 1) / of; }

std::int64_t workspace_bytes(const PanelProblem& p, const PanelKernel& kernel, bool f64,
                             std::int64_t rows) {
  return f64 ? PanelWorkspace<double>(p, kernel.width(), rows, nullptr).bytes
             : PanelWorkspace<float>(p, kernel.width(), rows, nullptr).bytes;
}

// Bytes of a packed panel.
std::int64_t panel_bytes(const PanelProblem& p, std::int64_t width) {
  if (p.bytes != nullptr) return p.bytes->steps * 4 * width;
  return p.call.in * width * static_cast<std::int64_t>(size_of(p.storage));
}

// Units of rows, of one run, that meet a panel one after the other while their part of x stays in a
// core's second cache: what comes from memory or a shared cache then serves all of them. Pixels go
// in a block for each thread, at least, since what a thread wrote it should read in the next
// product; and one by one, panel after panel, where they stay in the first cache.
std::int64_t units_of_block(const PanelProblem& p, const PanelSplit& split, std::int64_t width,
                            int threads) {
  const auto size = static_cast<std::int64_t>(p.bytes != nullptr ? 1 : size_of(p.call.x.dtype()));
  const std::int64_t unit = split.unit_rows * std::max<std::int64_t>(p.call.in, 1) * size;
  if (p.channels && unit <= kFirstCache) return 1;
  const std::int64_t room = cpu_second_cache() / 2 - panel_bytes(p, width);
  const std::int64_t most = std::max<std::int64_t>(1, room / unit);
  const std::int64_t least = p.channels ? worker_count(split.row_units, threads) : 1;
  return parts(split.row_units, std::max(parts(split.row_units, most), least));
}

bool is_f64(const PanelKernel& kernel) {
  const std::span<const PanelKernel> all = panel_kernels_f64();
  return &kernel >= all.data() && &kernel < all.data() + all.size();
}

// What a unit fetches: its share of the weights that come after its outputs, as one of `count`
// units that meet them one after the other; if it is alone, what comes after the steps at hand
// (bytes have but one block of these).
void look_ahead(const PanelProblem& p, std::int64_t width, std::int64_t count, std::int64_t index,
                PanelUnit& unit) {
  const std::byte* weights =
      p.bytes != nullptr ? reinterpret_cast<const std::byte*>(p.bytes->panels) : p.panels;
  const std::int64_t bytes = panel_bytes(p, width), all = parts(p.call.out, width) * bytes;
  if (weights == nullptr || unit.row_count < kRowsAhead || all <= cpu_second_cache() / 4) return;
  weights += p.first / width * bytes;
  if (p.bytes == nullptr && p.panel_width != width) return;  // packed for the other type
  const std::int64_t begin = unit.output_begin / width * bytes;
  const std::int64_t end = parts(unit.output_end, width) * bytes;
  std::int64_t from = end + index * (end - begin) / count;
  if (count == 1 && p.bytes == nullptr)
    from = begin + bytes / parts(p.call.in, panel_depth(p, width));
  if (from >= all) return;
  unit.ahead = weights + from;
  unit.ahead_bytes = std::min(all - from, (end - begin) / count);
}

// A run's blocks of rows one after the other; for each the panels; for each of these the rows.
PanelUnit unit_at(const PanelProblem& p, const PanelKernel& kernel, const PanelSplit& split,
                  std::int64_t item) {
  const std::int64_t of_run = split.row_units * split.output_units;
  PanelUnit unit;
  unit.run = item / of_run;
  item %= of_run;
  const std::int64_t first = item / (split.block_units * split.output_units) * split.block_units;
  const std::int64_t count = std::min(split.block_units, split.row_units - first);
  item -= first * split.output_units;
  unit.output_begin = item / count * split.unit_outputs;
  unit.output_end = std::min(unit.output_begin + split.unit_outputs, p.call.out);
  const std::int64_t row = first + item % count;
  if (p.channels) {
    // Vectors of pixels, evenly: one alone would wait for its own sums.
    const std::int64_t vectors = parts(p.run_rows, kernel.lanes);
    unit.row_begin = vectors * row / split.row_units * kernel.lanes;
    const std::int64_t end = vectors * (row + 1) / split.row_units * kernel.lanes;
    unit.row_count = std::min(end, p.run_rows) - unit.row_begin;
  } else {
    unit.row_begin = row * split.unit_rows;
    unit.row_count = std::min(split.unit_rows, p.call.rows - unit.row_begin);
  }
  look_ahead(p, kernel.width(), count, item % count, unit);
  return unit;
}

}  // namespace

const PanelKernel* find_panel_kernel(DType compute, SimdTarget target) {
  for (const PanelKernel& kernel :
       compute == DType::f64 ? panel_kernels_f64() : panel_kernels_f32()) {
    if (kernel.target == target) return &kernel;
  }
  return nullptr;
}

PanelProblem make_panel_problem(const LinearProblem& call) {
  PanelProblem p;
  p.call = call;
  p.run_rows = 1;
  for (int d = call.x.rank() - 2; d >= 0; --d) {
    if (!goes_on(call.x, d, p.run_rows, p.x_step) || !goes_on(call.y, d, p.run_rows, p.y_step) ||
        !goes_on(call.residual, d, p.run_rows, p.residual_step)) {
      break;
    }
    p.run_rows *= call.x.dim(d);
  }
  p.runs = p.run_rows > 0 ? call.rows / p.run_rows : 0;
  p.channels = call.y.stride(-1) != 1 && p.y_step == 1 && call.out > 1;
  return p;
}

PanelSplit split_panels(const PanelProblem& p, const PanelKernel& kernel, int threads) {
  PanelSplit split;
  const std::int64_t width = kernel.width(), panels = parts(p.call.out, width);
  if (p.call.rows == 0 || p.call.out == 0) return split;
  const bool packing = p.panels == nullptr && p.bytes == nullptr;
  std::int64_t runs = p.runs;
  if (p.channels) {
    const std::int64_t vectors = parts(p.run_rows, kernel.lanes);
    split.row_units = parts(vectors, kernel.tile_vectors);
    // As many for each thread, so that it has the same pixels in every product.
    const std::int64_t workers = worker_count(vectors, threads);
    if (runs % workers != 0 && split.row_units > workers) {
      split.row_units = std::min(multiples(split.row_units, workers), vectors);
    }
    split.unit_rows = parts(vectors, split.row_units) * kernel.lanes;
  } else {
    runs = 1;
    const std::int64_t blocks = parts(p.call.rows, packing ? kUnitRowsPacking : kUnitRows);
    split.unit_rows =
        std::min(p.call.rows, multiples(parts(p.call.rows, blocks), kernel.tile_rows));
    split.row_units = parts(p.call.rows, split.unit_rows);
  }
  split.block_units = units_of_block(p, split, width, threads);
  const double work = static_cast<double>(p.call.rows) * static_cast<double>(p.call.out) *
                      static_cast<double>(std::max<std::int64_t>(p.call.in, 1));
  if (work < static_cast<double>(kSerial)) threads = 1;
  // What is copied for a unit should serve several panels, if enough units remain; where nothing
  // is, small units balance best.
  const std::int64_t least = panels * split.row_units * runs;
  const std::int64_t wanted = kUnitsPerThread * worker_count(least, threads);
  const bool copied = p.bytes != nullptr ? false
                      : is_f64(kernel)   ? !PanelWorkspace<double>::rows_in_place(p)
                                         : !PanelWorkspace<float>::rows_in_place(p);
  const std::int64_t group =
      copied ? std::clamp<std::int64_t>(least / wanted, 1, panels) : std::int64_t{1};
  split.output_units = parts(panels, group);
  split.unit_outputs = parts(panels, split.output_units) * width;
  split.output_units = parts(p.call.out, split.unit_outputs);
  split.units = runs * split.row_units * split.output_units;
  split.threads = worker_count(split.units, threads);
  split.workspace = workspace_bytes(p, kernel, is_f64(kernel), split.unit_rows);
  return split;
}

void linear_panels(const PanelProblem& p, const PanelKernel& kernel, const PanelSplit& split,
                   std::byte* workspace) {
  if (p.bytes != nullptr) {
    // Evenly, in pieces that are worth a thread's time.
    const std::int64_t piece = std::max<std::int64_t>(1, (1 << 14) / (p.call.in + 1));
    parallel_ranges(parts(p.call.rows, piece), 0, split.threads,
                    [&](std::int64_t item, int worker) {
                      const std::int64_t begin = item * piece;
                      kernel.quantize(p, begin, std::min(begin + piece, p.call.rows),
                                      workspace + worker * split.workspace);
                    });
  }
  parallel_ranges(split.units, 0, split.threads, [&](std::int64_t item, int worker) {
    kernel.run(p, unit_at(p, kernel, split, item), workspace + worker * split.workspace);
  });
}

}  // namespace qkv
