#pragma once

// Attention of a few queries over many keys, at the speed of memory.
//
// Vector lanes run along D: a key is read once, where it lies, for all rows (queries of all heads
// that share it), and numbers of 16 or 8 bits are widened on the way. Keys are cut into chunks at
// fixed positions, so that one head keeps all cores busy; each gives, for each row,
//
//   m = max s_j      l = Σ 2^(s_j - m)      o = Σ 2^(s_j - m)·v_j        s in units of ln 2
//
// (m is -inf only where there is no key),
//
// and decode_merge puts the parts together in the order of their positions. A row's numbers depend
// on its own keys and their positions alone: not on other rows, nor on where pages begin, nor on
// threads.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"
#include "qkv/cpu.h"
#include "qkv/kv_cache.h"

namespace qkv {

inline constexpr std::int64_t kDecodeRows = 32;     // whose scores are there at a time
inline constexpr std::int64_t kDecodePadding = 16;  // floats: rows and chunks are multiples of it

// Positions [begin, end), whose keys lie one after the other, from that of `begin` on. Scales are
// null unless numbers are int8.
struct DecodeRun {
  const void *key = nullptr, *value = nullptr;
  const float *key_scale = nullptr, *value_scale = nullptr;
  std::int64_t begin = 0, end = 0;
};

// A chunk of keys for all rows of a key head.
struct DecodeUnit {
  // Positions, multiples of kDecodePadding; length is at most kDecodeChunkMost.
  std::int64_t begin = 0, length = 0;
  std::span<const DecodeRun> runs;  // of the chunk; ascending, without gaps
  KVStorage storage = KVStorage::f32;
  std::int64_t D = 0, Dv = 0, key_stride = 0,
               value_stride = 0;  // strides between tokens, in numbers
  std::int64_t rows = 0;
  const float* query = nullptr;             // [rows, padded D], zeros behind D
  const KeyRange* visible = nullptr;        // [rows]; within the runs, or empty
  const float* slopes = nullptr;            // [rows], alibi·log2(e), or null
  const std::int64_t* positions = nullptr;  // [rows], with slopes
  // The score in units of ln 2 is q·k or, if softcap > 0, softcap·tanh(q·k).
  float softcap = 0;
  float* scores = nullptr;  // scratch: decode_scratch(rows, length) floats
  // Scratch for int8, on AVX-512 with VNNI: decode_integers(rows, D, Dv) bytes. Null where the CPU
  // has no such instructions, or D or Dv is above kDecodeIntegersMost.
  std::byte* integers = nullptr;
  float* partial = nullptr;  // result: rows of decode_partial(Dv) floats: o, m, l
};

constexpr std::int64_t decode_padded(std::int64_t n) {
  return (n + kDecodePadding - 1) / kDecodePadding * kDecodePadding;
}
constexpr std::int64_t decode_partial(std::int64_t Dv) {
  return decode_padded(Dv) + kDecodePadding;  // m and l are the first two behind o
}
constexpr std::int64_t decode_scratch(std::int64_t rows, std::int64_t length) {
  return std::min(rows, kDecodeRows) * length;
}

// For each of up to kDecodeRows rows: a query as words and bytes, and three sums for each column.
constexpr std::int64_t decode_whole_bytes(std::int64_t n) { return (n + 63) / 64 * 64; }
constexpr std::int64_t decode_integers(std::int64_t rows, std::int64_t D, std::int64_t Dv) {
  return std::min(rows, kDecodeRows) * (3 * decode_whole_bytes(D) + 3 * 4 * decode_whole_bytes(Dv));
}
// More would not fit: into 32 bits products of up to 2^15·127, into caches the sums.
inline constexpr std::int64_t kDecodeIntegersMost = 512;
inline constexpr std::int64_t kDecodeChunkMost = 2048;  // keys

struct DecodeKernel {
  SimdTarget target;
  int lanes;
  void (*run)(const DecodeUnit& unit);
};

// The targets that were compiled, the best one first; not all of them may run on this CPU.
std::span<const DecodeKernel> decode_kernels();
const DecodeKernel* find_decode_kernel(SimdTarget target);

// out[i] = Σ o / Σ l over `count` parts, part n at partial + n·stride; returns the log-sum-exp
// (natural). `sink` is natural, too; -inf is none. Without a key, out is 0 and the result `sink`.
float decode_merge(const float* partial, std::int64_t stride, std::int64_t count, std::int64_t Dv,
                   float sink, float* out) noexcept;

}  // namespace qkv
