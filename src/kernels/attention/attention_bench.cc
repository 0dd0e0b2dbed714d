// Attention alone, on the shapes of bench/shapes.json and for every target of this CPU. The rate is
// of useful operations; `bench/compare` sets it against the machine's own peak and against others.

#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "qkv/plan.h"

namespace qkv {
namespace {

struct Shape {
  const char* name;
  AttentionShape shape;
  bool causal;
  bool channel_first;
};

constexpr Shape kShapes[] = {
    {"transformer_B32_T20", {32, 8, 8, 20, 20, 64, 64}, false, false},
    {"vit_B1_N197", {1, 12, 12, 197, 197, 64, 64}, false, false},
    {"detector_N400_h2", {1, 2, 2, 400, 400, 32, 64}, false, true},
    {"gpt_T1024_causal", {1, 12, 12, 1024, 1024, 64, 64}, true, false},
    {"T1024", {1, 12, 12, 1024, 1024, 64, 64}, false, false},
    {"d128_32_on_8_T2048_causal", {1, 32, 8, 2048, 2048, 128, 128}, true, false},
};

Tensor random_tensor(const Dims& shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : tensor.as<float>()) x = normal(random);
  return tensor;
}

void run(benchmark::State& state, const Shape& s, SimdTarget target) {
  const AttentionShape& a = s.shape;
  const auto make = [&](std::int64_t heads, std::int64_t tokens, std::int64_t width) {
    return s.channel_first ? Dims{a.B, heads, width, tokens} : Dims{a.B, heads, tokens, width};
  };
  const auto view = [&](auto&& tensor) {
    return s.channel_first ? tensor.view().transpose(2, 3) : tensor.view();
  };
  const Tensor q = random_tensor(make(a.Hq, a.Tq, a.D), 1),
               k = random_tensor(make(a.Hkv, a.Tk, a.D), 2);
  const Tensor v = random_tensor(make(a.Hkv, a.Tk, a.Dv), 3);
  Tensor out(DType::f32, make(a.Hq, a.Tq, a.Dv));
  AttentionOptions options;
  if (s.causal) options.causal = Causal::aligned;
  const AttentionPlan plan = plan_attention(a, options, {target, 0});
  for (auto _ : state) attention_forward(plan, view(q), view(k), view(v), view(out), options);
  state.counters["FLOP/s"] =
      benchmark::Counter(static_cast<double>(plan.flops) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

[[maybe_unused]] const bool registered = [] {
  for (const Shape& shape : kShapes) {
    for (const SimdTarget target : simd_targets()) {
      if (target == SimdTarget::scalar) continue;
      const std::string name =
          std::string("attention/") + shape.name + "/" + std::string(name_of(target));
      benchmark::RegisterBenchmark(name.c_str(), run, shape, target)->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace qkv
