#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "qkv/attention.h"
#include "qkv/cpu.h"
#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// The keys and values of tokens that a decoder has seen, for all of its layers, so that a new token
// costs its own projections and one pass over what is kept here.

// Where tokens lie.
//   contiguous  each sequence in one piece of `capacity` tokens, appended in place
//   paged       in pages of `page_tokens` tokens from one pool; forked sequences share the pages of
//               what they have in common, and a page is copied when one of them writes to it
//   windowed    each sequence in a ring of `capacity` tokens, of which every query sees the last
//               `window`; older ones are overwritten
enum class KVCacheKind : std::uint8_t { contiguous, paged, windowed };

// How numbers are kept. int8: x ≈ scale·n with |n| ≤ 127 and, for every token and head, one f32
// scale = max|x| / 127. A row that holds NaN or infinity comes back as NaN.
enum class KVStorage : std::uint8_t { f32, f16, bf16, int8 };

QKV_API std::string_view name_of(KVCacheKind kind) noexcept;   // "contiguous", …
QKV_API std::string_view name_of(KVStorage storage) noexcept;  // "f32", …

struct KVCacheConfig {
  std::int64_t layers = 1;
  std::int64_t heads = 1;  // Hkv
  std::int64_t D = 0;
  std::int64_t Dv = 0;  // 0: D
  KVCacheKind kind = KVCacheKind::contiguous;
  KVStorage storage = KVStorage::f32;
  // Tokens: of one sequence (contiguous), of its ring (windowed: at least `window`; more allows to
  // append capacity - window + 1 tokens at once), or of all sequences together (paged; rounded up
  // to whole pages).
  std::int64_t capacity = 0;
  std::int64_t sequences = 1;     // contiguous, windowed: how many at a time. paged: any number
  std::int64_t page_tokens = 64;  // paged: a multiple of 16
  std::int64_t window = 0;        // windowed: keys that a query sees, itself included

  friend bool operator==(const KVCacheConfig&, const KVCacheConfig&) = default;
};

// A sequence of a cache. Numbers are not used again: one that was released is refused.
using SequenceId = std::int64_t;

struct KVCacheUsage {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;        // of all sequences; shared ones count for each
  std::int64_t pages = 0;         // contiguous, windowed: one a sequence
  std::int64_t pages_used = 0;    // by a sequence or a snapshot
  std::int64_t pages_free = 0;    // pages = pages_used + pages_free
  std::int64_t pages_shared = 0;  // of those used, the ones that several sequences have
  std::int64_t bytes = 0;         // of address space; memory is taken when it is first written
  std::int64_t bytes_used = 0;    // of the pages that are used
};

struct KVState;  // the library's own

// A sequence as it was when the snapshot was taken. While one lives, nothing in it changes and no
// page of it is written over, whatever happens to the cache.
class QKV_API KVSnapshot {
 public:
  KVSnapshot(KVSnapshot&&) noexcept;
  KVSnapshot& operator=(KVSnapshot&&) noexcept;
  ~KVSnapshot();

  std::int64_t count() const noexcept;        // sequences, in the order asked for
  std::int64_t length(std::int64_t n) const;  // of the n-th

 private:
  friend class KVCache;
  friend struct KVAccess;
  struct Pinned;
  explicit KVSnapshot(std::unique_ptr<Pinned> pinned) noexcept;
  std::unique_ptr<Pinned> pinned_;
};

// The cache. New tokens come in three steps, so that a model can go through its layers:
//
//   cache.reserve(s, n);                 // room for n tokens, or an Error and nothing changed
//   cache.write(s, layer, k, v);         // for each layer; cached attention sees the new tokens
//   cache.commit(s);                     // length(s) grows by n; rollback(s) forgets them
//
// A layer whose reserved tokens were not written yet has no keys to show: keys(), values() and
// cached attention over them refuse it.
//
// Filling it exactly works; one token more is refused by reserve, and the cache is unchanged.
//
// Threads: one writer. Every function belongs to one thread at a time, but two: snapshot() and
// usage() may be called by any thread at any time, also while the writer writes, and what a
// snapshot shows is read (cached_attention_forward) by any number of threads at once. A writer that
// would have to overwrite what a snapshot still shows writes to a copy, for which a page has to be
// free.
//
// Throws Error, with the cache unchanged, if an argument does not fit.
class QKV_API KVCache {
 public:
  explicit KVCache(const KVCacheConfig& config);  // an Error, too, if there is no memory for it
  KVCache(KVCache&&) noexcept;
  KVCache& operator=(KVCache&&) noexcept;
  ~KVCache();

  const KVCacheConfig& config() const noexcept;

  SequenceId add();  // an empty sequence
  SequenceId fork(
      SequenceId sequence);           // a second one with the same tokens, without its reservation
  void release(SequenceId sequence);  // its pages are free unless another sequence has them, too
  // Forgets the tokens from `length` on, and a reservation. Windowed: refused if a query at
  // `length` would see keys that were overwritten meanwhile.
  void truncate(SequenceId sequence, std::int64_t length);

  void reserve(SequenceId sequence, std::int64_t tokens);
  void reserve(std::span<const SequenceId> sequences, std::int64_t tokens);  // all, or none of them
  // The reserved tokens' key [n, Hkv, D] and value [n, Hkv, Dv], of any float dtype and strides.
  void write(SequenceId sequence, std::int64_t layer, const TensorView& key,
             const TensorView& value);
  void commit(SequenceId sequence);  // refused while a layer was not written
  void commit(std::span<const SequenceId> sequences);
  // Forgets the reservation. Windowed: the oldest tokens, which a reservation gives up for the new
  // ones, are there again unless a layer was written meanwhile: then they are overwritten, and
  // first() stays.
  void rollback(SequenceId sequence);

  // The three at once: key [layers, n, Hkv, D], value [layers, n, Hkv, Dv].
  void append(SequenceId sequence, const TensorView& key, const TensorView& value);

  std::int64_t length(SequenceId sequence) const;   // tokens that were committed
  std::int64_t pending(SequenceId sequence) const;  // tokens that are reserved
  std::int64_t first(
      SequenceId sequence) const;             // the oldest token that is kept: 0 unless windowed
  std::vector<SequenceId> sequences() const;  // ascending

  // Copies in f32, dequantised, of tokens first … length + pending: [Hkv, tokens, D], [Hkv, tokens,
  // Dv].
  Tensor keys(SequenceId sequence, std::int64_t layer) const;
  Tensor values(SequenceId sequence, std::int64_t layer) const;

  KVCacheUsage usage() const;
  KVSnapshot snapshot(std::span<const SequenceId> sequences) const;
  KVSnapshot snapshot(SequenceId sequence) const;

 private:
  friend struct KVAccess;
  std::shared_ptr<KVState> state_;
};

// A cache as a .safetensors file, and back: sequences, their tokens, and which pages they share.
// Reservations are not kept. Written aside and renamed (file.h). A file that is damaged, a number
// or a bit, is refused by what it says and by checksums; the cache that was to be replaced, which
// must have the config of the saved one, is then unchanged.
QKV_API void save_kv_cache(const std::filesystem::path& path, const KVCache& cache);
QKV_API KVCache load_kv_cache(const std::filesystem::path& path);
QKV_API void restore_kv_cache(const std::filesystem::path& path, KVCache& cache);

}  // namespace qkv
