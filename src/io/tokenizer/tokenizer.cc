#include "qkv/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/utf8.h"
#include "io/report.h"
#include "io/tokenizer/parts.h"
#include "io/tokenizer/unicode.h"

namespace qkv {
namespace io {

void AddedTokens::insert(AddedToken token) {
  std::uint64_t node = 0;
  for (const char c : token.content) {
    const std::uint64_t key = node << 8 | static_cast<unsigned char>(c);
    const auto [edge, fresh] = edges_.emplace(key, static_cast<std::uint32_t>(ends_.size()));
    if (fresh) ends_.push_back(-1);
    node = edge->second;
  }
  if (ends_[node] >= 0) return;
  ends_[node] = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

AddedTokens::Match AddedTokens::find(std::string_view text, std::size_t from) const noexcept {
  for (std::size_t begin = from; !tokens_.empty() && begin < text.size(); ++begin) {
    Match match{begin, begin, nullptr};
    std::uint64_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      const auto edge = edges_.find(node << 8 | static_cast<unsigned char>(text[at]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (ends_[node] >= 0) {
        match.end = at + 1;
        match.token = &tokens_[static_cast<std::size_t>(ends_[node])];
      }
    }
    if (match.token != nullptr) return match;
  }
  return {text.size(), text.size(), nullptr};
}

char32_t char_of_byte(unsigned char byte) noexcept {
  if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad)) return byte;
  // The others in order: 0 to 0x20, 0x7f to 0xa0, 0xad.
  if (byte <= 0x20) return 0x100u + byte;
  if (byte == 0xad) return 0x100u + 0x43;
  return 0x100u + 0x21u + (byte - 0x7fu);
}

int byte_of_char(char32_t code) noexcept {
  if (code >= 0x100 && code <= 0x120) return static_cast<int>(code - 0x100);
  if (code >= 0x121 && code <= 0x142) return static_cast<int>(code - 0x121 + 0x7f);
  if (code == 0x143) return 0xad;
  const bool itself =
      (code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xff && code != 0xad);
  return itself ? static_cast<int>(code) : -1;
}

std::string bytes_of_byte_level(std::string_view name) {
  std::string bytes;
  for (std::size_t at = 0; at < name.size();) {
    const Utf8Char c = first_char(name.substr(at));
    const int byte = byte_of_char(c.code);
    if (byte < 0) return std::string(name);
    bytes += static_cast<char>(byte);
    at += c.size;
  }
  return bytes;
}

int byte_of_name(std::string_view name) noexcept {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  const int high = digit(name[3]), low = digit(name[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string bytes_of_byte_fallback(std::string_view name) {
  if (const int byte = byte_of_name(name); byte >= 0)
    return std::string(1, static_cast<char>(byte));
  std::string bytes;
  for (std::size_t at = 0; at < name.size();) {
    const bool mark = name.substr(at).starts_with(kMark);
    bytes += mark ? ' ' : name[at];
    at += mark ? kMark.size() : 1;
  }
  return bytes;
}

namespace {

std::string with_marks(std::string_view text) {
  std::string marked;
  for (const char c : text) {
    if (c == ' ') {
      marked += kMark;
    } else {
      marked += c;
    }
  }
  return marked;
}

std::size_t spaces_at_end(std::string_view text) noexcept {
  std::size_t begin = text.size();
  while (begin > 0) {
    std::size_t at = begin - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    if (kind_of(first_char(text.substr(at)).code) != CharKind::space) break;
    begin = at;
  }
  return begin;
}

std::size_t spaces_at_start(std::string_view text) noexcept {
  std::size_t end = 0;
  while (end < text.size()) {
    const Utf8Char c = first_char(text.substr(end));
    if (kind_of(c.code) != CharKind::space) break;
    end += c.size;
  }
  return end;
}

// One call of encode.
class Encoder {
 public:
  explicit Encoder(const Tokenizer::Parts& parts) : parts_(parts) {}

  std::vector<TokenId> run(std::string_view text, bool add_special) {
    if (add_special) out_ = parts_.before;
    split(parts_.raw, text, [&](std::string_view piece, bool first) {
      const std::string normal = normalized(parts_, piece);
      split(parts_.normalized, normal,
            [&](std::string_view part, bool inner_first) { words(part, first && inner_first); });
    });
    if (add_special) out_.insert(out_.end(), parts_.after.begin(), parts_.after.end());
    return std::move(out_);
  }

 private:
  // Added tokens go straight out, and what is between them to fn(piece, whether it begins the
  // text).
  template <typename Fn>
  void split(const AddedTokens& tokens, std::string_view text, Fn&& fn) {
    std::size_t done = 0;
    for (std::size_t from = 0; done < text.size();) {
      const AddedTokens::Match match = tokens.find(text, from);
      std::size_t begin = match.begin, end = match.end;
      if (match.token != nullptr && match.token->strip_left) {
        begin = done + spaces_at_end(text.substr(done, begin - done));
      }
      if (match.token != nullptr && match.token->strip_right) {
        end += spaces_at_start(text.substr(end));
      }
      if (begin > done) fn(text.substr(done, begin - done), done == 0);
      if (match.token == nullptr) return;
      out_.push_back(match.token->id);
      done = from = end;
    }
  }

  void words(std::string_view text, bool first) {
    std::string changed;
    if (parts_.prefix == Prefix::space && !text.starts_with(' ')) {
      changed = fmt::format(" {}", text);
      text = changed;
    }
    if (parts_.prefix == Prefix::mark_always || parts_.prefix == Prefix::mark_first) {
      changed = with_marks(text);
      if ((first || parts_.prefix == Prefix::mark_always) && !changed.starts_with(kMark)) {
        changed.insert(0, kMark);
      }
      text = changed;
    }
    while (!text.empty()) {
      std::size_t size = first_word(parts_.words, text);
      if (parts_.split_at_marks) size = std::min(text.find(kMark, 1), text.size());
      word(text.substr(0, size));
      text.remove_prefix(size);
    }
  }

  void word(std::string_view text) {
    symbols_.clear();
    unknown_end_ = 0;
    if (parts_.byte_level) {
      if (parts_.ignore_merges && whole_word(text)) return;
      for (const char c : text) byte_symbol(static_cast<unsigned char>(c));
    } else {
      if (parts_.ignore_merges) {
        if (const TokenId id = parts_.model_id(text); id >= 0) return out_.push_back(id);
      }
      for (std::size_t at = 0; at < text.size();) {
        const std::string_view c = text.substr(at, first_char(text.substr(at)).size);
        char_symbol(c);
        at += c.size();
      }
    }
    merge_(parts_.merges, symbols_, out_);
  }

  bool whole_word(std::string_view text) {
    std::string name;
    for (const char c : text) append_utf8(name, char_of_byte(static_cast<unsigned char>(c)));
    const TokenId id = parts_.model_id(name);
    if (id >= 0) out_.push_back(id);
    return id >= 0;
  }

  void byte_symbol(unsigned char byte) {
    const TokenId id = parts_.byte_ids[byte];
    if (id >= 0) return symbols_.push_back(id);
    unknown(fmt::format("byte 0x{:02X}", byte));
  }

  void char_symbol(std::string_view c) {
    if (const TokenId id = parts_.model_id(c); id >= 0) return symbols_.push_back(id);
    const auto known = [&](char b) { return parts_.byte_ids[static_cast<unsigned char>(b)] >= 0; };
    if (!std::all_of(c.begin(), c.end(), known)) return unknown(in_quotes(c));
    for (const char b : c) symbols_.push_back(parts_.byte_ids[static_cast<unsigned char>(b)]);
  }

  void unknown(const std::string& what) {
    if (parts_.unknown < 0) {
      refuse(parts_.where, "text", "characters that the vocabulary has symbols for", what);
    }
    if (parts_.fuse_unknown && !symbols_.empty() && unknown_end_ == symbols_.size()) return;
    symbols_.push_back(parts_.unknown);
    unknown_end_ = symbols_.size();
  }

  const Tokenizer::Parts& parts_;
  std::vector<TokenId> out_, symbols_;
  std::size_t unknown_end_ = 0;  // behind the last symbol that stands for unknown characters
  Merger merge_;
};

}  // namespace

std::string normalized(const Tokenizer::Parts& parts, std::string_view text) {
  if (parts.prefix != Prefix::mark) return std::string(text);
  return text.empty() ? std::string() : std::string(kMark) + with_marks(text);
}

}  // namespace io

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  constexpr std::size_t longest = std::numeric_limits<std::int32_t>::max() / 4;
  if (text.size() > longest) {
    io::refuse("Tokenizer::encode", "text", fmt::format("at most {} bytes", longest),
               fmt::format("{}", text.size()));
  }
  return io::Encoder(*parts_).run(io::with_replacements(text), add_special);
}

std::int64_t Tokenizer::size() const noexcept {
  return static_cast<std::int64_t>(parts_->names.size());
}

bool Tokenizer::contains(std::int32_t id) const noexcept {
  return id >= 0 && id < size() && parts_->present[static_cast<std::size_t>(id)] != 0;
}

bool Tokenizer::is_special(std::int32_t id) const noexcept {
  return contains(id) && parts_->special[static_cast<std::size_t>(id)] != 0;
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
  if (!contains(id)) {
    io::refuse(parts_->where, "token id", fmt::format("one of the vocabulary, below {}", size()),
               fmt::format("{}", id));
  }
  return parts_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  const Parts& parts = *parts_;
  std::string text, run;  // of tokens of a byte each, in a row
  const auto end_run = [&] {
    text += io::is_utf8(run) ? run : io::replacements(run.size());
    run.clear();
  };
  for (const std::int32_t id : ids) {
    const std::string_view token = bytes(id);
    if (skip_special && is_special(id)) continue;
    if (parts.one_byte[static_cast<std::size_t>(id)] != 0) {
      run += token;
    } else {
      end_run();
      text += token;
    }
  }
  end_run();
  if (parts.strip_first_space && text.starts_with(' ')) text.erase(0, 1);
  return parts.byte_level ? io::with_replacements(text) : text;
}

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const noexcept {
  const auto id = parts_->ids.find(token);
  if (id == parts_->ids.end()) return std::nullopt;
  return id->second;
}

std::string_view Tokenizer::kind() const noexcept {
  if (!parts_->byte_level) return "byte-fallback BPE";
  switch (parts_->words) {
    case io::PreTokenizer::gpt2: return "byte-level BPE with GPT-2's words";
    case io::PreTokenizer::llama3: return "byte-level BPE with Llama 3's words";
    default: return "byte-level BPE";
  }
}

TokenStream::TokenStream(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string TokenStream::push(std::int32_t id) {
  const std::string_view bytes = tokenizer_.bytes(id);
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  const Tokenizer::Parts& parts = *tokenizer_.parts_;
  if (parts.byte_level) {
    held_ += bytes;
    return whole_characters();
  }
  std::string ready;
  if (parts.one_byte[static_cast<std::size_t>(id)] != 0) {
    ready = push_byte(bytes[0]);
  } else {
    ready = end_run().append(bytes);
  }
  if (first_ && parts.strip_first_space && ready.starts_with(' ')) ready.erase(0, 1);
  first_ = first_ && bytes.empty();
  return ready;
}

// Byte-level: all but a character that is still incomplete at the end.
std::string TokenStream::whole_characters() {
  std::size_t keep = 0;
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, held_.size()); ++back) {
    const std::string_view end = std::string_view(held_).substr(held_.size() - back);
    if (utf8_sequence(end) == 0 && io::may_become_utf8(end)) keep = back;
  }
  std::string ready = held_.substr(0, held_.size() - keep);
  held_.erase(0, ready.size());
  return io::with_replacements(ready);
}

// Byte-fallback: held_ is the character that a run of bytes is about to spell.
std::string TokenStream::push_byte(char byte) {
  held_ += byte;
  if (!broken_ && utf8_sequence(held_) == 0) {
    if (io::may_become_utf8(held_)) return {};
    broken_ = true;
  }
  std::string ready = broken_ ? io::replacements(held_.size()) : held_;
  held_.clear();
  return ready;
}

std::string TokenStream::end_run() {
  std::string rest = io::replacements(held_.size());
  held_.clear();
  broken_ = false;
  return rest;
}

std::string TokenStream::finish() {
  first_ = true;
  if (!tokenizer_.parts_->byte_level) return end_run();
  std::string rest = io::with_replacements(held_);
  held_.clear();
  return rest;
}

}  // namespace qkv
