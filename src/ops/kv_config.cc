#include <array>
#include <limits>
#include <new>

#include "base/checked.h"
#include "kernels/cache/store.h"
#include "ops/kv_state.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("KVCache");

constexpr std::array kKinds = {"contiguous", "paged", "windowed"};
constexpr std::array kStorages = {"f32", "f16", "bf16", "int8"};

// Tokens of a page are a multiple of it: smaller pages would have the kernel look at the table more
// often than at keys.
constexpr std::int64_t kTokens = 16;

void at_least(std::string_view subject, std::int64_t value, std::int64_t least) {
  if (value < least) {
    kRefuse.value(subject, fmt::format("{} or more", least), fmt::format("{}", value));
  }
}

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

std::int64_t page_tokens_of(const KVCacheConfig& config) {
  return config.kind == KVCacheKind::paged ? config.page_tokens
                                           : round_up(config.capacity, kTokens);
}

std::int64_t page_count_of(const KVCacheConfig& config) {
  return config.kind == KVCacheKind::paged
             ? round_up(config.capacity, config.page_tokens) / config.page_tokens
             : config.sequences;
}

void check_size(const KVCacheConfig& config) {
  if (page_count_of(config) > std::numeric_limits<PageIndex>::max()) {
    kRefuse.value("capacity", "fewer than 2^31 pages", fmt::format("{}", page_count_of(config)));
  }
  // 16 bytes a number hold both its storage and a scale for each.
  std::int64_t total = 16;
  for (const std::int64_t factor : {page_count_of(config), config.layers, config.heads,
                                    page_tokens_of(config), config.D + config.Dv}) {
    const auto product = checked_mul(total, factor);
    if (!product) kRefuse.value("capacity", "a cache of less than 2^59 numbers", "more");
    total = *product;
  }
}

}  // namespace

std::string_view name_of(KVCacheKind kind) noexcept {
  return kKinds[static_cast<std::size_t>(kind)];
}
std::string_view name_of(KVStorage storage) noexcept {
  return kStorages[static_cast<std::size_t>(storage)];
}

KVCacheConfig check_kv_config(const KVCacheConfig& config) {
  constexpr std::int64_t kMost = std::int64_t{1} << 58;  // sums of two stay far from overflow
  KVCacheConfig checked = config;
  if (static_cast<std::size_t>(config.kind) >= kKinds.size() ||
      static_cast<std::size_t>(config.storage) >= kStorages.size()) {
    kRefuse.value("kind", "a kind and a storage of the header's", "a number that is none");
  }
  at_least("layers", config.layers, 1);
  at_least("heads", config.heads, 1);
  at_least("D", config.D, 1);
  at_least("Dv", config.Dv, 0);
  if (checked.Dv == 0) checked.Dv = checked.D;
  at_least("capacity", config.capacity, 1);
  if (config.kind == KVCacheKind::paged) {
    if (config.page_tokens < kTokens || config.page_tokens % kTokens != 0) {
      kRefuse.value("page_tokens", fmt::format("a multiple of {}", kTokens),
                    fmt::format("{}", config.page_tokens));
    }
  } else {
    at_least("sequences", config.sequences, 1);
  }
  if (config.kind == KVCacheKind::windowed) {
    at_least("window", config.window, 1);
    if (config.capacity < config.window) {
      kRefuse.value("capacity", fmt::format("at least the window, {}", config.window),
                    fmt::format("{}", config.capacity));
    }
  } else if (config.window != 0) {
    kRefuse.value("window", "0 unless the cache is windowed", fmt::format("{}", config.window));
  }
  for (const std::int64_t n : {config.capacity, config.page_tokens, config.D, config.Dv}) {
    if (n > kMost) kRefuse.value("capacity", "sizes below 2^58", fmt::format("{}", n));
  }
  check_size(checked);
  return checked;
}

KVState::KVState(const KVCacheConfig& checked) try
    : config(checked), pages(checked, page_tokens_of(checked), page_count_of(checked)) {
} catch (const std::bad_alloc&) {
  // check_size knows that this fits.
  const std::int64_t tokens = page_count_of(checked) * page_tokens_of(checked);
  const std::int64_t row = (checked.D + checked.Dv) * size_of(checked.storage) +
                           (checked.storage == KVStorage::int8 ? 8 : 0);
  kRefuse.value(
      "capacity", "a cache that the system has memory for",
      fmt::format("{} tokens in all, {:.1f} GB", tokens,
                  static_cast<double>(tokens * checked.layers * checked.heads * row) / 1e9));
}

}  // namespace qkv
