#include "base/cpu.h"

#include <gtest/gtest.h>

#include <set>

namespace qkv {
namespace {

TEST(Cpu, NamesAreUniqueAndAnswersAgree) {
  std::set<std::string_view> names;
  for (const CpuFeature& feature : cpu_info().features) {
    EXPECT_TRUE(names.insert(feature.name).second) << feature.name;
    EXPECT_EQ(cpu_has(feature.name), feature.present) << feature.name;
  }
  EXPECT_FALSE(cpu_has("no such feature"));
  EXPECT_FALSE(cpu_has(""));
}

// What a later set needs, the CPU has.
TEST(Cpu, LaterFeaturesComeWithEarlierOnes) {
  const auto implies = [](std::string_view later, std::string_view earlier) {
    EXPECT_TRUE(!cpu_has(later) || cpu_has(earlier)) << later << " without " << earlier;
  };
  implies("avx512bf16", "avx512f");
  implies("avx512vl", "avx512f");
  implies("avx512f", "avx2");
  implies("avx2", "avx");
  implies("f16c", "avx");
  implies("amx-bf16", "amx-tile");
  implies("sve2", "sve");
}

TEST(Cpu, CachesHaveASize) {
  for (const CpuCache& cache : cpu_info().caches) EXPECT_GT(cache.bytes, 0) << cache.name;
}

#if defined(__x86_64__) || defined(__aarch64__)
TEST(Cpu, KnowsItsArchitecture) {
  EXPECT_NE(cpu_info().architecture, "other");
  EXPECT_FALSE(cpu_info().features.empty());
}
#endif

}  // namespace
}  // namespace qkv
