#pragma once

// The decode kernel as an operator runs it: rows, chunks, threads, and the merge.

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/decode.h"

namespace qkv {

// Where the keys of a problem lie.
class DecodeKeys {
 public:
  KVStorage storage = KVStorage::f32;
  std::int64_t key_stride = 0, value_stride = 0;  // between tokens that follow each other

  virtual ~DecodeKeys() = default;
  // The runs of positions [keys.begin, keys.end) of key head h of batch entry b, of which there are
  // at most max_runs(length); returns their number.
  virtual std::int64_t runs(std::int64_t b, std::int64_t h, KeyRange keys,
                            DecodeRun* to) const noexcept = 0;
  virtual std::int64_t max_runs(std::int64_t length) const noexcept = 0;
};

// Whether decode can do it: one range of keys a query, nothing asked for but output and LSE.
bool decode_can(const AttentionProblem& problem) noexcept;

// Keys of a chunk. A function of Tk alone, so that bits depend on nothing else.
std::int64_t decode_chunk(std::int64_t Tk) noexcept;

struct DecodeSplit {
  std::int64_t rows = 0;    // of a key head: queries of all heads that share it
  std::int64_t chunk = 0;   // keys
  std::int64_t chunks = 0;  // of a key head
  std::int64_t units = 0;
  std::int64_t workspace = 0;  // bytes, for all workers
};
DecodeSplit split_decode(const AttentionProblem& problem, std::int64_t max_runs, int threads);

// Runs it all; the problem's own key and value are not looked at. `workspace` is aligned to 64.
void run_decode(const AttentionProblem& problem, const DecodeKeys& keys, const DecodeKernel& kernel,
                const DecodeSplit& split, int threads, std::byte* workspace);

}  // namespace qkv
