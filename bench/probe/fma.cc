// The FMA probe: twelve chains of multiply-adds, more than latency × ports of any CPU of today and
// few enough for 16 registers; compiled for each SIMD target by Highway.

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/probe/fma.cc"
#include <hwy/foreach_target.h>  // NOLINT: before highway.h
#include <hwy/highway.h>

#include "bench/probe/probe.h"
#include "bench/probe/together.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 12;

// FLOPs done; `sink` gets a number that depends on all of them.
double fma_loop(std::int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f * *sink);
  auto a = hn::Iota(d, 0), b = hn::Iota(d, 1), c = hn::Iota(d, 2), e = hn::Iota(d, 3),
       f = hn::Iota(d, 4), g = hn::Iota(d, 5), h = hn::Iota(d, 6), i = hn::Iota(d, 7),
       j = hn::Iota(d, 8), k = hn::Iota(d, 9), l = hn::Iota(d, 10), m = hn::Iota(d, 11);
  for (std::int64_t round = 0; round < rounds; ++round) {
    a = hn::MulAdd(a, factor, term);
    b = hn::MulAdd(b, factor, term);
    c = hn::MulAdd(c, factor, term);
    e = hn::MulAdd(e, factor, term);
    f = hn::MulAdd(f, factor, term);
    g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term);
    i = hn::MulAdd(i, factor, term);
    j = hn::MulAdd(j, factor, term);
    k = hn::MulAdd(k, factor, term);
    l = hn::MulAdd(l, factor, term);
    m = hn::MulAdd(m, factor, term);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(f, g)),
                           hn::Add(hn::Add(hn::Add(h, i), hn::Add(j, k)), hn::Add(l, m)));
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace qkv::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::bench {
namespace {

using Loop = double (*)(std::int64_t, float*);

struct TargetLoop {
  SimdTarget target;
  Loop loop;
};

constexpr TargetLoop kLoops[] = {
#if HWY_TARGETS & HWY_AVX3
    {SimdTarget::avx512, &N_AVX3::fma_loop},
#endif
#if HWY_TARGETS & HWY_AVX2
    {SimdTarget::avx2, &N_AVX2::fma_loop},
#endif
#if HWY_TARGETS & HWY_SSE4
    {SimdTarget::sse4, &N_SSE4::fma_loop},
#endif
#if HWY_TARGETS & HWY_NEON
    {SimdTarget::neon, &N_NEON::fma_loop},
#endif
#if HWY_TARGETS & HWY_SCALAR
    {SimdTarget::scalar, &N_SCALAR::fma_loop},
#elif HWY_TARGETS & HWY_EMU128
    {SimdTarget::scalar, &N_EMU128::fma_loop},
#endif
};

// What was compiled and can run here, best first.
std::vector<TargetLoop> runnable() {
  std::vector<TargetLoop> found;
  for (const SimdTarget target : simd_targets()) {
    for (const TargetLoop& entry : kLoops) {
      if (entry.target == target) found.push_back(entry);
    }
  }
  return found;
}

Loop find_loop(std::string_view wanted) {
  std::string known;
  for (const auto& [target, loop] : runnable()) {
    if (wanted.empty() || name_of(target) == wanted) return loop;
    known += (known.empty() ? "" : ", ") + std::string(name_of(target));
  }
  throw std::invalid_argument("fma_probe: target: expected one of " + known + ", found " +
                              std::string(wanted));
}

}  // namespace

std::vector<std::string> probe_targets() {
  std::vector<std::string> names;
  for (const auto& [target, loop] : runnable()) names.emplace_back(name_of(target));
  return names;
}

double fma_probe(int threads, std::string_view target) {
  constexpr std::int64_t kRounds = 400'000;  // 3 ms at 1.6 GHz: 6 cycles a round on two ports
  const Loop loop = find_loop(target);
  threads = threads > 0 ? threads : 1;
  std::vector<double> flops(static_cast<std::size_t>(threads));
  std::vector<float> sinks(static_cast<std::size_t>(threads), 1.0f);
  const double seconds = seconds_together(threads, [&](int t) {
    const auto i = static_cast<std::size_t>(t);
    flops[i] = loop(kRounds, &sinks[i]);
  });
  double all = 0;
  for (const double f : flops) all += f;
  return all / seconds * 1e-9;
}

}  // namespace qkv::bench
#endif  // HWY_ONCE
