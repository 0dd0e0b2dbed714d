#include "ops/kv_pages.h"

#include <algorithm>
#include <cstring>

#include "kernels/cache/store.h"

namespace qkv {

KVPages::KVPages(const KVCacheConfig& config, std::int64_t page_tokens, std::int64_t pages)
    : layers_(config.layers),
      heads_(config.heads),
      page_tokens_(page_tokens),
      key_row_(config.D * size_of(config.storage)),
      value_row_(config.Dv * size_of(config.storage)),
      scaled_(config.storage == KVStorage::int8) {
  // Address space first: too much of it is refused at once, before lists of pages are filled.
  const std::int64_t rows = pages * layers_ * heads_ * page_tokens_;
  keys_ = HugeMemory(rows * key_row_);
  values_ = HugeMemory(rows * value_row_);
  if (scaled_) {
    key_scales_ = HugeMemory(rows * static_cast<std::int64_t>(sizeof(float)));
    value_scales_ = HugeMemory(rows * static_cast<std::int64_t>(sizeof(float)));
  }
  pages_.resize(static_cast<std::size_t>(pages));
  free_.resize(static_cast<std::size_t>(pages));
  for (std::size_t n = 0; n < free_.size(); ++n) {
    free_[n] = static_cast<PageIndex>(free_.size() - 1 - n);
  }
}

std::int64_t KVPages::bytes() const noexcept {
  return keys_.size() + values_.size() + key_scales_.size() + value_scales_.size();
}

std::int64_t KVPages::page_bytes() const noexcept { return count() == 0 ? 0 : bytes() / count(); }

std::int64_t KVPages::shared_count() const noexcept {
  return std::count_if(pages_.begin(), pages_.end(), [](const Page& p) { return p.owners > 1; });
}

PageIndex KVPages::take() {
  const PageIndex page = free_.back();
  free_.pop_back();
  at(page) = Page{};
  at(page).owners = 1;
  return page;
}

void KVPages::free_if_unused(PageIndex page) noexcept {
  // free_ had room for every page when it was made: this does not allocate.
  if (at(page).owners == 0 && at(page).pins == 0) free_.push_back(page);
}

void KVPages::drop(PageIndex page) noexcept {
  --at(page).owners;
  free_if_unused(page);
}

void KVPages::pin(PageIndex page, std::int64_t first, std::int64_t end) noexcept {
  Page& p = at(page);
  ++p.pins;
  p.pinned_first = std::min(p.pinned_first, first);
  p.pinned_end = std::max(p.pinned_end, end);
}

void KVPages::unpin(PageIndex page) noexcept {
  Page& p = at(page);
  if (--p.pins == 0) {
    p.pinned_first = Page{}.pinned_first;
    p.pinned_end = 0;
  }
  free_if_unused(page);
}

bool KVPages::pinned_at(PageIndex page, std::int64_t begin, std::int64_t first) const noexcept {
  const Page& p = at(page);
  return p.pins > 0 && (begin < p.pinned_end || first > p.pinned_first);
}

void KVPages::copy(PageIndex from, PageIndex to, std::int64_t tokens) noexcept {
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    for (std::int64_t head = 0; head < heads_; ++head) {
      const KVStrip a = strip(from, layer, head), b = strip(to, layer, head);
      const auto n = static_cast<std::size_t>(tokens);
      std::memcpy(b.key, a.key, n * static_cast<std::size_t>(key_row_));
      std::memcpy(b.value, a.value, n * static_cast<std::size_t>(value_row_));
      if (!scaled_) continue;
      std::memcpy(b.key_scale, a.key_scale, n * sizeof(float));
      std::memcpy(b.value_scale, a.value_scale, n * sizeof(float));
    }
  }
}

KVStrip KVPages::strip(PageIndex page, std::int64_t layer, std::int64_t head) const noexcept {
  const std::int64_t row = ((page * layers_ + layer) * heads_ + head) * page_tokens_;
  KVStrip strip{keys_.data() + row * key_row_, values_.data() + row * value_row_};
  if (scaled_) {
    strip.key_scale = reinterpret_cast<float*>(key_scales_.data()) + row;
    strip.value_scale = reinterpret_cast<float*>(value_scales_.data()) + row;
  }
  return strip;
}

}  // namespace qkv
