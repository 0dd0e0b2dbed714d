#include "io/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace qkv::io {
namespace {

constexpr std::uint64_t kFree = ~std::uint64_t{0};  // ids are not negative: no pair has it

std::uint64_t key_of(TokenId left, TokenId right) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t count)
    : slots_(std::bit_ceil(2 * count + 2), Slot{kFree, {0, 0}}) {}

// Where the key is, or the free place where it would be: at most half of them are taken.
std::size_t MergeTable::slot_of(std::uint64_t key) const noexcept {
  std::uint64_t hash = key * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 29;
  std::size_t at = hash & (slots_.size() - 1);
  while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) noexcept {
  slots_[slot_of(key_of(left, right))] = {key_of(left, right), merge};
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const noexcept {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == kFree ? nullptr : &slot.merge;
}

namespace {

constexpr auto kLater = [](const auto& a, const auto& b) {
  return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
};

}  // namespace

void Merger::offer(const MergeTable& merges, std::int32_t at) {
  if (at < 0) return;
  const Symbol& left = symbols_[static_cast<std::size_t>(at)];
  if (left.after < 0) return;
  const auto* merge = merges.find(left.id, symbols_[static_cast<std::size_t>(left.after)].id);
  if (merge == nullptr) return;
  pairs_.push_back({merge->rank, at, merge->result});
  std::push_heap(pairs_.begin(), pairs_.end(), kLater);
}

void Merger::operator()(const MergeTable& merges, const std::vector<TokenId>& symbols,
                        std::vector<TokenId>& out) {
  symbols_.clear();
  pairs_.clear();
  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < count; ++i) {
    symbols_.push_back({symbols[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i < count; ++i) offer(merges, i);
  while (!pairs_.empty()) {
    std::pop_heap(pairs_.begin(), pairs_.end(), kLater);
    const Pair pair = pairs_.back();
    pairs_.pop_back();
    Symbol& left = symbols_[static_cast<std::size_t>(pair.at)];
    if (left.id < 0 || left.after < 0) continue;  // merged away meanwhile
    Symbol& right = symbols_[static_cast<std::size_t>(left.after)];
    const auto* merge = merges.find(left.id, right.id);
    if (merge == nullptr || merge->result != pair.result) continue;  // one of the two has changed
    left.id = pair.result;
    left.after = right.after;
    right.id = -1;
    if (left.after >= 0) symbols_[static_cast<std::size_t>(left.after)].before = pair.at;
    offer(merges, left.before);
    offer(merges, pair.at);
  }
  for (const Symbol& symbol : symbols_) {
    if (symbol.id >= 0) out.push_back(symbol.id);
  }
}

}  // namespace qkv::io
