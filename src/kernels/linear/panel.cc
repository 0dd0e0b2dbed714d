#include "kernels/linear/panel.h"

#include <algorithm>

#include "base/parallel.h"
#include "kernels/linear/panel_workspace.h"
#include "kernels/rows.h"

namespace qkv {
namespace {

// Rows that a block of weights in the L2 cache meets before the next one comes. More where it has
// to be packed first.
constexpr std::int64_t kUnitRows = 96, kUnitRowsPacking = 384;
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

bool is_f64(const PanelKernel& kernel) {
  const std::span<const PanelKernel> all = panel_kernels_f64();
  return &kernel >= all.data() && &kernel < all.data() + all.size();
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
    // Vectors of pixels, evenly.
    const std::int64_t vectors = parts(p.run_rows, kernel.lanes);
    split.row_units = parts(vectors, kernel.tile_vectors);
    split.unit_rows = parts(vectors, split.row_units) * kernel.lanes;
    split.row_units = parts(p.run_rows, split.unit_rows);
  } else {
    runs = 1;
    const std::int64_t blocks = parts(p.call.rows, packing ? kUnitRowsPacking : kUnitRows);
    split.unit_rows =
        std::min(p.call.rows, multiples(parts(p.call.rows, blocks), kernel.tile_rows));
    split.row_units = parts(p.call.rows, split.unit_rows);
  }
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
  const std::int64_t run_rows = p.channels ? p.run_rows : p.call.rows;
  parallel_ranges(split.units, 0, split.threads, [&](std::int64_t item, int worker) {
    PanelUnit unit;
    unit.output_begin = item % split.output_units * split.unit_outputs;
    unit.output_end = std::min(unit.output_begin + split.unit_outputs, p.call.out);
    item /= split.output_units;
    unit.row_begin = item % split.row_units * split.unit_rows;
    unit.row_count = std::min(split.unit_rows, run_rows - unit.row_begin);
    unit.run = item / split.row_units;
    kernel.run(p, unit, workspace + worker * split.workspace);
  });
}

}  // namespace qkv
