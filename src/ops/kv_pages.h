#pragma once

// The pool of pages behind a cache. A page holds page_tokens tokens of all layers and heads:
//
//   key [layers, Hkv, tokens, D]   value [layers, Hkv, tokens, Dv]   scales [layers, Hkv, tokens],
//   two
//
// so that the tokens of a head lie one after the other. The contiguous and the windowed cache are
// made of one large page a sequence. Not for several threads by itself.

#include <cstdint>
#include <limits>
#include <vector>

#include "base/huge_memory.h"
#include "qkv/kv_cache.h"

namespace qkv {

using PageIndex = std::int32_t;

// Where the tokens of one head of one layer lie in a page. Scales are null unless int8.
struct KVStrip {
  std::byte *key = nullptr, *value = nullptr;
  float *key_scale = nullptr, *value_scale = nullptr;
};

class KVPages {
 public:
  KVPages(const KVCacheConfig& config, std::int64_t page_tokens, std::int64_t pages);

  std::int64_t page_tokens() const noexcept { return page_tokens_; }
  std::int64_t count() const noexcept { return static_cast<std::int64_t>(pages_.size()); }
  std::int64_t free_count() const noexcept { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t bytes() const noexcept;       // of all pages
  std::int64_t page_bytes() const noexcept;  // of one
  std::int64_t shared_count() const noexcept;

  // Sequences that have the page.
  std::int32_t owners(PageIndex page) const noexcept { return at(page).owners; }
  PageIndex take();  // a free one, with one owner; the caller knows that there is one
  void share(PageIndex page) noexcept { ++at(page).owners; }
  void drop(PageIndex page) noexcept;

  // Snapshots show positions [first, end) of the page's sequence: others may be written.
  void pin(PageIndex page, std::int64_t first, std::int64_t end) noexcept;
  void unpin(PageIndex page) noexcept;
  // Whether a snapshot forbids to write positions from `begin` on, and to lose those below `first`.
  bool pinned_at(PageIndex page, std::int64_t begin, std::int64_t first) const noexcept;

  void copy(PageIndex from, PageIndex to,
            std::int64_t tokens) noexcept;  // the first `tokens` slots

  KVStrip strip(PageIndex page, std::int64_t layer, std::int64_t head) const noexcept;

 private:
  struct Page {
    std::int32_t owners = 0, pins = 0;
    std::int64_t pinned_first = std::numeric_limits<std::int64_t>::max(), pinned_end = 0;
  };
  Page& at(PageIndex page) noexcept { return pages_[static_cast<std::size_t>(page)]; }
  const Page& at(PageIndex page) const noexcept { return pages_[static_cast<std::size_t>(page)]; }
  void free_if_unused(PageIndex page) noexcept;

  std::int64_t layers_, heads_, page_tokens_;
  std::int64_t key_row_, value_row_;  // bytes of a token of a head
  bool scaled_;
  std::vector<Page> pages_;
  std::vector<PageIndex> free_;  // the last one is taken first
  HugeMemory keys_, values_, key_scales_, value_scales_;
};

}  // namespace qkv
