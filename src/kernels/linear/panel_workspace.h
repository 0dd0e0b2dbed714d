#pragma once

// What one worker of the panel kernel keeps in memory, laid out in a buffer that it is given.

#include <algorithm>
#include <cstdint>

#include "base/cpu.h"
#include "kernels/linear/panel.h"

namespace qkv {

// Steps of a sum that are done at a time. A panel's block of them stays in a core's second cache
// beside the rows that it meets, or that many values of pixels in the first, where all outputs of
// the panel meet them; but where a wide vector is long in being stored (f32 of AVX-512 on Zen 4),
// it pays to bring pixels from the second cache again rather than to put sums down. Blocks are of
// even size, so that none is short.
inline std::int64_t panel_depth(const PanelProblem& p, std::int64_t width) {
  const std::int64_t in = p.call.in;
  const bool slow_stores = cpu_splits_wide_vectors() && width >= 64;
  const std::int64_t most = !p.channels ? 768 : slow_stores ? 512 : 96;
  if (in <= most) return in;
  const std::int64_t blocks = (in + most - 1) / most;
  return (in + blocks - 1) / blocks;
}

template <typename Real>
struct PanelWorkspace {
  Real* sums;      // [rows or outputs of a panel] × [width]
  Real* bias;      // [width]
  Real* residual;  // [width]
  Real* panel;     // a block of weights, [depth][width], where they are not stored as Real
  Real* x;         // rows [unit_rows][in] unless they can be read in place, or pixels [in][width]
  Real* stage;     // for matrices that are transposed

  PanelWorkspace(const PanelProblem& p, std::int64_t width, std::int64_t unit_rows, void* memory) {
    auto* at = static_cast<std::byte*>(memory);
    std::int64_t used = kApart;
    const auto take = [&](Real*& array, std::int64_t count) {
      array = reinterpret_cast<Real*>(at + used);
      used += (count * static_cast<std::int64_t>(sizeof(Real)) + 63) / 64 * 64;
    };
    const std::int64_t depth = panel_depth(p, width);
    x_in_place = rows_in_place(p);
    const bool bytes_only = p.bytes != nullptr;
    const std::int64_t copied = p.channels ? width : x_in_place || bytes_only ? 0 : unit_rows;
    const bool stored = bytes_only || (p.panels != nullptr && p.storage == dtype_of<Real>);
    take(sums, (p.channels ? width : unit_rows) * width);
    take(bias, width);
    take(residual, width);
    take(panel, stored ? 0 : depth * width);
    // Bytes are made of a row at a time, which is padded to whole vectors.
    take(x, bytes_only ? p.call.in + width : copied * p.call.in);
    take(stage, bytes_only ? p.call.in : std::max(stored ? 0 : depth * width, copied * p.call.in));
    bytes = used + kApart;
  }

  // Every row dense, of Real, evenly apart, and where a Real may lie.
  static bool rows_in_place(const PanelProblem& p) {
    const TensorView& x = p.call.x;
    return !p.channels && p.runs == 1 && x.dtype() == dtype_of<Real> && x.stride(-1) == 1 &&
           reinterpret_cast<std::uintptr_t>(x.data()) % alignof(Real) == 0;
  }

  bool x_in_place;
  std::int64_t bytes;  // all together

 private:
  // Left free on either side: a CPU fetches lines past those that it is asked for, and would take
  // them from the core that works there.
  static constexpr std::int64_t kApart = 4096;
};

}  // namespace qkv
