#pragma once

// A tokenizer as its files describe it, resolved.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizer/bpe.h"
#include "io/tokenizer/pretokenize.h"
#include "qkv/tokenizer.h"

namespace qkv::io {

// A token that is found in the text as it stands, before anything else is done to it.
struct AddedToken {
  TokenId id;
  std::string content;
  bool strip_left = false, strip_right = false;  // takes the spaces beside it
};

// Finds added tokens: the leftmost, of those the longest; of two that are the same text once it is
// normalised, the one that was inserted first.
class AddedTokens {
 public:
  void insert(AddedToken token);
  bool empty() const noexcept { return tokens_.empty(); }

  struct Match {
    std::size_t begin, end;
    const AddedToken* token;  // null: none, begin = end = text.size()
  };
  Match find(std::string_view text, std::size_t from) const noexcept;

 private:
  std::vector<AddedToken> tokens_;
  // The edges of a trie: (node, byte) → node; and what ends at a node.
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  std::vector<std::int32_t> ends_{-1};
};

// What happens to each piece of text before it falls into words.
enum class Prefix : std::uint8_t {
  none,
  space,        // byte-level: a space, unless there is one
  mark,         // ▁, in front of every piece that is not empty
  mark_always,  // ▁, unless the piece begins with one
  mark_first,   // the same, in front of the first piece only
};

}  // namespace qkv::io

namespace qkv {

struct Tokenizer::Parts {
  std::string where;
  bool byte_level = true;
  io::PreTokenizer words = io::PreTokenizer::none;
  io::Prefix prefix = io::Prefix::none;
  bool split_at_marks = false;
  bool ignore_merges = false;  // a word that is a token is that token
  bool fuse_unknown = false;
  bool strip_first_space = false;
  std::int32_t unknown = -1;
  std::int32_t byte_ids[256];  // of a byte alone: its token, or -1

  std::unordered_map<std::string_view, std::int32_t> ids;  // views of `names`
  std::vector<std::string> names, bytes;                   // by id
  // By id, 0 or 1. Those that are not the model's were added, and found in no word.
  std::vector<std::uint8_t> present, of_model, special;
  std::vector<std::uint8_t> one_byte;  // <0xE2> of a byte-fallback vocabulary
  io::MergeTable merges{0};
  io::AddedTokens raw, normalized;
  std::vector<std::int32_t> before, after;  // that the template puts around a text

  // Of a token of the model's, or -1.
  std::int32_t model_id(std::string_view name) const noexcept {
    const auto id = ids.find(name);
    if (id == ids.end() || of_model[static_cast<std::size_t>(id->second)] == 0) return -1;
    return id->second;
  }
};

}  // namespace qkv

namespace qkv::io {

// A byte's character in byte-level vocabularies: itself if it is printable ASCII or Latin-1,
// otherwise one from U+0100 on.
char32_t char_of_byte(unsigned char byte) noexcept;
// The other way round, or -1.
int byte_of_char(char32_t code) noexcept;

// The bytes that a token of a byte-level vocabulary stands for; itself if it has other characters.
std::string bytes_of_byte_level(std::string_view name);
// The same of a byte-fallback vocabulary: ▁ is a space, <0xE2> a byte.
std::string bytes_of_byte_fallback(std::string_view name);
// Which byte <0xE2> is, or -1 if the name has another form.
int byte_of_name(std::string_view name) noexcept;

inline constexpr std::string_view kMark = "\xe2\x96\x81";  // ▁

// What the normaliser of the older Llamas makes of a text (an added token's own too).
std::string normalized(const Tokenizer::Parts& parts, std::string_view text);

}  // namespace qkv::io
