#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Something that a CPU may have and a kernel may use.
struct CpuFeature {
  std::string_view name;  // "avx2", as in GCC's -m flags; "neon", "dotprod", … on ARM
  bool present;           // in the CPU, and saved by the operating system
};

struct CpuCache {
  std::string_view name;  // "L1d", "L2", "L3"
  std::int64_t bytes;
};

struct CpuInfo {
  std::string_view architecture;  // "x86-64", "aarch64" or "other"
  std::string model;              // as the CPU calls itself; may be empty
  std::vector<CpuFeature> features;
  std::vector<CpuCache> caches;  // as far as the system tells
};

// This machine's. Found out once.
const CpuInfo& cpu_info();

// Whether this CPU has a feature; false for a name that is none of its architecture's.
bool cpu_has(std::string_view feature);

// Bytes of a core's second level of cache; 0 if the system does not tell.
std::int64_t cpu_second_cache();

// What kernels are tuned by. No bit of a result depends on it, and QKV_CPU (sapphire, zen4, zen5,
// or another word for none of them) says what to take this CPU for, so that each way is tested on
// any.

// Whether a core gets a line of 64 bytes from its second level of cache in each cycle (Zen 5;
// Sapphire Rapids and later).
bool cpu_has_fast_second_cache();

// Whether it also gets what is in the third without being told to fetch it (Zen 5).
bool cpu_has_fast_caches();

// Bytes in caches from which this CPU's own prefetchers bring them in time, so that a kernel need
// not ask for them: the second levels of so many cores, and the third one if it is fast.
std::int64_t cpu_near_cache(int cores);

// Whether a 512-bit operation takes this CPU as long as two of 256 bits (Zen 4): narrower vectors
// then cost nothing but instructions, and waste fewer lanes.
bool cpu_splits_wide_vectors();

}  // namespace qkv
