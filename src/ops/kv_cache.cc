#include "qkv/kv_cache.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "kernels/cache/store.h"
#include "ops/kv_state.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("KVCache");

KVSequence& find(KVState& state, SequenceId id, std::string_view where = "KVCache") {
  const auto found = state.sequences.find(id);
  if (found == state.sequences.end()) {
    Refuse(where).value("sequence", "one that was added and not released", fmt::format("{}", id));
  }
  return found->second;
}

SequenceId insert(KVState& state, KVSequence sequence) {
  if (state.config.kind != KVCacheKind::paged &&
      static_cast<std::int64_t>(state.sequences.size()) >= state.config.sequences) {
    kRefuse.value("sequences", fmt::format("at most {}", state.config.sequences), "one more");
  }
  const SequenceId id = sequence.id = state.next;
  state.sequences.emplace(id, std::move(sequence));
  ++state.next;
  return id;
}

// What a reservation changes: known in full before anything is.
struct Growth {
  KVSequence* sequence = nullptr;
  std::int64_t first = 0;
  std::int64_t new_pages = 0;
  std::optional<std::size_t> old_page;  // the one that is written to, if there is one already
  std::int64_t old_tokens = 0;          // slots of it that are used
  bool copies = false;                  // it, before writing
};

// Refuses what does not fit in a sequence; pages are counted by the caller.
Growth plan_growth(const KVState& state, KVSequence& sequence, std::int64_t n) {
  const KVCacheConfig& config = state.config;
  Growth growth;
  growth.sequence = &sequence;
  growth.first = sequence.first;
  const std::int64_t begin = sequence.length, end = begin + n;
  if (config.kind == KVCacheKind::contiguous && end > config.capacity) {
    kRefuse.value("tokens", fmt::format("at most {} more", config.capacity - begin),
                  fmt::format("{}", n));
  }
  if (state.ring()) {
    growth.first = std::max(growth.first, end - config.capacity);
    if (growth.first > std::max<std::int64_t>(0, begin - config.window + 1)) {
      kRefuse.value("tokens",
                    fmt::format("at most {} at once, so that the window of the first one is kept",
                                config.capacity - config.window + 1),
                    fmt::format("{}", n));
    }
  }
  const std::int64_t P = state.pages.page_tokens();
  const auto have = static_cast<std::int64_t>(sequence.pages.size());
  growth.new_pages = std::max<std::int64_t>(0, state.pages_for(end) - have);
  const std::int64_t at = state.ring() ? 0 : begin / P;
  if (n > 0 && at < have) {
    const PageIndex page = sequence.pages[static_cast<std::size_t>(at)];
    growth.old_page = static_cast<std::size_t>(at);
    growth.old_tokens = state.ring() ? std::min(begin, P) : begin - at * P;
    growth.copies = state.pages.pinned_at(page, begin, growth.first);
  }
  return growth;
}

// Decides which shared pages are copied: of k sequences that share one, all but the last that
// write to it, and that one too if someone else has the page.
std::int64_t count_pages(const KVState& state, std::vector<Growth>& growths) {
  std::map<PageIndex, std::int32_t> left;
  std::int64_t pages = 0;
  for (Growth& growth : growths) {
    if (growth.old_page) {
      const PageIndex page = growth.sequence->pages[*growth.old_page];
      std::int32_t& owners = left.try_emplace(page, state.pages.owners(page)).first->second;
      growth.copies = growth.copies || owners > 1;
      if (growth.copies) --owners;
    }
    pages += growth.new_pages + (growth.copies ? 1 : 0);
  }
  return pages;
}

void apply(KVState& state, const Growth& growth, std::int64_t n) {
  KVSequence& sequence = *growth.sequence;
  if (growth.copies) {
    PageIndex& page = sequence.pages[*growth.old_page];
    const PageIndex fresh = state.pages.take();
    state.pages.copy(page, fresh, growth.old_tokens);
    state.pages.drop(std::exchange(page, fresh));
  }
  for (std::int64_t i = 0; i < growth.new_pages; ++i) {
    sequence.pages.push_back(state.pages.take());
  }
  sequence.first_before = std::exchange(sequence.first, growth.first);
  sequence.pending = n;
  std::fill(sequence.written.begin(), sequence.written.end(), false);
}

// Pages that tokens [0, length) do not need are given back.
void keep_pages(KVState& state, KVSequence& sequence, std::int64_t length) {
  const std::int64_t keep = state.pages_for(length);
  while (static_cast<std::int64_t>(sequence.pages.size()) > keep) {
    state.pages.drop(sequence.pages.back());
    sequence.pages.pop_back();
  }
}

// The oldest token that is there without the reservation: of a ring, the reservation gave the
// oldest ones up, but until a layer is written, nothing was written over them.
std::int64_t first_without_reservation(const KVSequence& sequence) {
  const auto& written = sequence.written;
  const bool whole = std::find(written.begin(), written.end(), true) == written.end();
  return sequence.pending > 0 && whole ? sequence.first_before : sequence.first;
}

void forget_reservation(KVSequence& sequence) {
  sequence.first = first_without_reservation(sequence);
  sequence.pending = 0;
}

void check_new(std::string_view subject, const TensorView& view, const Dims& shape,
               std::string_view axes) {
  kRefuse.unless_shape(subject, view, shape, axes);
  kRefuse.unless_float(subject, view);
}

void check_layer(const KVState& state, std::int64_t layer) {
  if (layer >= 0 && layer < state.config.layers) return;
  kRefuse.value("layer", fmt::format("one of {}", state.config.layers), fmt::format("{}", layer));
}

// The reserved tokens of one layer: key and value are [n, Hkv, D] and [n, Hkv, Dv].
void write_tokens(KVState& state, const KVSequence& sequence, std::int64_t layer,
                  const TensorView& key, const TensorView& value) {
  const KVCacheConfig& c = state.config;
  const std::int64_t size = size_of(c.storage);
  const auto row = [](const TensorView& x, std::int64_t t, std::int64_t h) {
    return static_cast<const std::byte*>(x.data()) +
           (t * x.stride(0) + h * x.stride(1)) * static_cast<std::int64_t>(size_of(x.dtype()));
  };
  for (std::int64_t t = 0; t < sequence.pending; ++t) {
    const std::int64_t position = sequence.length + t;
    const PageIndex page = state.page_of(sequence, position);
    const std::int64_t slot = state.slot_of(position);
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const KVStrip strip = state.pages.strip(page, layer, h);
      store_kv_row(row(key, t, h), key.dtype(), key.stride(2), c.D, c.storage,
                   strip.key + slot * c.D * size, scale_at(strip.key_scale, slot));
      store_kv_row(row(value, t, h), value.dtype(), value.stride(2), c.Dv, c.storage,
                   strip.value + slot * c.Dv * size, scale_at(strip.value_scale, slot));
    }
  }
}

Tensor read_tokens(const KVState& state, const KVSequence& sequence, std::int64_t layer,
                   bool values) {
  const KVCacheConfig& c = state.config;
  const std::int64_t width = values ? c.Dv : c.D, row = width * size_of(c.storage);
  check_written(kRefuse, sequence, layer);
  Tensor tokens(DType::f32, {c.heads, sequence.end() - sequence.first, width});
  float* to = tokens.as<float>().data();
  for (std::int64_t h = 0; h < c.heads; ++h) {
    for (std::int64_t p = sequence.first; p < sequence.end(); ++p, to += width) {
      const KVStrip strip = state.pages.strip(state.page_of(sequence, p), layer, h);
      const std::int64_t slot = state.slot_of(p);
      load_kv_row((values ? strip.value : strip.key) + slot * row, c.storage,
                  scale_at(values ? strip.value_scale : strip.key_scale, slot), width, to);
    }
  }
  return tokens;
}

}  // namespace

void check_written(const Refuse& refuse, const KVSequence& sequence, std::int64_t layer) {
  if (sequence.pending == 0 || sequence.written[static_cast<std::size_t>(layer)]) return;
  refuse.value("layer", "one in which the reserved tokens were written",
               fmt::format("layer {} of sequence {}, which has {} reserved and not written", layer,
                           sequence.id, sequence.pending));
}

const KVSequence& KVAccess::sequence(const KVCache& cache, SequenceId id, std::string_view where) {
  return find(*cache.state_, id, where);
}

KVCache KVAccess::make(std::shared_ptr<KVState> state) {
  KVCache cache({.D = 1, .capacity = 1});
  cache.state_ = std::move(state);
  return cache;
}

KVCache::KVCache(const KVCacheConfig& config)
    : state_(std::make_shared<KVState>(check_kv_config(config))) {}
KVCache::KVCache(KVCache&&) noexcept = default;
KVCache& KVCache::operator=(KVCache&&) noexcept = default;
KVCache::~KVCache() = default;

const KVCacheConfig& KVCache::config() const noexcept { return state_->config; }

SequenceId KVCache::add() {
  const std::lock_guard lock(state_->mutex);
  KVSequence sequence;
  sequence.written.resize(static_cast<std::size_t>(state_->config.layers));
  return insert(*state_, std::move(sequence));
}

SequenceId KVCache::fork(SequenceId id) {
  const std::lock_guard lock(state_->mutex);
  KVSequence copy = find(*state_, id);
  copy.pending = 0;
  copy.pages.resize(static_cast<std::size_t>(state_->pages_for(copy.length)));
  const std::vector<PageIndex> shared = copy.pages;
  const SequenceId fork = insert(*state_, std::move(copy));
  for (const PageIndex page : shared) state_->pages.share(page);
  return fork;
}

void KVCache::release(SequenceId id) {
  const std::lock_guard lock(state_->mutex);
  KVSequence& sequence = find(*state_, id);
  keep_pages(*state_, sequence, 0);
  state_->sequences.erase(id);
}

void KVCache::truncate(SequenceId id, std::int64_t length) {
  const std::lock_guard lock(state_->mutex);
  KVSequence& sequence = find(*state_, id);
  if (length < 0 || length > sequence.length) {
    kRefuse.value("length", fmt::format("0 to {}", sequence.length), fmt::format("{}", length));
  }
  const std::int64_t needed = std::max<std::int64_t>(0, length - state_->config.window + 1);
  const std::int64_t first = first_without_reservation(sequence);
  if (state_->ring() && length > 0 && needed < first) {
    kRefuse.value("length",
                  fmt::format("0, or {} or more: older keys of its window were overwritten",
                              first + state_->config.window - 1),
                  fmt::format("{}", length));
  }
  forget_reservation(sequence);
  sequence.length = length;
  if (length == 0) sequence.first = 0;
  keep_pages(*state_, sequence, length);
}

void KVCache::reserve(SequenceId id, std::int64_t tokens) { reserve(std::span(&id, 1), tokens); }

void KVCache::reserve(std::span<const SequenceId> ids, std::int64_t n) {
  const std::lock_guard lock(state_->mutex);
  if (n < 0 || n > std::int64_t{1} << 58) {
    kRefuse.value("tokens", "0 or more", fmt::format("{}", n));
  }
  std::set<SequenceId> seen;
  std::vector<Growth> growths;
  for (const SequenceId id : ids) {
    KVSequence& sequence = find(*state_, id);
    if (!seen.insert(id).second) {
      kRefuse.value("sequences", "each one once", fmt::format("{} twice", id));
    }
    if (sequence.pending != 0) {
      kRefuse.value("sequence", "one without a reservation (commit or roll it back first)",
                    fmt::format("{} tokens reserved in {}", sequence.pending, id));
    }
    growths.push_back(plan_growth(*state_, sequence, n));
  }
  const std::int64_t pages = count_pages(*state_, growths);
  if (pages > state_->pages.free_count()) {
    kRefuse.value("tokens",
                  fmt::format("room: {} pages of {} tokens are free", state_->pages.free_count(),
                              state_->pages.page_tokens()),
                  fmt::format("{} tokens, for {} more pages", n, pages));
  }
  for (const Growth& growth : growths) {  // memory first: what follows cannot fail
    growth.sequence->pages.reserve(growth.sequence->pages.size() +
                                   static_cast<std::size_t>(growth.new_pages));
  }
  for (const Growth& growth : growths) apply(*state_, growth, n);
}

void KVCache::write(SequenceId id, std::int64_t layer, const TensorView& key,
                    const TensorView& value) {
  KVSequence& sequence = find(*state_, id);
  check_layer(*state_, layer);
  const KVCacheConfig& c = state_->config;
  check_new("key", key, {sequence.pending, c.heads, c.D}, "[reserved tokens, Hkv, D]");
  check_new("value", value, {sequence.pending, c.heads, c.Dv}, "[reserved tokens, Hkv, Dv]");
  write_tokens(*state_, sequence, layer, key, value);
  sequence.written[static_cast<std::size_t>(layer)] = true;
}

void KVCache::commit(SequenceId id) { commit(std::span(&id, 1)); }

void KVCache::commit(std::span<const SequenceId> ids) {
  const std::lock_guard lock(state_->mutex);
  for (const SequenceId id : ids) {
    const KVSequence& sequence = find(*state_, id);
    const auto missing = std::find(sequence.written.begin(), sequence.written.end(), false);
    if (sequence.pending == 0 || missing == sequence.written.end()) continue;
    kRefuse.value("sequence", "one whose every layer was written",
                  fmt::format("{} without layer {}", id, missing - sequence.written.begin()));
  }
  for (const SequenceId id : ids) {
    KVSequence& sequence = find(*state_, id);
    sequence.length += std::exchange(sequence.pending, 0);
  }
}

void KVCache::rollback(SequenceId id) {
  const std::lock_guard lock(state_->mutex);
  KVSequence& sequence = find(*state_, id);
  forget_reservation(sequence);
  keep_pages(*state_, sequence, sequence.length);
}

void KVCache::append(SequenceId id, const TensorView& key, const TensorView& value) {
  static_cast<void>(find(*state_, id));
  const KVCacheConfig& c = state_->config;
  kRefuse.unless_rank("key", key, 4, "[layers, n, Hkv, D]");
  const std::int64_t n = key.dim(1);
  check_new("key", key, {c.layers, n, c.heads, c.D}, "[layers, n, Hkv, D]");
  check_new("value", value, {c.layers, n, c.heads, c.Dv}, "[layers, n, Hkv, Dv]");
  reserve(id, n);
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    write(id, layer, key.select(0, layer), value.select(0, layer));
  }
  commit(id);
}

std::int64_t KVCache::length(SequenceId id) const { return find(*state_, id).length; }
std::int64_t KVCache::pending(SequenceId id) const { return find(*state_, id).pending; }
std::int64_t KVCache::first(SequenceId id) const { return find(*state_, id).first; }

std::vector<SequenceId> KVCache::sequences() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : state_->sequences) ids.push_back(id);
  return ids;
}

Tensor KVCache::keys(SequenceId id, std::int64_t layer) const {
  check_layer(*state_, layer);
  return read_tokens(*state_, find(*state_, id), layer, false);
}

Tensor KVCache::values(SequenceId id, std::int64_t layer) const {
  check_layer(*state_, layer);
  return read_tokens(*state_, find(*state_, id), layer, true);
}

KVCacheUsage KVCache::usage() const {
  const std::lock_guard lock(state_->mutex);
  KVCacheUsage usage;
  usage.sequences = static_cast<std::int64_t>(state_->sequences.size());
  for (const auto& [id, sequence] : state_->sequences) usage.tokens += sequence.length;
  usage.pages = state_->pages.count();
  usage.pages_free = state_->pages.free_count();
  usage.pages_used = usage.pages - usage.pages_free;
  usage.pages_shared = state_->pages.shared_count();
  usage.bytes = state_->pages.bytes();
  usage.bytes_used = usage.pages_used * state_->pages.page_bytes();
  return usage;
}

KVSnapshot KVCache::snapshot(SequenceId id) const { return snapshot(std::span(&id, 1)); }

KVSnapshot KVCache::snapshot(std::span<const SequenceId> ids) const {
  auto pinned = std::make_unique<KVSnapshot::Pinned>();
  const std::lock_guard lock(state_->mutex);
  std::vector<KVSequence> sequences;
  for (const SequenceId id : ids) {
    // Not `written`: the writer sets it without the lock.
    const KVSequence& sequence = find(*state_, id);
    KVSequence& copy = sequences.emplace_back();
    copy.id = id;
    copy.first = sequence.first;
    copy.length = sequence.length;
    copy.pages.assign(sequence.pages.begin(),
                      sequence.pages.begin() + state_->pages_for(sequence.length));
  }
  for (const KVSequence& s : sequences) {
    for (const PageIndex page : s.pages) state_->pages.pin(page, s.first, s.length);
  }
  pinned->sequences = std::move(sequences);
  pinned->state = state_;
  return KVSnapshot(std::move(pinned));
}

KVSnapshot::Pinned::~Pinned() {
  if (state == nullptr) return;
  const std::lock_guard lock(state->mutex);
  for (const KVSequence& sequence : sequences) {
    for (const PageIndex page : sequence.pages) state->pages.unpin(page);
  }
}

KVSnapshot::KVSnapshot(std::unique_ptr<Pinned> pinned) noexcept : pinned_(std::move(pinned)) {}
KVSnapshot::KVSnapshot(KVSnapshot&&) noexcept = default;
KVSnapshot& KVSnapshot::operator=(KVSnapshot&&) noexcept = default;
KVSnapshot::~KVSnapshot() = default;

std::int64_t KVSnapshot::count() const noexcept {
  return static_cast<std::int64_t>(pinned_->sequences.size());
}

std::int64_t KVSnapshot::length(std::int64_t n) const {
  if (n < 0 || n >= count()) {
    Refuse("KVSnapshot")
        .value("sequence", fmt::format("0 to {}", count() - 1), fmt::format("{}", n));
  }
  return pinned_->sequences[static_cast<std::size_t>(n)].length;
}

}  // namespace qkv
