#include "kernels/simd/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/row_kernels.cc"
#include "kernels/simd/targets.h"  // before any header of Highway's
//
#include <hwy/foreach_target.h>

#include "kernels/activation/activation-inl.h"
#include "kernels/conv/depthwise-inl.h"
#include "kernels/norm/norm-inl.h"

#if HWY_ONCE
namespace qkv {

#define QKV_ROW_KERNELS(name, where)                                                 \
  {                                                                                  \
    SimdTarget::name, &where::norm_lines, &where::activate_line, &where::gated_line, \
        &where::add_line, &where::depthwise_planes                                   \
  }

const RowKernels& row_kernels(SimdTarget target) {
  static constexpr RowKernels kernels[] = {
#if HWY_TARGETS & HWY_AVX3
    QKV_ROW_KERNELS(avx512, N_AVX3),
#endif
#if HWY_TARGETS & HWY_AVX2
    QKV_ROW_KERNELS(avx2, N_AVX2),
#endif
#if HWY_TARGETS & HWY_SSE4
    QKV_ROW_KERNELS(sse4, N_SSE4),
#endif
#if HWY_TARGETS & HWY_NEON
    QKV_ROW_KERNELS(neon, N_NEON),
#endif
#if HWY_TARGETS & HWY_SCALAR
    QKV_ROW_KERNELS(scalar, N_SCALAR),
#elif HWY_TARGETS & HWY_EMU128
    QKV_ROW_KERNELS(scalar, N_EMU128),
#endif
  };
  if (target == SimdTarget::automatic) target = preferred_target();
  for (const RowKernels& each : kernels) {
    if (each.target == target) return each;
  }
  return kernels[std::size(kernels) - 1];
}

}  // namespace qkv
#endif
