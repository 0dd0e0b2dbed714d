#include "kernels/simd/targets.h"

#include <array>
#include <cstdlib>
#include <string>

#include "base/cpu.h"
#include "qkv/cpu.h"

namespace qkv {
namespace {

// What Highway's targets assume, in GCC's words.
bool cpu_can(SimdTarget target) {
  const auto all = [](auto... features) { return (cpu_has(features) && ...); };
  switch (target) {
    case SimdTarget::avx512:
      if (!all("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")) return false;
      [[fallthrough]];
    case SimdTarget::avx2:
      if (!all("avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt")) return false;
      [[fallthrough]];
    case SimdTarget::sse4: return all("sse4.2", "aes", "pclmul");
    case SimdTarget::neon: return all("neon");
    default: return true;
  }
}

std::vector<SimdTarget> find_targets() {
  std::vector<SimdTarget> found;
  for (const SimdTarget target : {
#if HWY_TARGETS & HWY_AVX3
         SimdTarget::avx512,
#endif
#if HWY_TARGETS & HWY_AVX2
             SimdTarget::avx2,
#endif
#if HWY_TARGETS & HWY_SSE4
             SimdTarget::sse4,
#endif
#if HWY_TARGETS & HWY_NEON
             SimdTarget::neon,
#endif
#if HWY_TARGETS & (HWY_EMU128 | HWY_SCALAR)
             SimdTarget::scalar,
#endif
       }) {
    if (cpu_can(target)) found.push_back(target);
  }
  return found;
}

constexpr std::array kNames = {"automatic", "scalar", "sse4", "avx2", "avx512", "neon"};

}  // namespace

std::string_view name_of(SimdTarget target) noexcept {
  return kNames[static_cast<std::size_t>(target)];
}

const std::vector<SimdTarget>& simd_targets() {
  static const std::vector<SimdTarget> targets = find_targets();
  return targets;
}

SimdTarget preferred_target() {
  static const SimdTarget preferred = [] {
    const char* name = std::getenv("QKV_TARGET");
    for (const SimdTarget target : simd_targets()) {
      if (name != nullptr && name_of(target) == name) return target;
    }
    return simd_targets().front();
  }();
  return preferred;
}

}  // namespace qkv
