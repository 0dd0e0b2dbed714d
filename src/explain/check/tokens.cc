#include "explain/check/tokens.h"

#include <array>
#include <string_view>

namespace qkv::check {
namespace {

struct Spelling {
  std::string_view written;
  Token::Kind kind;
  std::string_view text;
};

constexpr Token::Kind kOp = Token::Kind::op;
constexpr Token::Kind kSign = Token::Kind::sign;

// Longer spellings stand before their beginnings.
constexpr Spelling kSpellings[] = {
    {"//", kOp, "//"},
    {"**", kOp, "^"},
    {"->", kSign, ">"},
    {"=>", kSign, ">"},
    {"==", kSign, "="},
    {":=", kSign, "="},
    {"→", kSign, ">"},
    {"⇒", kSign, ">"},
    {"⟶", kSign, ">"},
    {"≈", kSign, "="},
    {"≃", kSign, "="},
    {"=", kSign, "="},
    {":", kSign, ":"},
    {"：", kSign, ":"},
    {"∈", kSign, ":"},
    {"+", kOp, "+"},
    {"-", kOp, "-"},
    {"−", kOp, "-"},
    {"*", kOp, "*"},
    {"·", kOp, "·"},
    {"⋅", kOp, "·"},
    {"∙", kOp, "·"},
    {"•", kOp, "·"},
    {"×", kOp, "×"},
    {"@", kOp, "@"},
    {"/", kOp, "/"},
    {"÷", kOp, "/"},
    {"^", kOp, "^"},
    {"√", kOp, "√"},
    {"ᵀ", kOp, "ᵀ"},
    {"(", kOp, "("},
    {")", kOp, ")"},
    {"[", kOp, "["},
    {"]", kOp, "]"},
    {",", kOp, ","},
    {"，", kOp, ","},
    {"、", kOp, ","},
    {"（", kOp, "("},
    {"）", kOp, ")"},
    {".", kOp, "."},
    {"\\cdot", kOp, "·"},
    {"\\times", kOp, "×"},
    {"\\sqrt", kOp, "√"},
    {"\\top", Token::Kind::name, "T"},
    {"\\rightarrow", kSign, ">"},
    {"\\to", kSign, ">"},
    {"\\approx", kSign, "="},
    {"\\in", kSign, ":"},
    {"{", kOp, "("},
    {"\\frac", Token::Kind::name, "\\frac"},
    {"}", kOp, ")"},
};

const Spelling* spelling_at(std::string_view text, std::size_t at) {
  for (const Spelling& spelling : kSpellings) {
    if (looking_at(text, at, spelling.written)) return &spelling;
  }
  return nullptr;
}

// Bytes of a subscript after an underscore or a caret, {…} included; 0 if there is none. A caret
// only takes Q, K, V, O: W^Q is a name, X^T is not.
std::size_t script_length(std::string_view text, std::size_t at) {
  if (at >= text.size() || (text[at] != '_' && text[at] != '^')) return 0;
  const bool caret = text[at] == '^';
  const bool brace = looking_at(text, at + 1, "{");
  std::size_t end = at + 1 + (brace ? 1 : 0);
  const std::size_t begin = end;
  while (end < text.size() && end - begin < 16 &&
         (is_digit(text[end]) || (is_letter(text[end]) && text[end] != '_'))) {
    ++end;
  }
  if (end == begin) return 0;
  if (caret &&
      (end != begin + 1 || std::string_view("QKVO").find(text[begin]) == std::string_view::npos)) {
    return 0;
  }
  if (brace && !looking_at(text, end, "}")) return 0;
  return end - at + (brace ? 1 : 0);
}

class Tokenizer {
 public:
  Tokenizer(const Source& source, const std::vector<Literal>& literals,
            const std::vector<bool>& is_table_line)
      : source_(source), text_(source.text()), literals_(literals), is_table_line_(is_table_line) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) step();
    push(Token::Kind::end, 0);
    return std::move(tokens_);
  }

 private:
  void push(Token::Kind kind, std::size_t length, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.begin = at_;
    token.end = at_ + length;
    token.spaced = spaced_;
    spaced_ = false;
    tokens_.push_back(std::move(token));
    at_ += length;
  }

  void step() {
    const char c = text_[at_];
    if (c == '\n') {
      push(Token::Kind::end, 1);
      ++line_;
    } else if (c == '|' && is_table_line_[static_cast<std::size_t>(line_)]) {
      push(Token::Kind::end, 1);
    } else if (is_space(c) || is_markup(c)) {
      spaced_ = spaced_ || is_space(c);
      ++at_;
    } else if (!take_literal() && !take_number() && !take_spelling() && !take_name()) {
      push(Token::Kind::other, 1);
    }
  }

  // ` $ & and bold marks stand around equations, not in them. One * is a product.
  bool is_markup(char c) {
    if (c == '`' || c == '$' || c == '&') return true;
    if (looking_at(text_, at_, "\\\\")) {
      ++at_;
      return true;
    }
    for (std::string_view command : {"\\left", "\\right", "\\quad", "\\,", "\\;", "\\!"}) {
      if (looking_at(text_, at_, command) && !looking_at(text_, at_, "\\rightarrow")) {
        at_ += command.size() - 1;
        return true;
      }
    }
    // A list's mark is no minus.
    if ((c == '-' || c == '*' || c == '+') && !source_.is_code(line_) &&
        looking_at(text_, at_ + 1, " ") &&
        trim(text_.substr(source_.start(line_), at_ - source_.start(line_))).empty()) {
      return true;
    }
    // ** next to a blank or to nothing is bold; between operands it is a power.
    if (looking_at(text_, at_, "**") && !source_.is_code(line_)) {
      ++at_;
      return true;
    }
    return false;
  }

  bool take_literal() {
    while (next_ < literals_.size() && literals_[next_].begin < at_) ++next_;
    if (next_ >= literals_.size() || literals_[next_].begin != at_) return false;
    const std::size_t end = literals_[next_].end;
    push(Token::Kind::literal, end - at_);
    tokens_.back().literal = next_;
    line_ = source_.line_of(end < text_.size() ? end : end - 1);
    return true;
  }

  bool take_number() {
    const char c = text_[at_];
    if (!is_digit(c) && !(c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      return false;
    }
    auto number = read_number(text_, at_);
    if (!number) return false;
    // "4." ends a sentence rather than a number.
    if (text_[number->end - 1] == '.') --number->end;
    push(Token::Kind::number, number->end - at_);
    tokens_.back().number = *number;
    return true;
  }

  bool take_spelling() {
    const Spelling* spelling = spelling_at(text_, at_);
    if (spelling == nullptr) return false;
    if (spelling->text == "." && spaced_ && looking_at(text_, at_ + 1, " ")) {
      push(Token::Kind::op, 1, "·");  // q1 . k1
      return true;
    }
    push(spelling->kind, spelling->written.size(), std::string(spelling->text));
    return true;
  }

  bool take_name() {
    const std::size_t begin = at_;
    std::size_t end = at_;
    const bool east_asian = is_east_asian(text_[begin]);
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) {
      // 例如B, Q는: a name ends where the script does.
      const bool leads = (static_cast<unsigned char>(text_[end]) & 0xC0) != 0x80;
      if (leads && is_east_asian(text_[end]) != east_asian) break;
      if (static_cast<unsigned char>(text_[end]) >= 0x80 && spelling_at(text_, end) != nullptr)
        break;
      if (text_[end] == '_' && script_length(text_, end) > 0 && looking_at(text_, end + 1, "{"))
        break;
      ++end;
    }
    if (end == begin) return false;
    while (const std::size_t script = script_length(text_, end)) end += script;
    std::string name;
    for (char c : text_.substr(begin, end - begin)) {
      if (c != '{' && c != '}' && c != '^') name += c;
    }
    push(Token::Kind::name, end - begin, std::move(name));
    return true;
  }

  const Source& source_;
  std::string_view text_;
  const std::vector<Literal>& literals_;
  const std::vector<bool>& is_table_line_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0, next_ = 0;
  std::int64_t line_ = 0;
  bool spaced_ = false;
};

}  // namespace

std::vector<Token> tokens_of(const Source& source, const std::vector<Literal>& literals,
                             const std::vector<bool>& is_table_line) {
  return Tokenizer(source, literals, is_table_line).run();
}

}  // namespace qkv::check
