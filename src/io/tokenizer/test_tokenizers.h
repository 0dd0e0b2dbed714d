#pragma once

// Small tokenizers for tests, as tokenizer.json files have them.

#include <string>
#include <string_view>

#include "base/json.h"
#include "io/tokenizer/parts.h"
#include "io/tokenizer/unicode.h"

namespace qkv::io {

// The parts of a tokenizer.json: each is JSON.
struct TokenizerText {
  std::string normalizer = "null", pre_tokenizer = "null", post_processor = "null",
              decoder = "null", added = "[]", vocab, merges, model = R"("type": "BPE")";

  std::string json() const {
    return R"({"version": "1.0", "added_tokens": )" + added + R"(, "normalizer": )" + normalizer +
           R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "post_processor": )" + post_processor +
           R"(, "decoder": )" + decoder + R"(, "model": {)" + model + R"(, "vocab": {)" + vocab +
           R"(}, "merges": [)" + merges + "]}}";
  }
};

inline void add_vocabulary(TokenizerText& text, std::string_view name) {
  static_assert(sizeof(std::size_t) >= 4);
  std::size_t id = 0;  // as many as there are colons at this level
  for (std::size_t at = text.vocab.find("\": "); at != text.vocab.npos;
       at = text.vocab.find("\": ", at + 1)) {
    ++id;
  }
  text.vocab += (id == 0 ? "" : ", ") + json_string(name) + ": " + std::to_string(id);
}

inline void add_merge(TokenizerText& text, const std::string& left, const std::string& right) {
  text.merges += (text.merges.empty() ? "" : ", ") + json_string(left + " " + right);
  add_vocabulary(text, left + right);
}

inline constexpr std::string_view kByteLevel =
    R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";

// 256 bytes, each its own id; 13 merges (256 to 268); <|end|>, 269. Words as GPT-2's.
inline TokenizerText small_byte_level() {
  TokenizerText text;
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    append_utf8(name, char_of_byte(static_cast<unsigned char>(byte)));
    add_vocabulary(text, name);
  }
  const std::string space = "\u0120", line = "\u010a";
  add_merge(text, "h", "e");
  add_merge(text, "l", "l");
  add_merge(text, "he", "ll");
  add_merge(text, "hell", "o");
  add_merge(text, space, "w");
  add_merge(text, "o", "r");
  add_merge(text, space + "w", "or");
  add_merge(text, "1", "2");
  add_merge(text, space, space);
  add_merge(text, "\u00e1", "\u00bb");
  add_merge(text, "'", "s");
  add_merge(text, "l", "d");
  add_merge(text, line, line);
  text.added = R"([{"id": 269, "content": "<|end|>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}])";
  text.pre_tokenizer = kByteLevel;
  text.decoder = R"({"type": "ByteLevel"})";
  return text;
}

// The same with Llama 3's words, and <|end|> in front.
inline TokenizerText small_llama3() {
  TokenizerText text = small_byte_level();
  text.pre_tokenizer =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": )" +
      json_string(pattern_of(PreTokenizer::llama3)) +
      R"(}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel",
          "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})";
  text.post_processor = R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel", "trim_offsets": false},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
       "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [269], "tokens": ["<|end|>"]}}}]})";
  return text;
}

// <unk>, <s>, </s>, 256 bytes, a few letters and merges; <s> in front, as the older Llamas have it.
inline TokenizerText small_llama2() {
  TokenizerText text;
  for (const char* name : {"<unk>", "<s>", "</s>"}) add_vocabulary(text, name);
  for (int byte = 0; byte < 256; ++byte) {
    static const char* digits = "0123456789ABCDEF";
    add_vocabulary(text, std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
  }
  const std::string mark(kMark);
  for (const char* name :
       {"\u2581", "h", "e", "l", "o", "w", "r", "d", "1", "2", "i", "\u1ebf", "n", "g", "T", "V"}) {
    add_vocabulary(text, name);
  }
  add_merge(text, mark, "h");
  add_merge(text, "l", "l");
  add_merge(text, "e", "ll");
  add_merge(text, mark + "h", "ell");
  add_merge(text, mark + "hell", "o");
  add_merge(text, mark, mark);
  add_merge(text, "n", "g");
  add_merge(text, mark, "T");
  add_merge(text, "o", "r");
  text.model = R"("type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>")";
  for (const char* name : {"<unk>", "<s>", "</s>"}) {
    const std::size_t id = name[1] == 'u' ? 0 : name[1] == 's' ? 1 : 2;
    text.added.insert(text.added.size() - 1, (id == 0 ? "" : ", ") + std::string(R"({"id": )") +
                                                 std::to_string(id) + R"(, "content": ")" + name +
                                                 R"(", "normalized": false, "special": true})");
  }
  text.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
  text.decoder = R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  text.post_processor = R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})";
  return text;
}

}  // namespace qkv::io
