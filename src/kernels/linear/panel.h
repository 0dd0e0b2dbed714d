#pragma once

// The vectorised linear map: a matrix product on panels of weights, with all that follows it.
//
// Weights lie in panels of `width` outputs (as many as fill the registers), [panel][i][width], so
// that each step of a sum over i reads a dense line. They are packed once (PreparedLinear), or
// block by block when they are used. A tile of accumulators is rows × vectors:
//
//   rows       lanes are outputs; x is read by scalar broadcast where it lies
//   channels   lanes are rows of x (the pixels of a channel-first image), read where they lie or
//              packed [i][lanes] by a unit; weights are read by scalar broadcast from their panels
//
// Every sum is one chain of multiply-adds over i, from the first to the last: its bits depend on
// nothing but its own row of x, its weights, and the target.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/linear/bytes.h"
#include "kernels/linear/linear.h"
#include "qkv/cpu.h"

namespace qkv {

// Weights and rows of x in bytes (see bytes.h), in the place of panels of floats.
struct PanelBytes {
  const std::int8_t* panels = nullptr;
  const float* weight_scales = nullptr;       // [outputs of all panels]
  const std::int32_t* weight_sums = nullptr;  // the same
  std::uint8_t* x = nullptr;                  // [rows][stride], as PanelKernel::quantize made it
  ByteRow* rows = nullptr;                    // [rows]
  std::int64_t steps = 0;                     // of four inputs each
  std::int64_t stride = 0;                    // of x: whole vectors
  bool vnni = false;                          // the CPU has what AVX-512 alone does not promise
};

struct PanelProblem {
  LinearProblem call;                 // its weight is used if there are no panels
  const std::byte* panels = nullptr;  // packed ones, or none
  DType storage = DType::f32;         // of the panels
  std::int64_t panel_width = 0;
  // Of the outputs in the panels, the one that y begins with: any with `channels`, else 0.
  std::int64_t first = 0;

  // Rows come in runs, within which x, y and residual each have one step from row to row.
  std::int64_t runs = 1, run_rows = 0;
  std::int64_t x_step = 0, y_step = 0, residual_step = 0;
  bool channels = false;

  const PanelBytes* bytes = nullptr;  // or none. Not with `channels`
};

// A piece of work: rows of one run, all or some outputs. In `rows` mode all rows are one run if
// their steps allow it, and else each row is found by itself, whatever the runs.
struct PanelUnit {
  std::int64_t run = 0, row_begin = 0, row_count = 0;
  std::int64_t output_begin = 0, output_end = 0;  // begins at a panel, if `first` does
  // Weights that this thread is likely to need soon, fetched meanwhile.
  const std::byte* ahead = nullptr;
  std::int64_t ahead_bytes = 0;
};

// The kernel as compiled for one SIMD target and f32 or f64.
struct PanelKernel {
  SimdTarget target;
  int lanes, tile_vectors, tile_rows;
  // Packs outputs [begin, begin + width) of a [out, in] matrix as a panel [in][width] of the
  // matrix' own dtype, zeros past its last output.
  void (*pack)(const TensorView& weight, std::int64_t begin, void* panel) noexcept;
  void (*run)(const PanelProblem& problem, const PanelUnit& unit, void* workspace) noexcept;
  // Rows [begin, end) of x into problem.bytes->x and rows; null for f64.
  void (*quantize)(const PanelProblem& problem, std::int64_t begin, std::int64_t end,
                   void* workspace) noexcept;
  std::int64_t width() const noexcept { return std::int64_t{lanes} * tile_vectors; }
};

// The targets that were compiled, the best one first; not all of them may run on this CPU.
std::span<const PanelKernel> panel_kernels_f32();
std::span<const PanelKernel> panel_kernels_f64();

// The kernel of a target that computes in f32 or f64; null if this build has none.
const PanelKernel* find_panel_kernel(DType compute, SimdTarget target);

// Finds the runs of a problem, and which lanes suit it.
PanelProblem make_panel_problem(const LinearProblem& call);

// How a problem is cut into units, and what they need.
struct PanelSplit {
  std::int64_t row_units = 0, unit_rows = 0;        // of a run
  std::int64_t output_units = 0, unit_outputs = 0;  // the latter a multiple of the width
  // Rows that meet panel after panel before the next ones come: units of them, that share a panel
  // one after the other while x stays near.
  std::int64_t block_units = 0;
  std::int64_t units = 0;
  std::int64_t workspace = 0;  // bytes for one worker, a multiple of 64
  int threads = 1;             // that have something to do
};
PanelSplit split_panels(const PanelProblem& problem, const PanelKernel& kernel, int threads);

// Runs it all. `workspace` has split.workspace bytes for each of split.threads, aligned to 64.
void linear_panels(const PanelProblem& problem, const PanelKernel& kernel, const PanelSplit& split,
                   std::byte* workspace);

}  // namespace qkv
