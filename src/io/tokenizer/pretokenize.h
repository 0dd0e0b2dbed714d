#pragma once

// How a text falls into words before the merges of a BPE, by hand-written matchers of the regular
// expressions that the models were trained with. Each is tried at each position in this order, and
// takes as much as it can.
//
//   gpt2     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   llama3   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//             ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   none     the text is one word

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qkv::io {

enum class PreTokenizer : std::uint8_t { none, gpt2, llama3 };

// The regular expression, as a tokenizer.json writes it; empty for none.
std::string_view pattern_of(PreTokenizer kind) noexcept;

// Bytes of the first word of well-formed UTF-8 that is not empty. Looks at no more than the word
// and the characters after it that decide where it ends.
std::size_t first_word(PreTokenizer kind, std::string_view text) noexcept;

}  // namespace qkv::io
