#pragma once

// The vectorised kernels for what stands between products: norms, activations, sums, the depthwise
// convolution. On dense lines of f32; who calls them has seen to that. They are one table, so that
// Highway's headers are compiled for them once.

#include <cstdint>

#include "qkv/activation.h"
#include "qkv/cpu.h"

namespace qkv {

// y = (x - m)·weight / √(v + eps) + bias over n ≥ 1 elements, as in kernels/norm/norm.h. Sums and
// result in f32.
struct NormLines {
  std::int64_t n = 0;
  const float* weight = nullptr;  // [n], or null: 1
  const float* bias = nullptr;    // [n], or null: 0
  float eps = 0;
  bool rms = false;  // m = 0
};

// y = 3×3 convolution of x with its taps, padding 1, + its bias; or y + that: of some planes, as in
// kernels/conv/depthwise.h. Strides are of lines; steps are from plane to plane.
struct DepthwisePlanes {
  std::int64_t count = 0, height = 0, width = 0;
  const float* x = nullptr;
  std::int64_t x_step = 0, x_stride = 0;
  const float* taps = nullptr;  // [count][9]
  const float* bias = nullptr;  // [count], or null: 0
  bool accumulate = false;
  float* y = nullptr;  // not x
  std::int64_t y_step = 0, y_stride = 0;
};
// Numbers that depthwise needs to work: so many lines of these.
inline constexpr std::int64_t kDepthwiseLines = 8;
constexpr std::int64_t depthwise_padded(std::int64_t width) { return (width + 7) / 8 * 8 + 8; }

struct RowKernels {
  SimdTarget target;
  // `rows` rows, strides in elements. y may be x.
  void (*norm)(const NormLines& norm, const float* x, std::int64_t x_stride, std::int64_t rows,
               float* y, std::int64_t y_stride) noexcept;
  // Element by element, n of them; y may be an input.
  void (*activate)(Activation activation, const float* x, std::int64_t n, float* y) noexcept;
  void (*gated)(Activation activation, const float* gate, const float* x, std::int64_t n,
                float* y) noexcept;
  void (*add)(const float* x, const float* b, std::int64_t n, float* y) noexcept;
  void (*depthwise)(const DepthwisePlanes& planes, float* scratch) noexcept;
};

// Those of a target that this build has (automatic: the preferred one).
const RowKernels& row_kernels(SimdTarget target = SimdTarget::automatic);

}  // namespace qkv
