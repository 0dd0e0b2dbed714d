// Tokens to text, all at once and one by one.

#include <gtest/gtest.h>

#include <random>

#include "io/report.h"
#include "io/tokenizer/test_tokenizers.h"
#include "tests/effort.h"

namespace qkv::io {
namespace {

using Ids = std::vector<TokenId>;

Tokenizer open(const TokenizerText& text) { return Tokenizer::from_json(text.json(), "t.json"); }

// The ids of bytes in small_llama2().
Ids bytes_of(std::string_view bytes) {
  Ids ids;
  for (const char byte : bytes) ids.push_back(3 + static_cast<unsigned char>(byte));
  return ids;
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special = true) {
  TokenStream stream(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_TRUE(is_utf8(piece));
    text += piece;
  }
  return text + stream.finish();
}

const std::string r = "\ufffd";

// The texts are those of PyPI's tokenizers 0.23 for the same ids: bytes in a row are a text, or one
// U+FFFD for each of them, whole characters among them or not.
TEST(TokenizerDecode, BrokenRunsOfBytes) {
  const Tokenizer tokenizer = open(small_llama2());
  const TokenId mark = 259, h = 260, e = 261, end = 2;
  const auto decoded = [&](std::initializer_list<Ids> ids) {
    return tokenizer.decode(joined(ids));
  };
  EXPECT_EQ(decoded({bytes_of("\xe1\xba\xbf")}), "\u1ebf");
  EXPECT_EQ(decoded({bytes_of("\xe1\xba")}), r + r);
  EXPECT_EQ(decoded({{h}, bytes_of("\xe1\xba"), {e}}), "h" + r + r + "e");
  EXPECT_EQ(decoded({bytes_of("A\xff"), {h}}), r + r + "h");
  EXPECT_EQ(decoded({bytes_of("\xc3\xa9\xc3"), {h}, bytes_of("\xc3\xa9")}), r + r + r + "h\u00e9");
  EXPECT_EQ(decoded({bytes_of("\xff"), bytes_of("AB")}), r + r + r);
  EXPECT_EQ(decoded({bytes_of("\xe1"), {mark}, bytes_of("\xba\xbf")}), r + " " + r + r);
  EXPECT_EQ(decoded({bytes_of("\xed\xa0\x80")}), r + r + r);
  EXPECT_EQ(decoded({bytes_of(" A")}), "A");
  EXPECT_EQ(decoded({bytes_of(" \xff")}), r + r);
  // A special token that is left out does not part them; one that is shown does.
  const Ids parted = joined({bytes_of("\xf0\x9f"), {end}, bytes_of("\x99\x82")});
  EXPECT_EQ(tokenizer.decode(parted), "\U0001f642");
  EXPECT_EQ(tokenizer.decode(parted, false), r + r + "</s>" + r + r);
  EXPECT_EQ(streamed(tokenizer, parted), "\U0001f642");
  EXPECT_EQ(streamed(tokenizer, parted, false), r + r + "</s>" + r + r);
}

// Names go the decoder's way, whoever added them; one that is found in normalised text is shown so.
TEST(TokenizerDecode, AddedTokens) {
  TokenizerText text = small_llama2();
  text.added.insert(text.added.size() - 1,
                    R"(, {"id": 68, "content": "<0x41>", "normalized": false},
                         {"id": 284, "content": "\u2581\u2581\u2581", "normalized": false},
                         {"id": 285, "content": "X", "normalized": true})");
  EXPECT_EQ(open(text).decode(Ids{260, 68, 284, 260, 285}), "hA   h X");
  TokenizerText bytes = small_byte_level();  // \u00e9 is what byte 0xE9 is called
  bytes.added = R"([{"id": 233, "content": "\u00e9"}, {"id": 269, "content": "\u00e9 "}])";
  EXPECT_EQ(open(bytes).decode(Ids{233, 269}), r + "\u00e9 ");
}

TEST(TokenizerDecode, OneSpaceInFrontIsTakenOnly) {
  TokenizerText text = small_llama2();
  add_vocabulary(text, "");  // 284
  const Tokenizer tokenizer = open(text);
  for (const Ids& ids : {Ids{259, 259, 260}, Ids{280, 260}, Ids{1, 284, 280, 260}}) {
    EXPECT_EQ(tokenizer.decode(ids), " h");
    EXPECT_EQ(streamed(tokenizer, ids), " h");
  }
}

TEST(TokenStream, HoldsBackWhatIsNotWhole) {
  const Tokenizer tokenizer = open(small_byte_level());
  TokenStream stream(tokenizer);
  EXPECT_EQ(stream.push('a'), "a");
  for (const int byte : {0xf0, 0x9f, 0x99}) EXPECT_EQ(stream.push(byte), "");
  EXPECT_EQ(stream.push(0x82), "\U0001f642");
  EXPECT_EQ(stream.push(0xe1), "");
  EXPECT_EQ(stream.push(269), "");  // special: nothing, and what is held stays
  EXPECT_EQ(stream.push('b'),
            "\ufffd"
            "b");
  EXPECT_EQ(stream.push(0xff), "\ufffd");
  EXPECT_EQ(stream.push(0xc3), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

// Byte-fallback: what is whole comes at once; from the byte that breaks a run, each is a U+FFFD.
TEST(TokenStream, BrokenRunsOfBytes) {
  TokenStream stream(open(small_llama2()));
  const auto push = [&](int byte) { return stream.push(3 + byte); };
  EXPECT_EQ(push(0xc3), "");
  EXPECT_EQ(push(0xa9), "\u00e9");
  EXPECT_EQ(push('A'), "A");
  EXPECT_EQ(push(0xe1), "");
  EXPECT_EQ(push(0xba), "");
  EXPECT_EQ(push('B'), r + r + r);  // no character any more
  EXPECT_EQ(push('C'), r);
  EXPECT_EQ(push(0xc3), r);
  EXPECT_EQ(push(0xa9), r);
  EXPECT_EQ(stream.push(260), "h");
  EXPECT_EQ(push('D'), "D");  // a new run
  EXPECT_EQ(push(0xf0), "");
  EXPECT_EQ(push(0x9f), "");
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.push(261), r + r + "e");
  EXPECT_EQ(push(0xff), r);
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(push(0xe1), "");  // nothing is left of what was broken
  EXPECT_EQ(stream.finish(), r);
}

// The definition, for ids without special tokens: what decode and the stream give.
std::pair<std::string, std::string> defined(const Tokenizer& tokenizer, const Ids& ids) {
  std::string all, shown, run;
  const auto end_run = [&] {
    std::size_t whole = run.size();  // bytes of the longest start that is text
    while (!is_utf8(std::string_view(run).substr(0, whole))) --whole;
    all += whole == run.size() ? run : replacements(run.size());
    shown += run.substr(0, whole) + replacements(run.size() - whole);
    run.clear();
  };
  for (const TokenId id : ids) {
    if (id >= 3 && id < 259) {
      run += tokenizer.bytes(id);
    } else {
      end_run();
      all += tokenizer.bytes(id);
      shown += tokenizer.bytes(id);
    }
  }
  end_run();
  for (std::string* text : {&all, &shown}) {
    if (text->starts_with(' ')) text->erase(0, 1);
  }
  return {all, shown};
}

TEST(TokenStream, GivesWhatIsDefined) {
  std::mt19937 random(9);
  const Tokenizer levels = open(small_byte_level()), fallback = open(small_llama2());
  const auto pieces = {"\u00e9", "\u1ebf", "\U0001f642", "a", " ", "\xc3", "\xe1\xba", "\xff"};
  for (int round = 0; round < share_of(1000); ++round) {
    std::string bytes;
    for (std::size_t n = random() % 8; n > 0; --n)
      bytes += pieces.begin()[random() % pieces.size()];
    Ids level_ids, ids = bytes_of(bytes);
    for (const char byte : bytes) level_ids.push_back(static_cast<unsigned char>(byte));
    EXPECT_EQ(levels.decode(level_ids), with_replacements(bytes));
    EXPECT_EQ(streamed(levels, level_ids), with_replacements(bytes));
    for (std::size_t n = random() % 4; n > 0; --n) {
      const auto at = static_cast<std::ptrdiff_t>(random() % (ids.size() + 1));
      ids.insert(ids.begin() + at, static_cast<TokenId>(259 + random() % 25));
    }
    const auto [all, shown] = defined(fallback, ids);
    EXPECT_EQ(fallback.decode(ids), all);
    EXPECT_EQ(streamed(fallback, ids), shown);
  }
}

}  // namespace
}  // namespace qkv::io
