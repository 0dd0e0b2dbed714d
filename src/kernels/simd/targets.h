#pragma once

// Which targets Highway compiles for. To be included before any of its headers.
// SSSE3 adds nothing to SSE4 here, AVX3_DL (VNNI, …) nothing to AVX3 where products are f32 (the
// rest asks the CPU itself), and SVE vectors have no size that the compiler knows, which arrays of
// accumulators need.

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <hwy/detect_targets.h>

#include "qkv/cpu.h"

namespace qkv {

// What SimdTarget::automatic means: the best target of this CPU, or the one that QKV_TARGET names
// (a name that cannot run here is ignored). Read once.
SimdTarget preferred_target();

}  // namespace qkv
