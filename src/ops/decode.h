#pragma once

// The decode kernel as an operator runs it: rows, chunks, threads, and the merge.

#include <cstdint>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/decode.h"

namespace qkv {

// Where the keys of a problem lie.
class DecodeKeys {
 public:
  KVStorage storage = KVStorage::f32;
  std::int64_t key_stride = 0, value_stride = 0;  // between tokens that follow each other
  std::int64_t page_tokens = kOnePage;            // runs end at multiples of it
  static constexpr std::int64_t kOnePage = std::numeric_limits<std::int64_t>::max();

  virtual ~DecodeKeys() = default;
  // The runs of positions [keys.begin, keys.end) of key head h of batch entry b; returns their
  // number.
  virtual std::int64_t runs(std::int64_t b, std::int64_t h, KeyRange keys,
                            DecodeRun* to) const noexcept = 0;
};

// Whether decode can do it: sums in f32, and one range of keys a query. Of the stages it gives LSE.
bool decode_can(const AttentionProblem& problem) noexcept;

// Whether automatic means decode for every sequence of the problem, or for some. A function of each
// sequence's own lengths, so that its bits do not depend on what shares its batch.
enum class DecodeChoice : std::uint8_t { none, some, all };
DecodeChoice choose_decode(const AttentionProblem& problem) noexcept;

// Keys of a chunk, for a sequence of that many. A function of nothing else, for the same reason.
std::int64_t decode_chunk(std::int64_t key_length) noexcept;

struct DecodeSplit {
  std::int64_t rows = 0;       // of a key head: queries of all heads that share it
  std::int64_t chunk = 0;      // keys, the longest
  std::int64_t max_runs = 0;   // of a chunk
  std::int64_t units = 0;      // chunks of all key heads and batch entries
  std::int64_t workspace = 0;  // bytes, for all workers
};
DecodeSplit split_decode(const AttentionProblem& problem, std::int64_t page_tokens, int threads);

// Output and LSE; the problem's own key and value are not looked at. `workspace` is aligned to 64.
void run_decode(const AttentionProblem& problem, const DecodeKeys& keys, const DecodeKernel& kernel,
                const DecodeSplit& split, int threads, std::byte* workspace);

// The keys of a problem that has them as views. Where D is not innermost, or elements are not
// aligned, the kernel reads a copy.
class PlainKeys : public DecodeKeys {
 public:
  explicit PlainKeys(const AttentionProblem& problem);
  std::int64_t runs(std::int64_t b, std::int64_t h, KeyRange keys,
                    DecodeRun* to) const noexcept override;

 private:
  Tensor key_copy_, value_copy_;
  TensorView key_, value_;
};

}  // namespace qkv
