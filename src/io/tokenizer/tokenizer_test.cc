#include "qkv/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "io/report.h"
#include "io/test_files.h"
#include "io/tokenizer/test_tokenizers.h"
#include "tests/effort.h"

namespace qkv::io {
namespace {

Tokenizer open(const TokenizerText& text) { return Tokenizer::from_json(text.json(), "t.json"); }

// --- characters -------------------------------------------------------------------------------

TEST(TokenizerUnicode, Kinds) {
  for (const char32_t c : {U'a', U'Z', U'\u00e9', U'\u1ebf', U'\uac00', U'\u6ce8', U'\U00020000'}) {
    EXPECT_EQ(kind_of(c), CharKind::letter) << static_cast<std::uint32_t>(c);
  }
  for (const char32_t c : {U'0', U'9', U'\u00bd', U'\u0663', U'\u2167', U'\u3007'}) {
    EXPECT_EQ(kind_of(c), CharKind::number) << static_cast<std::uint32_t>(c);
  }
  for (const char32_t c : {U' ', U'\t', U'\u000b', U'\u0085', U'\u00a0', U'\u2003', U'\u3000'}) {
    EXPECT_EQ(kind_of(c), CharKind::space) << static_cast<std::uint32_t>(c);
  }
  for (const char32_t c : {U'\x1c', U'!', U'_', U'\u0301', U'\u200b', U'\ufffd', U'\U0001f642',
                           U'\U0010ffff', U'\0'}) {
    EXPECT_EQ(kind_of(c), CharKind::other) << static_cast<std::uint32_t>(c);
  }
}

TEST(TokenizerUnicode, BytesHaveCharactersAndBack) {
  std::vector<bool> seen(0x200);
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = char_of_byte(static_cast<unsigned char>(byte));
    EXPECT_EQ(byte_of_char(c), byte);
    EXPECT_NE(kind_of(c), CharKind::space);
    EXPECT_FALSE(seen[c]);
    seen[c] = true;
  }
  EXPECT_EQ(char_of_byte(' '), U'\u0120');
  EXPECT_EQ(byte_of_char(U'\u0144'), -1);
}

// One U+FFFD for each longest piece that could have begun a character (Unicode 15, table 3-8).
TEST(TokenizerUnicode, Replacements) {
  const std::string r = "\ufffd";
  EXPECT_EQ(with_replacements("a\xf1\x80\x80\xe1\x80\xc2"
                              "b\x80"
                              "c\x80\xbf"
                              "d"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(with_replacements("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
                              "A"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(with_replacements("\xed\xa0\x80\xf4\x91\xff"), r + r + r + r + r + r);
  EXPECT_EQ(with_replacements("\u1ebf\U0001f642"), "\u1ebf\U0001f642");
  EXPECT_EQ(with_replacements("\xe1\xba"), r);
}

// --- words ------------------------------------------------------------------------------------

std::vector<std::string> words_of(PreTokenizer kind, std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t size = first_word(kind, text);
    EXPECT_GT(size, 0u);
    if (size == 0) break;
    words.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(TokenizerWords, Gpt2) {
  const auto words = [](std::string_view text) { return words_of(PreTokenizer::gpt2, text); };
  EXPECT_EQ(
      words("I'm  fine, it's 12,345!\n\n x"),
      (Words{"I", "'m", " ", " fine", ",", " it", "'s", " 12", ",", "345", "!", "\n\n", " x"}));
  EXPECT_EQ(words("IT'S a\t\tb   "), (Words{"IT", "'", "S", " a", "\t", "\t", "b", "   "}));
  EXPECT_EQ(words("e\u0301\u3000\u3000x"), (Words{"e", "\u0301", "\u3000", "\u3000", "x"}));
  EXPECT_EQ(words("a\u00bd\u0663 \u00bd"), (Words{"a", "\u00bd\u0663", " \u00bd"}));
  EXPECT_EQ(words("don''s"), (Words{"don", "''", "s"}));
}

TEST(TokenizerWords, Llama3) {
  const auto words = [](std::string_view text) { return words_of(PreTokenizer::llama3, text); };
  EXPECT_EQ(words("I'M  fine, it's 12345!\n\n x"),
            (Words{"I", "'M", " ", " fine", ",", " it", "'s", " ", "123", "45", "!\n\n", " x"}));
  EXPECT_EQ(words("  \n \r\n  x (a"), (Words{"  \n \r\n", " ", " x", " (", "a"}));
  EXPECT_EQ(words("(a\tb\u0301c\nd"), (Words{"(a", "\tb", "\u0301c", "\n", "d"}));
  EXPECT_EQ(words("'\u017fx 'LLama"), (Words{"'\u017f", "x", " '", "LLama"}));
  EXPECT_EQ(words("...\r\n\n  ."), (Words{"...\r\n\n", " ", " ."}));
}

// --- merges -----------------------------------------------------------------------------------

// The definition: the lowest rank of all pairs, the leftmost of those, until there is none.
std::vector<TokenId> merged_plainly(const MergeTable& merges, std::vector<TokenId> symbols) {
  while (true) {
    const MergeTable::Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto* merge = merges.find(symbols[i], symbols[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (best == nullptr) return symbols;
    symbols[at] = best->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(TokenizerMerges, AreThoseOfTheDefinition) {
  std::mt19937 random(3);
  Merger merger;
  for (int round = 0; round < share_of(400); ++round) {
    const auto tokens = static_cast<TokenId>(4 + random() % 40);
    MergeTable merges(200);
    TokenId next = tokens;
    for (std::uint32_t rank = 0; rank < 200; ++rank) {
      const auto any = [&] { return static_cast<TokenId>(random() % static_cast<unsigned>(next)); };
      const TokenId left = any(), right = any();
      if (merges.find(left, right) == nullptr) merges.insert(left, right, {rank, next++});
    }
    std::vector<TokenId> symbols(random() % 60), found;
    for (TokenId& symbol : symbols)
      symbol = static_cast<TokenId>(random() % static_cast<unsigned>(tokens));
    merger(merges, symbols, found);
    EXPECT_EQ(found, merged_plainly(merges, symbols));
  }
}

// A word of a million letters, each of which merges again and again: minutes, if it were quadratic.
TEST(TokenizerMerges, LongWordsTakeNoMinutes) {
  TokenizerText text = small_byte_level();
  std::string unit = "a";
  for (int i = 0; i < 8; ++i) {
    add_merge(text, unit, unit);
    unit += unit;
  }
  text.added = "[]";
  const Tokenizer tokenizer = open(text);
  const std::size_t length = static_cast<std::size_t>(share_of(1'000'000));
  const auto start = std::chrono::steady_clock::now();
  const std::string word(length, 'a');
  const std::vector<TokenId> ids = tokenizer.encode(word);
  EXPECT_LE(ids.size(), length / 256 + 8);
  EXPECT_EQ(tokenizer.decode(ids), word);
  const std::string spaces(length, ' ');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(spaces)), spaces);
  const auto seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(std::chrono::duration<double>(seconds).count(), 60);
}

// --- whole tokenizers -------------------------------------------------------------------------

struct Golden {
  std::string text;
  std::vector<TokenId> ids;
};

void expect_golden(const Tokenizer& tokenizer, const std::vector<Golden>& goldens) {
  for (const Golden& golden : goldens) {
    EXPECT_EQ(tokenizer.encode(golden.text), golden.ids) << golden.text;
    // Special tokens are left out when decoding, and are the only ones.
    std::string without = golden.text;
    for (const std::string token : {"<|end|>", "</s>"}) {
      for (auto at = without.find(token); at != without.npos; at = without.find(token)) {
        without.erase(at, token.size());
      }
    }
    // A Llama's piece after a special token has a space of its own in front, which stays.
    if (golden.text.find("</s>") != golden.text.npos) without = "hello  hello";
    EXPECT_EQ(tokenizer.decode(golden.ids), without);
  }
}

// The ids are those of PyPI's tokenizers 0.23 for the same tokenizer.json.
TEST(Tokenizer, Gpt2Goldens) {
  const Tokenizer tokenizer = open(small_byte_level());
  EXPECT_EQ(tokenizer.kind(), "byte-level BPE with GPT-2's words");
  EXPECT_EQ(tokenizer.size(), 270);
  expect_golden(
      tokenizer,
      {
          {"hello world", {259, 262, 267}},
          {"hello  hello\012\012\012world's 1212 121",
           {259, 32, 32, 259, 268, 10, 119, 261, 267, 266, 32, 263, 263, 32, 263, 49}},
          {"Ti\341\272\277ng Vi\341\273\207t",
           {84, 105, 225, 186, 191, 110, 103, 32, 86, 105, 265, 135, 116}},
          {"\354\226\264\355\205\220\354\205\230", {236, 150, 180, 237, 133, 144, 236, 133, 152}},
          {"\346\263\250\346\204\217\345\212\233", {230, 179, 168, 230, 132, 143, 229, 138, 155}},
          {"\360\237\221\251\342\200\215\360\237\232\200",
           {240, 159, 145, 169, 226, 128, 141, 240, 159, 154, 128}},
          {"e\314\201", {101, 204, 129}},
          {"  \012  x", {264, 10, 32, 32, 120}},
          {"HE'S he's", {72, 69, 39, 83, 32, 256, 266}},
          {"a\302\240hello<|end|> hello<|end|>", {97, 194, 160, 259, 269, 32, 259, 269}},
          {"hell world's", {258, 262, 267, 266}},
          {"\01112345\015\012", {9, 263, 51, 52, 53, 13, 10}},
      });
}

TEST(Tokenizer, Llama3Goldens) {
  const Tokenizer tokenizer = open(small_llama3());
  EXPECT_EQ(tokenizer.kind(), "byte-level BPE with Llama 3's words");
  expect_golden(
      tokenizer,
      {
          {"hello world", {269, 259, 262, 267}},
          {"hello  hello\012\012\012world's 1212 121",
           {269, 259, 32, 32, 259, 268, 10, 119, 261, 267, 266, 32, 263, 49, 50, 32, 263, 49}},
          {"Ti\341\272\277ng Vi\341\273\207t",
           {269, 84, 105, 225, 186, 191, 110, 103, 32, 86, 105, 265, 135, 116}},
          {"\354\226\264\355\205\220\354\205\230",
           {269, 236, 150, 180, 237, 133, 144, 236, 133, 152}},
          {"\346\263\250\346\204\217\345\212\233",
           {269, 230, 179, 168, 230, 132, 143, 229, 138, 155}},
          {"\360\237\221\251\342\200\215\360\237\232\200",
           {269, 240, 159, 145, 169, 226, 128, 141, 240, 159, 154, 128}},
          {"e\314\201", {269, 101, 204, 129}},
          {"  \012  x", {269, 264, 10, 32, 32, 120}},
          {"HE'S he's", {269, 72, 69, 39, 83, 32, 256, 266}},
          {"a\302\240hello<|end|> hello<|end|>", {269, 97, 194, 160, 259, 269, 32, 259, 269}},
          {"hell world's", {269, 258, 262, 267, 266}},
          {"\01112345\015\012", {269, 9, 263, 51, 52, 53, 13, 10}},
      });
  EXPECT_EQ(tokenizer.encode("hello", false), std::vector<TokenId>{259});
  TokenizerText text = small_llama3();  // a word that is a token, though its merges lead elsewhere
  add_vocabulary(text, "@x");
  text.added = "[]";
  text.post_processor = "null";
  EXPECT_EQ(open(text).encode("@x"), (std::vector<TokenId>{'@', 'x'}));
  text.model += R"(, "ignore_merges": true)";
  EXPECT_EQ(open(text).encode("@x"), std::vector<TokenId>{269});
}

TEST(Tokenizer, Llama2Goldens) {
  const Tokenizer tokenizer = open(small_llama2());
  EXPECT_EQ(tokenizer.kind(), "byte-fallback BPE");
  expect_golden(tokenizer, {
                               {"hello world", {1, 279, 259, 264, 283, 262, 266}},
                               {"hello  hello\012\012\012world's 1212 121",
                                {1,  279, 259, 279, 13,  13,  13,  264, 283, 262, 266,
                                 42, 118, 259, 267, 268, 267, 268, 259, 267, 268, 267}},
                               {"Ti\341\272\277ng Vi\341\273\207t",
                                {1, 282, 269, 270, 281, 259, 274, 269, 228, 190, 138, 119}},
                               {"\354\226\264\355\205\220\354\205\230",
                                {1, 259, 239, 153, 183, 240, 136, 147, 239, 136, 155}},
                               {"\346\263\250\346\204\217\345\212\233",
                                {1, 259, 233, 182, 171, 233, 135, 146, 232, 141, 158}},
                               {"\360\237\221\251\342\200\215\360\237\232\200",
                                {1, 259, 243, 162, 148, 172, 229, 131, 144, 243, 162, 157, 131}},
                               {"e\314\201", {1, 259, 261, 207, 132}},
                               {"  \012  x", {1, 280, 259, 13, 280, 123}},
                               {"HE'S he's", {1, 259, 75, 72, 42, 86, 275, 261, 42, 118}},
                               {"hello</s> hello", {1, 279, 2, 259, 279}},
                               {"hell world's", {1, 278, 259, 264, 283, 262, 266, 42, 118}},
                               {"\01112345\015\012", {1, 259, 12, 267, 268, 54, 55, 56, 16, 13}},
                           });
}

TEST(Tokenizer, BrokenUtf8IsReplaced) {
  const Tokenizer tokenizer = open(small_byte_level());
  EXPECT_EQ(tokenizer.encode("he\xffllo\xe1\xbb"), tokenizer.encode("he\ufffdllo\ufffd"));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{104, 0xe1, 104}), "h\ufffdh");
}

TEST(Tokenizer, AddedTokensTakeSpacesAndTheLongestWins) {
  TokenizerText text = small_byte_level();
  text.added = R"([{"id": 269, "content": "<a>", "lstrip": true, "rstrip": true, "special": true},
                   {"id": 270, "content": "<a>b", "special": false},
                   {"id": 60, "content": "<", "special": true}])";
  const Tokenizer tokenizer = open(text);
  EXPECT_EQ(tokenizer.encode("1 \n <a>  2"), (std::vector<TokenId>{'1', 269, '2'}));
  EXPECT_EQ(tokenizer.encode("<a>b<<a"), (std::vector<TokenId>{269, 'b', '<', '<', 'a'}));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{270, '<', '1'}), "<a>b1");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{270, '<', '1'}, false), "<a>b<1");
  EXPECT_TRUE(tokenizer.is_special('<'));
  EXPECT_FALSE(tokenizer.is_special(270));
}

// As in PyPI's tokenizers, and in GPT-2's own code.
TEST(Tokenizer, OfEqualMergesTheLaterCounts) {
  TokenizerText text = small_byte_level();
  text.added = "[]";
  add_merge(text, "x", "y");  // 269, 270
  add_merge(text, "y", "z");
  EXPECT_EQ(open(text).encode("xyz"), (std::vector<TokenId>{269, 'z'}));
  text.merges += R"(, "x y")";
  EXPECT_EQ(open(text).encode("xyz"), (std::vector<TokenId>{'x', 270}));
}

// An added token is found where it stands alone in the text, and is none of the model's symbols.
TEST(Tokenizer, AddedTokensAreNoSymbolsOfWords) {
  TokenizerText text = small_llama2();
  // Normalised, it is found as "▁Q" only.
  text.added.insert(text.added.size() - 1, R"(, {"id": 284, "content": "Q", "special": false})");
  const Tokenizer tokenizer = open(text);
  EXPECT_EQ(tokenizer.encode("Q hQ Q", false), (std::vector<TokenId>{284, 275, 3 + 'Q', 284}));
  EXPECT_EQ(tokenizer.find("Q"), 284);
  // Of two that are the same once they are normalised, the first.
  text.added.insert(text.added.size() - 1,
                    R"(, {"id": 285, "content": "  "}, {"id": 286, "content": " \u2581"})");
  EXPECT_EQ(open(text).encode("  h", false), (std::vector<TokenId>{285, 260}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Q hQ Q")), "Q hQ Q");
  // The same of a word that would be a token.
  TokenizerText words = small_llama3();
  words.model += R"(, "ignore_merges": true)";
  words.added = R"([{"id": 269, "content": "\u0120x", "special": false}])";
  words.post_processor = "null";
  EXPECT_EQ(open(words).encode(" x"), (std::vector<TokenId>{' ', 'x'}));
}

TEST(Tokenizer, Metaspace) {
  TokenizerText text = small_llama2();
  text.normalizer = "null";
  const auto metaspace = [&](const char* scheme, const char* split) {
    text.pre_tokenizer = std::string(R"({"type": "Metaspace", "replacement": "▁", )") +
                         R"("prepend_scheme": ")" + scheme + R"(", "split": )" + split + "}";
    return open(text);
  };
  // ▁hello is 279; </s> is 2. A piece after a special token gets a ▁ only from "always".
  EXPECT_EQ(metaspace("first", "false").encode("hello</s>hello"),
            (std::vector<TokenId>{1, 279, 2, 260, 277, 263}));
  EXPECT_EQ(metaspace("always", "false").encode("hello</s>hello hello"),
            (std::vector<TokenId>{1, 279, 2, 279, 279}));
  // Split at each mark, ▁▁ cannot merge.
  EXPECT_EQ(metaspace("first", "false").encode("  "), (std::vector<TokenId>{1, 280}));
  EXPECT_EQ(metaspace("first", "true").encode("  "), (std::vector<TokenId>{1, 259, 259}));
}

TEST(Tokenizer, VocabAndMergesFiles) {
  const TokenizerText text = small_byte_level();
  std::string merges = "#version: 0.2\n";
  for (const char c : text.merges) {
    if (c == ',') merges += '\n';
    if (c != '"' && c != ',') merges += c;
  }
  for (std::size_t at = merges.find("\n "); at != merges.npos; at = merges.find("\n ")) {
    merges.erase(at + 1, 1);
  }
  const std::string vocab = "{" + text.vocab + R"(, "<|endoftext|>": 269})";
  const Tokenizer tokenizer = Tokenizer::from_vocab_and_merges(vocab, merges, "folder");
  EXPECT_EQ(tokenizer.encode("hello world<|endoftext|>"),
            (std::vector<TokenId>{259, 262, 267, 269}));
  EXPECT_TRUE(tokenizer.is_special(269));
  EXPECT_EQ(tokenizer.find("\u0120w"), 260);
  EXPECT_EQ(tokenizer.find(" w"), std::nullopt);
  EXPECT_EQ(tokenizer.bytes(260), " w");
  expect_error(ErrorKind::value, {"folder", "line 2", "two tokens", "'h e x'"}, [&] {
    (void)Tokenizer::from_vocab_and_merges(vocab, "#version\nh e x\n", "folder");
  });
}

// --- what is refused --------------------------------------------------------------------------

void expect_refused(const std::string& json, std::initializer_list<std::string_view> fragments) {
  expect_error(ErrorKind::value, fragments, [&] { (void)Tokenizer::from_json(json, "t.json"); });
}

TEST(TokenizerRefuses, StrangersByTheirName) {
  const auto changed = [](auto&& change) {
    TokenizerText text = small_byte_level();
    change(text);
    return text.json();
  };
  expect_refused(changed([](auto& t) { t.model = R"("type": "WordPiece")"; }),
                 {"t.json", "model.type", "BPE", "'WordPiece'"});
  expect_refused(changed([](auto& t) { t.model = R"("type": "Unigram")"; }), {"'Unigram'"});
  expect_refused(changed([](auto& t) { t.normalizer = R"({"type": "NFC"})"; }),
                 {"normalizer.type", "'NFC'"});
  expect_refused(changed([](auto& t) { t.pre_tokenizer = R"({"type": "BertPreTokenizer"})"; }),
                 {"pre_tokenizer.type", "'BertPreTokenizer'"});
  expect_refused(changed([](auto& t) { t.pre_tokenizer = "null"; }), {"byte_fallback"});
  expect_refused(changed([](auto& t) {
                   t.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
                     "pattern": {"Regex": "x+"}, "behavior": "Isolated"}]})";
                 }),
                 {"pretokenizers[0].pattern.Regex", "Llama 3", "'x+'"});
  expect_refused(changed([](auto& t) { t.post_processor = R"({"type": "BertProcessing"})"; }),
                 {"post_processor.type", "BertProcessing"});
  expect_refused(changed([](auto& t) { t.decoder = R"({"type": "CTC"})"; }), {"decoder.type"});
  expect_refused(changed([](auto& t) {
                   t = small_llama3();
                   const std::size_t at = t.pre_tokenizer.find("\"add_prefix_space\": false");
                   t.pre_tokenizer.replace(at, 25, "\"add_prefix_space\": true");
                 }),
                 {"pretokenizers[1].add_prefix_space", "false after a Split"});
  expect_refused(changed([](auto& t) { t.model += R"(, "dropout": 0.1)"; }), {"model.dropout"});
  expect_refused(changed([](auto& t) { t.model += R"(, "end_of_word_suffix": "</w>")"; }),
                 {"end_of_word_suffix"});
}

// Without Fuse, Strip would take a space of every token; other orders give other texts as well.
TEST(TokenizerRefuses, OtherDecodersOfBytes) {
  const std::string replace = R"({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})",
                    bytes = R"({"type": "ByteFallback"})", fuse = R"({"type": "Fuse"})",
                    strip = R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})";
  const auto with = [](std::initializer_list<std::string> decoders) {
    TokenizerText text = small_llama2();
    text.decoder = R"({"type": "Sequence", "decoders": [)";
    for (const std::string& each : decoders) text.decoder += each + ", ";
    text.decoder.resize(text.decoder.size() - 2);
    text.decoder += "]}";
    return text.json();
  };
  EXPECT_NO_THROW((void)Tokenizer::from_json(with({replace, bytes, fuse, strip}), "t.json"));
  EXPECT_NO_THROW((void)Tokenizer::from_json(with({replace, bytes, fuse}), "t.json"));
  expect_refused(with({replace, bytes, strip}), {"decoders[2].type", "Fuse", "Strip"});
  expect_refused(with({bytes, replace, fuse}), {"decoders[0].type", "Replace", "ByteFallback"});
  expect_refused(with({replace, bytes}), {"decoder", "Fuse"});
  expect_refused(with({replace, bytes, fuse, strip, strip}), {"decoders[4]"});
  expect_refused(with({R"({"type": "Metaspace", "replacement": "▁"})"}), {"'Metaspace'"});
}

TEST(TokenizerRefuses, WhatIsHostile) {
  const auto vocab = [](const std::string& entries, const std::string& merges = "") {
    TokenizerText text;
    text.pre_tokenizer = kByteLevel;
    text.vocab = entries;
    text.merges = merges;
    return text.json();
  };
  expect_refused(vocab(""), {"model.vocab"});
  expect_refused(vocab(R"("a": 2000000000)"), {"model.vocab", "2000000000"});
  expect_refused(vocab(R"("a": -1)"), {"model.vocab", "-1"});
  expect_refused(vocab(R"("a": 1.5)"), {"model.vocab", "no integer"});
  expect_refused(vocab(R"("a": 0, "b": 0)"), {"model.vocab", "'b'", "'a'"});
  expect_refused(vocab(R"("a": 0, "a": 1)"), {"JSON", "'a' twice"});
  expect_refused(vocab(R"("a": 0)", R"("a")"), {"model.merges[0]", "'a'"});
  expect_refused(vocab(R"("a": 0)", R"("a b")"), {"model.merges[0]", "'ab'"});
  expect_refused(vocab(R"("a": 0)", R"(["a", "b", "c"])"), {"model.merges[0]"});
  expect_refused(vocab(R"("a": 0)", "7"), {"model.merges[0]", "an array"});
  expect_refused("", {"t.json", "JSON"});
  expect_refused("[]", {"an object"});
  expect_refused("{}", {"model"});
  expect_refused(std::string(100'000, '['), {"at most 64"});
  expect_refused(std::string("{\0}", 3), {"NUL"});
  TokenizerText text = small_byte_level();
  text.added = R"([{"id": 5, "content": "x"}])";
  expect_refused(text.json(), {"added_tokens[0]", "5"});
  text.added = R"([{"id": 4000000000, "content": "x"}])";
  expect_refused(text.json(), {"added_tokens[0].id"});
  text.added = R"([{"id": 300, "content": "a"}])";  // which is 97
  expect_refused(text.json(), {"vocabulary", "one id for 'a'", "97 and 300"});
  text.added = R"([{"id": 269, "content": ""}])";
  expect_refused(text.json(), {"added_tokens[0].content"});
  // A text that the vocabulary cannot spell, and an id that is none.
  const Tokenizer tokenizer = Tokenizer::from_json(vocab(R"("a": 0)"), "t.json");
  expect_error(ErrorKind::value, {"t.json", "0x62"}, [&] { (void)tokenizer.encode("ab"); });
  for (const TokenId id : {-1, 1, 2000000000}) {
    expect_error(ErrorKind::value, {"token id"}, [&] { (void)tokenizer.bytes(id); });
  }
}

using TokenizerFiles = FileTest;

TEST_F(TokenizerFiles, AreOpenedOrRefused) {
  EXPECT_FALSE(Tokenizer::is_in(directory_));
  expect_error(ErrorKind::io, {"vocab.json"}, [&] { (void)Tokenizer::open(directory_); });
  file("tokenizer.model", "x");
  expect_error(ErrorKind::value, {"SentencePiece"}, [&] { (void)Tokenizer::open(directory_); });
  const std::string json = small_llama3().json();
  file("tokenizer.json", json);
  EXPECT_TRUE(Tokenizer::is_in(directory_));
  EXPECT_EQ(Tokenizer::open(directory_).encode("hello", false), std::vector<TokenId>{259});
  EXPECT_EQ(Tokenizer::open(path("tokenizer.json")).size(), 270);
  for (std::size_t size = 0; size < json.size(); size += 7 * kStride) {
    EXPECT_THROW((void)Tokenizer::from_json(json.substr(0, size), "cut"), Error) << size;
  }
}

}  // namespace
}  // namespace qkv::io
