#pragma once

// Byte-pair encoding: a word's symbols are merged pair by pair, the pair that was learnt first
// going first, the leftmost of equal ones before the others.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qkv::io {

using TokenId = std::int32_t;

// (left, right) → which merge it is, and what it gives: open addressing, since every pair of every
// word is looked up.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    TokenId result;
  };

  explicit MergeTable(std::size_t count);

  // Of a pair that is there already, the later merge counts.
  void insert(TokenId left, TokenId right, Merge merge) noexcept;
  const Merge* find(TokenId left, TokenId right) const noexcept;

 private:
  struct Slot {
    std::uint64_t key;
    Merge merge;
  };
  std::size_t slot_of(std::uint64_t key) const noexcept;

  std::vector<Slot> slots_;
};

// Merges until nothing more can be, in O(n log n): the pairs wait in a heap, the symbols are a list
// whose links are indices. Appends to `out`; keeps its memory from word to word.
class Merger {
 public:
  void operator()(const MergeTable& merges, const std::vector<TokenId>& symbols,
                  std::vector<TokenId>& out);

 private:
  struct Symbol {
    TokenId id;
    std::int32_t before, after;  // -1: none
  };
  struct Pair {
    std::uint32_t rank;
    std::int32_t at;
    TokenId result;
  };
  void offer(const MergeTable& merges, std::int32_t at);

  std::vector<Symbol> symbols_;
  std::vector<Pair> pairs_;
};

}  // namespace qkv::io
