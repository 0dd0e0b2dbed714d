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

// Whether a 512-bit operation takes this CPU as long as two of 256 bits (Zen 4): narrower vectors
// then cost nothing but instructions, and waste fewer lanes.
bool cpu_splits_wide_vectors();

}  // namespace qkv
