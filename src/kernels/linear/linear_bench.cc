// Linear maps on the shapes of the blocks, for every target of this CPU: prepared weights in each
// storage, and weights as they lie. GB/s counts the weights alone, which bound a single row.

#include <benchmark/benchmark.h>

#include <random>
#include <string>

#include "qkv/linear.h"

namespace qkv {
namespace {

struct Shape {
  const char* name;
  std::int64_t rows, in, out;
  bool channel_first;
};

constexpr Shape kShapes[] = {
    {"transformer_qkv_640", 640, 512, 1536, false}, {"transformer_out_640", 640, 512, 512, false},
    {"vit_qkv_197", 197, 768, 2304, false},         {"vit_mlp_up_197", 197, 768, 3072, false},
    {"vit_mlp_down_197", 197, 3072, 768, false},    {"gpt_qkv_1024", 1024, 768, 2304, false},
    {"vit_qkv_1576", 1576, 768, 2304, false},       {"decode_qkv_1", 1, 768, 2304, false},
    {"decode_head_1", 1, 768, 50257, false},        {"conv_20x20_128", 400, 128, 256, true},
    {"conv_20x20_512", 400, 512, 512, true},        {"conv_40x40_64", 1600, 64, 64, true},
    {"conv_40x40_256", 1600, 256, 512, true},
};

Tensor random_tensor(const Dims& shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (float& x : tensor.as<float>()) x = normal(random);
  return tensor;
}

struct Variant {
  const char* name;
  WeightStorage storage;
  bool prepared;
};

constexpr Variant kVariants[] = {
    {"f32", WeightStorage::f32, true},
    {"bf16", WeightStorage::bf16, true},
    {"i8", WeightStorage::i8, true},
    {"unprepared", WeightStorage::f32, false},
};

void run(benchmark::State& state, const Shape& s, const Variant& variant, SimdTarget target) {
  const auto shape = [&](std::int64_t width) {
    return s.channel_first ? Dims{width, s.rows} : Dims{s.rows, width};
  };
  const auto view = [&](auto&& t) { return s.channel_first ? t.view().transpose(0, 1) : t.view(); };
  const Tensor x = random_tensor(shape(s.in), 1), w = random_tensor({s.out, s.in}, 2);
  const Tensor b = random_tensor({s.out}, 3);
  Tensor y(DType::f32, shape(s.out));
  PreparedLinear prepared;
  if (variant.prepared) {
    prepared = PreparedLinear({w, b}, {.storage = variant.storage, .target = target});
  }
  for (auto _ : state) {
    if (variant.prepared) {
      prepared.forward(view(x), view(y));
    } else {
      linear_forward({w, b}, view(x), view(y), {.target = target});
    }
  }
  const auto rate = [&](double each) {
    return benchmark::Counter(each * static_cast<double>(state.iterations()),
                              benchmark::Counter::kIsRate);
  };
  state.counters["FLOP/s"] = rate(2.0 * static_cast<double>(s.rows * s.in * s.out));
  state.counters["weights B/s"] =
      rate(variant.prepared ? static_cast<double>(prepared.bytes())
                            : static_cast<double>(s.in * s.out) * sizeof(float));
}

[[maybe_unused]] const bool registered = [] {
  for (const Shape& shape : kShapes) {
    for (const SimdTarget target : simd_targets()) {
      if (target == SimdTarget::scalar) continue;
      for (const Variant& variant : kVariants) {
        const std::string name = std::string("linear/") + shape.name + "/" + variant.name + "/" +
                                 std::string(name_of(target));
        benchmark::RegisterBenchmark(name.c_str(), run, shape, variant, target)->UseRealTime();
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace qkv
