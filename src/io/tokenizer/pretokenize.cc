#include "io/tokenizer/pretokenize.h"

#include <initializer_list>

#include "io/tokenizer/unicode.h"

namespace qkv::io {
namespace {

// The character at `at`, if there is one.
struct Peek {
  bool there = false;
  char32_t code = 0;
  CharKind kind = CharKind::other;
  std::size_t end = 0;

  bool is(CharKind wanted) const noexcept { return there && kind == wanted; }
};

Peek peek(std::string_view text, std::size_t at) noexcept {
  if (at >= text.size()) return {};
  const Utf8Char c = first_char(text.substr(at));
  return {true, c.code, kind_of(c.code), at + c.size};
}

// Where a run of one kind that begins at `at` ends.
std::size_t run_end(std::string_view text, std::size_t at, CharKind kind) noexcept {
  for (Peek next = peek(text, at); next.is(kind); next = peek(text, at)) at = next.end;
  return at;
}

// 's 't 're 've 'm 'll 'd: bytes, or 0. Regardless of case, U+017F is an s too.
std::size_t contraction(std::string_view text, bool any_case) noexcept {
  if (text[0] != '\'') return 0;
  const auto matches = [&](std::string_view letters) -> std::size_t {
    std::size_t at = 1;
    for (const char wanted : letters) {
      const Peek c = peek(text, at);
      const char32_t code = any_case && c.code >= 'A' && c.code <= 'Z' ? c.code + 32 : c.code;
      const bool long_s = any_case && wanted == 's' && c.code == 0x17f;
      if (!c.there || (code != static_cast<char32_t>(wanted) && !long_s)) return 0;
      at = c.end;
    }
    return at;
  };
  for (const std::string_view letters : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (const std::size_t size = matches(letters)) return size;
  }
  return 0;
}

// \s+(?!\S)|\s+ : a run of spaces, but for its last one if something follows and it is not alone.
std::size_t spaces(std::string_view text) noexcept {
  std::size_t end = 0, before_last = 0;
  for (Peek next = peek(text, 0); next.is(CharKind::space); next = peek(text, end)) {
    before_last = end;
    end = next.end;
  }
  return end == text.size() || before_last == 0 ? end : before_last;
}

std::size_t gpt2_word(std::string_view text) noexcept {
  if (const std::size_t size = contraction(text, false)) return size;
  const std::size_t start = text[0] == ' ' ? 1 : 0;
  const Peek first = peek(text, start);
  if (first.there && first.kind != CharKind::space) return run_end(text, start, first.kind);
  return spaces(text);
}

bool is_line_end(const Peek& c) noexcept { return c.there && (c.code == '\r' || c.code == '\n'); }

// \s*[\r\n]+ : up to the last line end of a run of spaces, or 0.
std::size_t lines(std::string_view text) noexcept {
  std::size_t end = 0, at = 0;
  for (Peek next = peek(text, 0); next.is(CharKind::space); next = peek(text, at)) {
    at = next.end;
    if (is_line_end(next)) end = at;
  }
  return end;
}

std::size_t llama3_word(std::string_view text) noexcept {
  if (const std::size_t size = contraction(text, true)) return size;
  const Peek first = peek(text, 0);
  if (first.kind == CharKind::letter) return run_end(text, 0, CharKind::letter);
  if (first.kind == CharKind::number) {
    Peek last = first;
    for (int more = 0; more < 2; ++more) {
      const Peek next = peek(text, last.end);
      if (!next.is(CharKind::number)) break;
      last = next;
    }
    return last.end;
  }
  if (!is_line_end(first) && peek(text, first.end).is(CharKind::letter)) {
    return run_end(text, first.end, CharKind::letter);
  }
  const std::size_t start = first.code == ' ' ? 1 : 0;
  if (peek(text, start).is(CharKind::other)) {
    std::size_t end = run_end(text, start, CharKind::other);
    for (Peek next = peek(text, end); is_line_end(next); next = peek(text, end)) end = next.end;
    return end;
  }
  if (const std::size_t size = lines(text)) return size;
  return spaces(text);
}

}  // namespace

std::string_view pattern_of(PreTokenizer kind) noexcept {
  switch (kind) {
    case PreTokenizer::gpt2:
      return "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    case PreTokenizer::llama3:
      return "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
             "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    default: return "";
  }
}

std::size_t first_word(PreTokenizer kind, std::string_view text) noexcept {
  switch (kind) {
    case PreTokenizer::gpt2: return gpt2_word(text);
    case PreTokenizer::llama3: return llama3_word(text);
    default: return text.size();
  }
}

}  // namespace qkv::io
