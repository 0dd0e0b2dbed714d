#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/decode.cc"
// The list of targets goes first.
// clang-format off
#include "kernels/simd/targets.h"
#include <hwy/foreach_target.h>
// clang-format on

#include "kernels/attention/decode-inl.h"

#if HWY_ONCE
#include <cmath>

namespace qkv {

#define QKV_DECODE(name, where) \
  { SimdTarget::name, where::DecodeLoad<float>::N, &where::decode_run }

std::span<const DecodeKernel> decode_kernels() {
  static constexpr DecodeKernel kernels[] = {
#if HWY_TARGETS & HWY_AVX3
    QKV_DECODE(avx512, N_AVX3),
#endif
#if HWY_TARGETS & HWY_AVX2
    QKV_DECODE(avx2, N_AVX2),
#endif
#if HWY_TARGETS & HWY_SSE4
    QKV_DECODE(sse4, N_SSE4),
#endif
#if HWY_TARGETS & HWY_NEON
    QKV_DECODE(neon, N_NEON),
#endif
#if HWY_TARGETS & HWY_SCALAR
    QKV_DECODE(scalar, N_SCALAR),
#elif HWY_TARGETS & HWY_EMU128
    QKV_DECODE(scalar, N_EMU128),
#endif
  };
  return kernels;
}

const DecodeKernel* find_decode_kernel(SimdTarget target) {
  for (const DecodeKernel& kernel : decode_kernels()) {
    if (kernel.target == target) return &kernel;
  }
  return nullptr;
}

float decode_merge(const float* partial, std::int64_t stride, std::int64_t count, std::int64_t Dv,
                   float sink, float* out) noexcept {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLog2e = 1.44269504088896340735992468100189214f;
  constexpr float kLn2 = 0.693147180559945309417232121458176568f;
  const std::int64_t at = decode_padded(Dv);
  float largest = sink * kLog2e;
  bool any = false;
  const auto has_keys = [&](const float* part) { return part[at] != -kInfinity; };
  for (std::int64_t n = 0; n < count; ++n) {
    const float* part = partial + n * stride;
    if (!has_keys(part)) continue;
    any = true;
    if (!(part[at] <= largest)) largest = part[at];
  }
  std::fill_n(out, Dv, 0.0f);
  if (!any) return sink;
  float sum = sink == -kInfinity ? 0.0f : std::exp2(sink * kLog2e - largest);
  for (std::int64_t n = 0; n < count; ++n) {
    const float* part = partial + n * stride;
    if (!has_keys(part)) continue;
    const float factor = std::exp2(part[at] - largest);
    sum += factor * part[at + 1];
    for (std::int64_t c = 0; c < Dv; ++c) out[c] += factor * part[c];
  }
  for (std::int64_t c = 0; c < Dv; ++c) out[c] /= sum;
  // All that is seen may be -inf: then there is nothing to be relative to.
  return sum == 0 ? std::numeric_limits<float>::quiet_NaN() : (largest + std::log2(sum)) * kLn2;
}

}  // namespace qkv
#endif
