// One query over a cache, on the shapes that decoding is judged by. The rate is of bytes of the
// cache; `bench/compare` sets it against the machine's own bandwidth and against others.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/cached_attention.h"

namespace qkv {
namespace {

struct Shape {
  const char* name;
  std::int64_t Hq, Hkv, D, T;
};

constexpr Shape kShapes[] = {
    {"12x64_T1024", 12, 12, 64, 1024},       {"12x64_T8192", 12, 12, 64, 8192},
    {"12x64_T32768", 12, 12, 64, 32768},     {"32on8x128_T8192", 32, 8, 128, 8192},
    {"32on8x128_T32768", 32, 8, 128, 32768},
};

Tensor numbers(const Dims& shape) {
  Tensor x(DType::f32, shape);
  std::uint32_t state = 1;
  for (float& value : x.as<float>()) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1;
  }
  return x;
}

void run(benchmark::State& state, const Shape& s, KVStorage storage, KVCacheKind kind,
         SimdTarget target) {
  KVCacheConfig config;
  config.heads = s.Hkv;
  config.D = s.D;
  config.kind = kind;
  config.storage = storage;
  config.capacity = s.T;
  KVCache cache(config);
  const std::vector<SequenceId> ids = {cache.add()};
  const Tensor tokens = numbers({1, 1024, s.Hkv, s.D});
  for (std::int64_t t = 0; t < s.T; t += 1024) cache.append(ids[0], tokens, tokens);
  const Tensor q = numbers({1, s.Hq, 1, s.D});
  Tensor out(DType::f32, {1, s.Hq, 1, s.D});
  CachedAttentionOptions options;
  options.target = target;
  for (auto _ : state) cached_attention_forward(q, cache, 0, ids, out, options);
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * cache.usage().bytes_used);
}

[[maybe_unused]] const bool registered = [] {
  const auto add = [](const Shape& shape, KVStorage storage, KVCacheKind kind, SimdTarget target) {
    const std::string name = std::string("decode/") + shape.name + "/" +
                             std::string(name_of(storage)) + "/" + std::string(name_of(kind)) +
                             "/" + std::string(name_of(target));
    benchmark::RegisterBenchmark(name.c_str(), run, shape, storage, kind, target)->UseRealTime();
  };
  for (const Shape& shape : kShapes) {
    for (const SimdTarget target : simd_targets()) {
      if (target != SimdTarget::scalar) {
        add(shape, KVStorage::f32, KVCacheKind::contiguous, target);
      }
    }
    const SimdTarget best = simd_targets().front();
    for (const KVStorage storage : {KVStorage::f16, KVStorage::bf16, KVStorage::int8}) {
      add(shape, storage, KVCacheKind::contiguous, best);
    }
    add(shape, KVStorage::f32, KVCacheKind::paged, best);
  }
  return true;
}();

}  // namespace
}  // namespace qkv
