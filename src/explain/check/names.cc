#include "explain/check/names.h"

#include <array>
#include <charconv>
#include <vector>

#include "explain/check/text.h"

namespace qkv::check {
namespace {

struct Word {
  std::string_view text;
  Role role;
};

// Plain names, as plain_name makes them. Names of one letter hold only where a name is expected.
constexpr Word kNames[] = {
    {"x", Role::input},
    {"input", Role::input},
    {"inputs", Role::input},
    {"embedding", Role::input},
    {"embeddings", Role::input},
    {"wq", Role::w_query},
    {"wquery", Role::w_query},
    {"wk", Role::w_key},
    {"wkey", Role::w_key},
    {"wv", Role::w_value},
    {"wvalue", Role::w_value},
    {"wo", Role::w_output},
    {"wout", Role::w_output},
    {"woutput", Role::w_output},
    {"bq", Role::b_query},
    {"bk", Role::b_key},
    {"bv", Role::b_value},
    {"q", Role::query},
    {"query", Role::query},
    {"queries", Role::query},
    {"k", Role::key},
    {"key", Role::key},
    {"keys", Role::key},
    {"v", Role::value},
    {"value", Role::value},
    {"values", Role::value},
    {"qkv", Role::qkv},
    {"s", Role::scores},
    {"score", Role::scores},
    {"scores", Role::scores},
    {"attnscore", Role::scores},
    {"attnscores", Role::scores},
    {"attentionscores", Role::scores},
    {"logits", Role::scores},
    {"qkt", Role::scores},
    {"scaled", Role::scores},
    {"scaledscores", Role::scores},
    {"masked", Role::scores},
    {"maskedscores", Role::scores},
    {"a", Role::weights},
    {"p", Role::weights},
    {"attn", Role::weights},
    {"attention", Role::weights},
    {"alpha", Role::weights},
    {"weight", Role::weights},
    {"weights", Role::weights},
    {"attnweights", Role::weights},
    {"attentionweights", Role::weights},
    {"softmax", Role::weights},
    {"z", Role::output},
    {"o", Role::output},
    {"out", Role::output},
    {"output", Role::output},
    {"outputs", Role::output},
    {"context", Role::output},
    {"contextvec", Role::output},
    {"contextvecs", Role::output},
    {"contextvector", Role::output},
    {"contextvectors", Role::output},
};

// Words of languages that are not split at spaces, or have two syllables: found as substrings. The
// first of a line wins, and at one place the longer one.
constexpr Word kPhrases[] = {
    {"điểm số", Role::scores},    {"Điểm số", Role::scores},   {"điểm chú ý", Role::scores},
    {"Điểm chú ý", Role::scores}, {"trọng số", Role::weights}, {"Trọng số", Role::weights},
    {"đầu vào", Role::input},     {"Đầu vào", Role::input},    {"đầu ra", Role::output},
    {"Đầu ra", Role::output},     {"ngữ cảnh", Role::output},  {"점수", Role::scores},
    {"스코어", Role::scores},     {"가중치", Role::weights},   {"입력", Role::input},
    {"출력", Role::output},       {"문맥", Role::output},      {"컨텍스트", Role::output},
    {"쿼리", Role::query},        {"分数", Role::scores},      {"得分", Role::scores},
    {"权重", Role::weights},      {"输入", Role::input},       {"输出", Role::output},
    {"上下文", Role::output},     {"查询", Role::query},
};

// Names of one letter that mean something else in most notes, unless they are capitals.
bool is_common_letter(std::string_view name) {
  return name.size() == 1 && std::string_view("aspo").find(name) != std::string_view::npos;
}

Role find_name(std::string_view plain, bool letters) {
  for (const Word& word : kNames) {
    if (word.text == plain && (letters || word.text.size() > 1)) return word.role;
  }
  return Role::none;
}

// ₀…₉ are E2 82 80…89; ᵀ and ^T, which only turn a matrix, are left to formulas.
void append_plain(std::string& plain, std::string_view name, std::size_t& at) {
  if (looking_at(name, at, "\xE2\x82") && at + 2 < name.size() &&
      static_cast<unsigned char>(name[at + 2]) <= 0x89) {
    plain += static_cast<char>('0' + (static_cast<unsigned char>(name[at + 2]) - 0x80));
    at += 3;
    return;
  }
  for (std::string_view command :
       {"\\mathbf", "\\mathrm", "\\text", "\\boldsymbol", "\\bm", "\\mathit"}) {
    if (looking_at(name, at, command)) {
      at += command.size();
      return;
    }
  }
  constexpr std::string_view typography = "*`$\\{}_^ \t\r\"'&-";
  if (typography.find(name[at]) == std::string_view::npos) plain += to_lower(name[at]);
  ++at;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Formulas that stand where a name could: Q·Kᵀ, softmax(S), weights @ V.
Role role_of_formula(std::string_view plain) {
  const std::size_t softmax = plain.find("softmax(");
  if (softmax != std::string_view::npos) {
    const std::size_t close = plain.rfind(')');
    const std::string_view rest =
        close == std::string_view::npos ? std::string_view{} : plain.substr(close + 1);
    return has(rest, "v") || has(rest, "x") ? Role::output : Role::weights;
  }
  const bool product = has(plain, "·") || has(plain, "@") || has(plain, "⋅") || has(plain, "×") ||
                       has(plain, "cdot");
  const bool turned = has(plain, "ᵀ") || has(plain, ".t") || has(plain, "top") ||
                      plain.ends_with('t') || has(plain, "t/");
  if ((product || turned) && plain.starts_with("q") && has(plain, "k")) return Role::scores;
  if (product && plain.starts_with("x") && plain.find('x', 1) != std::string_view::npos) {
    return Role::scores;
  }
  return Role::none;
}

// Takes a row's number off the end of a name: "z[0]", "q1", "attnscores2", "qp0".
std::optional<int> take_index(std::string& plain) {
  std::string_view rest = plain;
  const bool bracket = rest.ends_with(']') || rest.ends_with(')');
  if (bracket) rest.remove_suffix(1);
  std::size_t begin = rest.size();
  while (begin > 0 && is_digit(rest[begin - 1])) --begin;
  if (begin == rest.size() || rest.size() - begin > 4) return std::nullopt;
  int index = 0;
  std::from_chars(rest.data() + begin, rest.data() + rest.size(), index);
  std::size_t end = begin;
  if (bracket) {
    if (end > 0 && rest[end - 1] == 'p') --end;
    if (end == 0 || (rest[end - 1] != '[' && rest[end - 1] != '(')) return std::nullopt;
    --end;
  } else if (end > 1 && rest[end - 1] == 'p') {
    --end;
  }
  plain.resize(end);
  return index;
}

// q_love, k_I: the row of a token by its word.
std::optional<Role> role_of_word_row(std::string_view name) {
  if (name.size() < 3 || name[1] != '_') return std::nullopt;
  if (std::string_view("xqkvzXQKVZ").find(name[0]) == std::string_view::npos) return std::nullopt;
  const std::string_view word = name.substr(2);
  for (std::string_view other : {"dim", "size", "len", "proj", "norm", "head", "heads", "bias", "i",
                                 "j", "t", "max", "min", "weight"}) {
    if (word == other) return std::nullopt;
  }
  for (char c : word) {
    if (!is_letter(c)) return std::nullopt;
  }
  return find_name(to_lower(name.substr(0, 1)), true);
}

// The words of a line, cut at everything that is no letter, digit or typography of a name.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t begin = std::string_view::npos;
  for (std::size_t i = 0; i <= line.size(); ++i) {
    const bool inside = i < line.size() && (is_letter(line[i]) || is_digit(line[i]) ||
                                            line[i] == '^' || line[i] == '{' || line[i] == '}');
    if (inside && begin == std::string_view::npos) begin = i;
    if (!inside && begin != std::string_view::npos) {
      words.push_back(line.substr(begin, i - begin));
      begin = std::string_view::npos;
    }
  }
  return words;
}

// In prose a single letter is a name only as a capital: "a" is an article. And attention is what
// the whole note is about.
Role role_of_word(std::string_view word) {
  if (to_lower(word) == "attention") return Role::none;
  const bool capital = word.size() == 1 && has("XQKVZ", word);
  return find_name(plain_name(word), capital);
}

struct Mention {
  std::size_t at = std::string_view::npos;
  std::size_t length = 0;
  Role role = Role::none;
};

void keep_first(Mention& best, const Mention& found) {
  if (found.at < best.at || (found.at == best.at && found.length > best.length)) best = found;
}

bool is_weight_matrix(Role role) { return role >= Role::w_query && role <= Role::b_value; }

// Mentions outside of parentheses first: what stands in them explains.
Mention first_mention(std::string_view line) {
  Mention best;
  for (std::string_view word : words_of(line)) {
    const Role role = role_of_word(word);
    if (role == Role::none) continue;
    const auto at = static_cast<std::size_t>(word.data() - line.data());
    // "Trọng số Wq": the matrix is meant, whatever stands before it.
    if (is_weight_matrix(role)) return {at, word.size(), role};
    keep_first(best, {at, word.size(), role});
  }
  for (const Word& phrase : kPhrases) {
    keep_first(best, {line.find(phrase.text), phrase.text.size(), phrase.role});
  }
  return best.at == std::string_view::npos ? Mention{} : best;
}

}  // namespace

std::string_view symbol_of(Role role) noexcept {
  constexpr std::array<std::string_view, 16> symbols = {
      "?",  "X", "Wq", "Wk", "Wv",  "Wo",     "bq",      "bk",
      "bv", "Q", "K",  "V",  "qkv", "scores", "weights", "Z"};
  return symbols[static_cast<std::size_t>(role)];
}

std::string plain_name(std::string_view name) {
  std::string plain;
  for (std::size_t at = 0; at < name.size();) append_plain(plain, name, at);
  return plain;
}

Name role_of_name(std::string_view name) {
  name = trim(name);
  if (name.empty() || name.size() > 120 || is_common_letter(name)) return {};
  std::string plain = plain_name(name);
  if (const Role role = find_name(plain, true); role != Role::none) return {role};
  if (const Role role = role_of_formula(plain); role != Role::none) return {role};
  std::string indexed = plain;
  if (const auto index = take_index(indexed)) {
    if (const Role role = find_name(indexed, true); role != Role::none) return {role, index};
  }
  if (const auto role = role_of_word_row(name)) return {*role, -1};
  // Several words, or another language: "ma trận X", "注意力权重".
  if (has(plain, "·") || has(plain, "=") || has(plain, "@")) return {};
  return {role_in_prose(name)};
}

Role role_in_prose(std::string_view line) {
  line = trim(line);
  if (line.size() > 400) return Role::none;
  while (!line.empty() && (line.front() == '#' || line.front() == '>' || is_space(line.front()))) {
    line.remove_prefix(1);
  }
  if (const std::size_t equals = line.find('='); equals != std::string_view::npos) {
    return role_of_name(line.substr(0, equals)).role;
  }
  std::string outside;
  int depth = 0;
  for (char c : line) {
    if (c == '(') ++depth;
    if (depth == 0) outside += c;
    if (c == ')' && depth > 0) --depth;
  }
  // "softmax of the scores gives the weights:" is about what stands before the colon.
  std::string_view body = trim(outside);
  if (body.ends_with(':') || body.ends_with("：")) {
    const auto words = words_of(body.substr(0, body.size() - (body.ends_with(':') ? 1 : 3)));
    if (!words.empty()) {
      if (const Role role = role_of_word(words.back()); role != Role::none) return role;
    }
  }
  if (const Mention mention = first_mention(outside); mention.role != Role::none) {
    return mention.role;
  }
  return first_mention(line).role;
}

}  // namespace qkv::check
