#pragma once

// Linear maps in 8-bit integers: weights scaled per output, x per row when it comes.
//
//   w[o, i] ≈ weight_scale[o]·q[o, i]        q in [-127, 127], weight_scale = max|w[o, :]| / 127
//   x[r, i] ≈ scale[r]·(b[r, i] - zero[r])   b in [0, 255], scale = (max(x, 0) - min(x, 0)) / 255
//
//   Σ_i x·w ≈ scale[r]·weight_scale[o]·(Σ_i b·q - zero[r]·Σ_i q)
//
// The integer sums are exact, whatever computes them, so that every target gives the same bits.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "qkv/tensor.h"

namespace qkv {

// So that no sum passes 2³¹: 255·127·in.
inline constexpr std::int64_t kMaxBytesIn = 65536;

// How a row of x became bytes.
struct ByteRow {
  float scale = 0;
  float factor = 0;  // 1 / scale
  std::int32_t zero = 0;
};

// Of a row whose smallest number is `low` ≤ 0 and whose largest is `high` ≥ 0. A row that is not
// finite gives NaN, as it would in floats.
inline ByteRow byte_row(float low, float high, bool finite) {
  constexpr float kSteps = 255, kTiny = 1e-30f;
  const float range = high - low;
  if (!finite || !(range <= std::numeric_limits<float>::max())) {
    return {std::numeric_limits<float>::quiet_NaN(), 0, 0};
  }
  if (range < kTiny) return {};
  const float factor = kSteps / range;
  // Rounded to even by adding and taking away what leaves no fraction: the same everywhere.
  constexpr float kMagic = 0x1.8p23f;
  const float zero = (-low * factor + kMagic) - kMagic;
  return {range / kSteps, factor, static_cast<std::int32_t>(zero)};
}

// A panel [steps of four i][width][4] of the outputs from `begin` on, with their scales and sums;
// zeros past the last output and past the last i.
void quantize_panel(const TensorView& weight, std::int64_t begin, std::int64_t width,
                    std::int8_t* panel, float* scales, std::int32_t* sums) noexcept;

}  // namespace qkv
