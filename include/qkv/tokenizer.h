#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/export.h"

namespace qkv {

// Text ↔ token ids, by byte-pair encoding, in the three forms that GPTs have:
//
//   byte-level, GPT-2's words     GPT-2 and its relatives
//   byte-level, Llama 3's words   Llama 3
//   byte-fallback                 the older Llamas (SentencePiece): spaces are ▁, and characters
//                                 that are not in the vocabulary are spelt in bytes, <0xE2>
//
// Any other tokenizer is refused by name when it is opened.
class QKV_API Tokenizer {
 public:
  // A file tokenizer.json, or a folder with tokenizer.json, or else vocab.json and merges.txt
  // (GPT-2's own form, whose <|endoftext|> is a special token).
  static Tokenizer open(const std::filesystem::path& path);

  // Whether a folder has files that open() would read.
  static bool is_in(const std::filesystem::path& folder);

  // The same from texts; `where` stands for the file in messages.
  static Tokenizer from_json(std::string_view text, std::string_view where);
  static Tokenizer from_vocab_and_merges(std::string_view vocab_json, std::string_view merges,
                                         std::string_view where);

  // Special and added tokens are recognised in the text. `add_special` puts those around it that
  // the tokenizer's template names (Llama's <s>). Bytes that are no UTF-8 stand for U+FFFD each, as
  // in Python's errors="replace". Takes time n·log n, whatever the text. Refuses a text for which
  // the vocabulary has no symbol.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special = true) const;

  // The bytes of one token: "Ġthe" is " the", "<0xE2>" one byte. Refuses an id that is none.
  std::string_view bytes(std::int32_t id) const;

  // The text of all of them; ill-formed bytes become U+FFFD: one for each longest piece that could
  // have begun a character, as in Python's errors="replace". A byte-fallback vocabulary's tokens of
  // a byte each that stand in a row are a text together, or else one U+FFFD for each of them. The
  // older Llamas' first space, which encode put there, is taken away.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

  // Ids run from 0 up to below it; not all of them need to be a token.
  std::int64_t size() const noexcept;
  bool contains(std::int32_t id) const noexcept;
  bool is_special(std::int32_t id) const noexcept;

  // The token of that name as the files write it ("Ġthe", "<|eot_id|>").
  std::optional<std::int32_t> find(std::string_view token) const noexcept;

  // "byte-level BPE with GPT-2's words".
  std::string_view kind() const noexcept;

  struct Parts;  // of the implementation

 private:
  friend class TokenStream;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

// Decodes token by token. A character that is not yet whole is held back until it is; one that
// cannot become whole any more is U+FFFD. All pieces together are what decode() gives, but for one
// thing: whole characters that a run of bytes spelt before it broke (byte-fallback) are shown as
// they come, and cannot be taken back; the rest of such a run is a U+FFFD for each byte.
class QKV_API TokenStream {
 public:
  explicit TokenStream(Tokenizer tokenizer, bool skip_special = true);

  std::string push(std::int32_t id);  // what can be shown by now, maybe nothing
  std::string finish();               // what was held back

 private:
  std::string whole_characters();
  std::string push_byte(char byte);
  std::string end_run();

  Tokenizer tokenizer_;
  bool skip_special_, first_ = true;
  bool broken_ = false;  // the run of bytes that is under way is no text
  std::string held_;
};

}  // namespace qkv
