#pragma once

// What this machine can do right now: the limits that a benchmark is judged by, measured beside it.

#include <string>
#include <string_view>
#include <vector>

namespace qkv::bench {

// Those of simd_targets() that there is a probe for: "avx512", "avx2", "sse4", "neon"; best first.
std::vector<std::string> probe_targets();

// f32 multiply-adds of a SIMD target ("": the best), 2 FLOPs each, in GFLOP/s of all threads
// together. Takes about 3 ms. Throws std::invalid_argument on a target that is not in the list.
double fma_probe(int threads, std::string_view target = "");

// Reads from memory that is in no cache, in GB/s of all threads together. About 10 ms; the first
// call also has to write 256 MB.
double bandwidth_probe(int threads);

}  // namespace qkv::bench
