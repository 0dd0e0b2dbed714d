#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "qkv/export.h"

namespace qkv {

// The vector instructions that a kernel is compiled for. A kernel exists once for each; which one
// runs is decided when the program runs.
enum class SimdTarget : std::uint8_t {
  automatic,  // the best one of this CPU, or the one that the environment's QKV_TARGET names
  scalar,     // what every CPU has
  sse4,
  avx2,    // with FMA and F16C
  avx512,  // F, BW, CD, DQ, VL
  neon,
};

QKV_API std::string_view name_of(SimdTarget target) noexcept;

// The targets that this build has and this CPU can run, the best one first.
QKV_API const std::vector<SimdTarget>& simd_targets();

}  // namespace qkv
