#pragma once

// What is behind a KVCache, for the operators that read it and for saving it.

#include <map>
#include <mutex>
#include <vector>

#include "ops/kv_pages.h"
#include "qkv/kv_cache.h"

namespace qkv {

class Refuse;

// Positions [first, length + pending) are there; position p lies in slot p % page_tokens of page
// p / page_tokens or, of a ring, of the only page.
struct KVSequence {
  SequenceId id = 0;
  std::vector<PageIndex> pages;
  std::int64_t first = 0, length = 0, pending = 0;
  std::vector<bool> written;      // layers, of the reservation
  std::int64_t first_before = 0;  // `first` before the reservation

  std::int64_t end() const noexcept { return length + pending; }
};

struct KVState {
  explicit KVState(const KVCacheConfig& checked);  // refuses what the system has no memory for

  KVCacheConfig config;  // Dv resolved
  KVPages pages;
  std::map<SequenceId, KVSequence> sequences;
  SequenceId next = 0;
  // Held by the writer while it changes the above, and by whoever takes or gives back a snapshot.
  // Reading by the writer, and the bytes inside of pages, need no lock.
  mutable std::mutex mutex;

  bool ring() const noexcept { return config.kind == KVCacheKind::windowed; }
  PageIndex page_of(const KVSequence& sequence, std::int64_t position) const noexcept {
    return sequence.pages[static_cast<std::size_t>(ring() ? 0 : position / pages.page_tokens())];
  }
  std::int64_t slot_of(std::int64_t position) const noexcept {
    return position % pages.page_tokens();
  }
  // Pages that hold tokens [0, length).
  std::int64_t pages_for(std::int64_t length) const noexcept {
    const std::int64_t P = pages.page_tokens();
    return ring() ? (length > 0 ? 1 : 0) : (length + P - 1) / P;
  }
  // Positions from `position` on that lie one after the other.
  std::int64_t run_from(std::int64_t position) const noexcept {
    return pages.page_tokens() - slot_of(position);
  }
};

struct KVSnapshot::Pinned {
  std::shared_ptr<KVState> state;
  std::vector<KVSequence> sequences;  // nothing pending
  ~Pinned();
};

struct KVAccess {
  static const KVState& state(const KVCache& cache) noexcept { return *cache.state_; }
  static const KVState& state(const KVSnapshot& snapshot) noexcept {
    return *snapshot.pinned_->state;
  }
  static const std::vector<KVSequence>& sequences(const KVSnapshot& snapshot) noexcept {
    return snapshot.pinned_->sequences;
  }
  // Refuses a sequence that is not there, in the name of `where`.
  static const KVSequence& sequence(const KVCache& cache, SequenceId id, std::string_view where);
  static KVCache make(std::shared_ptr<KVState> state);
};

// Refuses a layer whose reserved tokens were not written: in their place lies what was there
// before.
void check_written(const Refuse& refuse, const KVSequence& sequence, std::int64_t layer);

// Refuses a config that makes no sense or does not fit in 62 bits; resolves its defaults.
KVCacheConfig check_kv_config(const KVCacheConfig& config);

}  // namespace qkv
