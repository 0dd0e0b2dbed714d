#include "base/cpu.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if defined(__unix__)
#include <unistd.h>
#endif

namespace qkv {
namespace {

#if defined(__x86_64__)

constexpr std::string_view kArchitecture = "x86-64";

// Not in every compiler's list for __builtin_cpu_supports: AMX. It needs the operating system's
// consent (XCR0 bits 17 and 18) as the other ones do, which the builtin checks for them.
bool amx_bit(unsigned bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsXsave = 1u << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> bit & 1u) == 0) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTiles = 3u << 17;
  return (low & kTiles) == kTiles;
}

// Bit of ECX that a leaf of CPUID gives.
bool cpuid_bit(unsigned leaf, unsigned bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(leaf, &a, &b, &c, &d) != 0 && (c >> bit & 1u) != 0;
}

std::vector<CpuFeature> find_features() {
  __builtin_cpu_init();
  return {
      {"sse4.2", __builtin_cpu_supports("sse4.2") != 0},
      {"avx", __builtin_cpu_supports("avx") != 0},
      {"avx2", __builtin_cpu_supports("avx2") != 0},
      {"fma", __builtin_cpu_supports("fma") != 0},
      // F16C is encoded as AVX is: the operating system has to save its registers.
      {"f16c", cpuid_bit(1, 29) && __builtin_cpu_supports("avx") != 0},
      {"bmi", __builtin_cpu_supports("bmi") != 0},
      {"bmi2", __builtin_cpu_supports("bmi2") != 0},
      {"lzcnt", cpuid_bit(0x80000001u, 5)},
      {"aes", __builtin_cpu_supports("aes") != 0},
      {"pclmul", __builtin_cpu_supports("pclmul") != 0},
      {"avx512f", __builtin_cpu_supports("avx512f") != 0},
      {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
      {"avx512cd", __builtin_cpu_supports("avx512cd") != 0},
      {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
      {"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
      {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
      {"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0},
      {"amx-tile", amx_bit(24)},
      {"amx-bf16", amx_bit(22)},
      {"amx-int8", amx_bit(25)},
  };
}

// The family of a CPU of AMD's; 0 for others.
unsigned amd_family() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0 || b != signature_AMD_ebx) return 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return 0;
  return (a >> 8 & 0xf) + (a >> 20 & 0xff);
}

// Family 19h: what of it has AVX-512 is Zen 4, with data paths of 256 bits.
bool find_split_vectors() { return amd_family() == 0x19 && __builtin_cpu_supports("avx512f") != 0; }

bool find_fast_caches() { return amd_family() >= 0x1a; }  // Zen 5 and later

// AVX-512 on f16 came with Sapphire Rapids. (A hypervisor may say anything of caches.)
bool find_fast_second_cache() {
  constexpr unsigned kF16 = 1u << 23;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx512f") != 0 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d & kF16) != 0;
}

// Three leaves of 16 characters each, padded with blanks or NUL.
std::string find_model() {
  constexpr unsigned kFirst = 0x80000002u;
  std::array<unsigned, 12> words{};
  for (unsigned i = 0; i < 3; ++i) {
    unsigned* w = words.data() + std::size_t{4} * i;
    if (__get_cpuid(kFirst + i, w, w + 1, w + 2, w + 3) == 0) return "";
  }
  std::array<char, sizeof(words) + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  return text.data();
}

#elif defined(__aarch64__)

constexpr std::string_view kArchitecture = "aarch64";

std::vector<CpuFeature> find_features() {
#if defined(__linux__)
  const unsigned long one = ::getauxval(AT_HWCAP), two = ::getauxval(AT_HWCAP2);
#ifndef HWCAP2_BF16
#define HWCAP2_BF16 (1UL << 14)
#endif
#ifndef HWCAP2_I8MM
#define HWCAP2_I8MM (1UL << 13)
#endif
  return {
      {"neon", (one & HWCAP_ASIMD) != 0},      {"fp16", (one & HWCAP_ASIMDHP) != 0},
      {"dotprod", (one & HWCAP_ASIMDDP) != 0}, {"sve", (one & HWCAP_SVE) != 0},
      {"sve2", (two & HWCAP2_SVE2) != 0},      {"bf16", (two & HWCAP2_BF16) != 0},
      {"i8mm", (two & HWCAP2_I8MM) != 0},
  };
#else
  return {{"neon", true}};  // part of the architecture
#endif
}

std::string find_model() { return ""; }
bool find_split_vectors() { return false; }
bool find_fast_caches() { return false; }
bool find_fast_second_cache() { return false; }

#else

constexpr std::string_view kArchitecture = "other";
std::vector<CpuFeature> find_features() { return {}; }
std::string find_model() { return ""; }
bool find_split_vectors() { return false; }
bool find_fast_caches() { return false; }
bool find_fast_second_cache() { return false; }

#endif

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// Linux' own words, where the CPU has none.
std::string model_from_proc() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    for (const std::string_view key : {"model name", "Model", "Hardware", "Processor"}) {
      const std::size_t colon = line.find(':');
      if (line.starts_with(key) && colon != std::string::npos)
        return trimmed(line.substr(colon + 1));
    }
  }
  return "";
}

// Bytes of the first core's cache of a level, without those for instructions, as Linux says; 0 if
// it does not. glibc's sysconf would give all of a socket's third level, of which a core of AMD's
// reaches a part.
std::int64_t cache_from_sys(int wanted) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::string type;
    int level = 0;
    std::int64_t kilobytes = 0;
    char unit = 0;
    if (!(std::ifstream(folder + "type") >> type) || !(std::ifstream(folder + "level") >> level) ||
        !(std::ifstream(folder + "size") >> kilobytes >> unit)) {
      continue;
    }
    if (level == wanted && type != "Instruction" && unit == 'K') return kilobytes << 10;
  }
  return 0;
}

std::vector<CpuCache> find_caches() {
  std::vector<CpuCache> caches;
  constexpr std::array<std::string_view, 3> kNames = {"L1d", "L2", "L3"};
  for (int level = 1; level <= 3; ++level) {
    const auto index = static_cast<std::size_t>(level - 1);
    std::int64_t bytes = cache_from_sys(level);
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    constexpr std::array<int, 3> kKeys = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                          _SC_LEVEL3_CACHE_SIZE};
    if (bytes == 0) bytes = ::sysconf(kKeys[index]);
#endif
    if (bytes > 0) caches.push_back({kNames[index], bytes});
  }
  return caches;
}

// 0 if the system does not tell.
std::int64_t cache_bytes(std::string_view name) {
  for (const CpuCache& cache : cpu_info().caches) {
    if (cache.name == name) return cache.bytes;
  }
  return 0;
}

// Whether QKV_CPU names this CPU; nothing if it names none.
std::optional<bool> is_tuned_as(std::string_view cpu) {
  const char* wanted = std::getenv("QKV_CPU");
  if (wanted == nullptr || *wanted == '\0') return std::nullopt;
  return cpu == wanted;
}

}  // namespace

const CpuInfo& cpu_info() {
  static const CpuInfo info = [] {
    CpuInfo found{kArchitecture, trimmed(find_model()), find_features(), find_caches()};
    if (found.model.empty()) found.model = model_from_proc();
    return found;
  }();
  return info;
}

std::int64_t cpu_second_cache() {
  static const std::int64_t bytes = cache_bytes("L2");
  return bytes;
}

std::int64_t cpu_near_cache(int cores) {
  // Others use the third one, too: three quarters of it are likely to be ours.
  static const std::int64_t third = cpu_has_fast_caches() ? cache_bytes("L3") / 4 * 3 : 0;
  return std::max(third, cpu_second_cache() * cores);
}

bool cpu_has(std::string_view feature) {
  const std::vector<CpuFeature>& all = cpu_info().features;
  return std::any_of(all.begin(), all.end(), [&](const CpuFeature& known) {
    return known.name == feature && known.present;
  });
}

bool cpu_has_fast_caches() {
  static const bool fast = is_tuned_as("zen5").value_or(find_fast_caches());
  return fast;
}

bool cpu_has_fast_second_cache() {
  static const bool fast =
      is_tuned_as("sapphire").value_or(find_fast_second_cache()) || cpu_has_fast_caches();
  return fast;
}

bool cpu_splits_wide_vectors() {
  static const bool splits = is_tuned_as("zen4").value_or(find_split_vectors());
  return splits;
}

}  // namespace qkv
