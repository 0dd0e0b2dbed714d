// A recursive descent over the tokens of a line. It starts at every token that may begin an
// expression and keeps what turns out to be a chain; where it fails, the next token is tried.

#include "explain/check/expression.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "explain/check/tokens.h"

namespace qkv::check {
namespace {

using Kind = Node::Kind;
constexpr int kMaxDepth = 40;
constexpr std::size_t kMaxItems = 2048;

class Parser {
 public:
  explicit Parser(const std::vector<Token>& tokens) : tokens_(tokens) {}

  std::vector<Chain> run() {
    std::vector<Chain> chains;
    while (at_ < tokens_.size()) {
      const std::size_t start = at_;
      steps_ = 0;
      parsed_ = false;
      if (begins_expression() && !is_inside_something(start)) {
        if (auto chain = read_chain()) {
          chains.push_back(std::move(*chain));
          continue;
        }
      }
      // What parsed but is no chain has none in it either; a line too long to parse is left.
      at_ = std::max(steps_ > kMaxItems ? furthest_ : parsed_ ? at_ : 0, start + 1);
    }
    return chains;
  }

 private:
  const Token& token(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool is_op(std::string_view text, std::size_t ahead = 0) const {
    return token(ahead).kind == Token::Kind::op && token(ahead).text == text;
  }
  bool is_sign() const { return token().kind == Token::Kind::sign; }
  bool begins_expression() const {
    const Token& t = token();
    return t.kind == Token::Kind::number || t.kind == Token::Kind::name ||
           t.kind == Token::Kind::literal ||
           (t.kind == Token::Kind::op &&
            (t.text == "(" || t.text == "[" || t.text == "√" || t.text == "-"));
  }

  // 2(1) + 3: what begins right behind something, or behind a sign that did not parse, is only a
  // part of what its author meant.
  bool is_inside_something(std::size_t start) const {
    if (start == 0) return false;
    const Token& before = tokens_[start - 1];
    if (before.kind == Token::Kind::op) {
      return before.text != "," && before.text != "(" && before.text != "[" && before.text != ".";
    }
    if (tokens_[start].spaced || is_east_asian_name(before)) return false;
    return before.kind == Token::Kind::number || before.kind == Token::Kind::name ||
           before.kind == Token::Kind::literal;
  }

  static bool is_east_asian_name(const Token& t) {
    return t.kind == Token::Kind::name && is_east_asian(t.text.front());
  }

  // Whether an expression is all of what stands here.
  bool ends_here() const {
    const Token& t = token();
    if (t.kind == Token::Kind::op) {
      return t.text == "," || t.text == ")" || t.text == "]" || t.text == "." ||
             ((t.text == "(" || t.text == "[") && t.spaced);
    }
    if (t.spaced || is_east_asian_name(t)) return true;
    return t.kind != Token::Kind::number && t.kind != Token::Kind::name &&
           t.kind != Token::Kind::literal;
  }

  std::optional<Chain> read_chain() {
    in_list_ = false;
    auto first = expression(0);
    parsed_ = first.has_value();
    if (!first) return std::nullopt;
    Chain chain;
    chain.begin = first->begin;
    chain.parts.push_back(std::move(*first));
    std::size_t good = at_;
    while (skip_to_sign()) {
      const std::string& sign = token().text;
      const Sign kind = sign == "=" ? Sign::equals : sign == ">" ? Sign::arrow : Sign::colon;
      ++at_;
      auto next = segment();
      if (!next || !ends_here()) break;
      chain.parts.push_back(std::move(*next));
      chain.signs.push_back(kind);
      good = at_;
    }
    at_ = good;
    chain.end = chain.parts.back().end;
    const Node& only = chain.parts.front();
    const bool sizes = only.kind == Kind::tuple || only.kind == Kind::list ||
                       only.kind == Kind::literal || (only.kind == Kind::times && only.text == "×");
    if (chain.parts.size() < 2 && !sizes) return std::nullopt;
    return chain;
  }

  // A chain may go on in the next line, if that begins with its sign.
  bool skip_to_sign() {
    if (is_sign()) return true;
    if (token().kind == Token::Kind::end && at_ + 1 < tokens_.size() &&
        token(1).kind == Token::Kind::sign && token(1).text != ":") {
      ++at_;
      return true;
    }
    return false;
  }

  // What follows a sign: an expression, or sums of products with commas between them.
  std::optional<Node> segment() {
    auto first = expression(0);
    if (!first) return std::nullopt;
    if (!is_op(",") || !has_product(*first)) return first;
    Node list;
    list.kind = Kind::list;
    list.begin = first->begin;
    list.children.push_back(std::move(*first));
    while (is_op(",") && list.children.size() < kMaxItems) {
      const std::size_t before = at_;
      ++at_;
      auto next = expression(0);
      if (!next || !has_product(*next)) {
        at_ = before;
        break;
      }
      list.children.push_back(std::move(*next));
    }
    if (list.children.size() == 1) return std::move(list.children.front());
    list.end = list.children.back().end;
    return list;
  }

  static bool has_product(const Node& node) {
    if (node.kind == Kind::times) return true;
    return node.kind == Kind::sum &&
           std::any_of(node.children.begin(), node.children.end(), has_product);
  }

  static Node join(Kind kind, std::string text, Node a, Node b) {
    Node node;
    node.kind = kind;
    node.text = std::move(text);
    node.begin = a.begin;
    node.end = b.end;
    node.children.push_back(std::move(a));
    node.children.push_back(std::move(b));
    return node;
  }
  Node wrap(Kind kind, std::string text, Node a) const {
    Node node;
    node.kind = kind;
    node.text = std::move(text);
    node.begin = a.begin;
    node.end = tokens_[at_ - 1].end;
    node.children.push_back(std::move(a));
    return node;
  }

  // Inside of a list without commas, [1 -2] has two entries: a blank before the minus, none after.
  bool separates_here() const {
    return in_list_ && token().spaced && is_op("-") && !token(1).spaced;
  }

  // Too deep or too long: given up, and not tried again from within.
  bool is_too_much(int depth) {
    furthest_ = std::max(furthest_, at_);
    if (depth > kMaxDepth) steps_ = kMaxItems;
    return ++steps_ > kMaxItems;
  }

  // Sums keep all their terms as children of one node, so that a sum of products can be compared
  // term by term however long it is.
  std::optional<Node> expression(int depth) {
    if (is_too_much(depth)) return std::nullopt;
    auto left = term(depth);
    while (left && (is_op("+") || is_op("-")) && !separates_here()) {
      const bool minus = token().text == "-";
      const std::size_t before = at_++;
      auto right = term(depth);
      if (!right) {
        at_ = before;
        break;
      }
      const std::size_t end = right->end;
      if (minus) {
        Node negative;
        negative.kind = Kind::negative;
        negative.begin = right->begin;
        negative.end = end;
        negative.children.push_back(std::move(*right));
        right = std::move(negative);
      }
      if (left->kind != Kind::sum || closed_ == left->end) {
        left = join(Kind::sum, "+", std::move(*left), std::move(*right));
      } else {
        left->children.push_back(std::move(*right));
        left->end = end;
      }
    }
    return left;
  }

  std::optional<Node> term(int depth) {
    auto left = unary(depth);
    while (left &&
           (is_op("*") || is_op("·") || is_op("×") || is_op("@") || is_op("/") || is_op("//"))) {
      if (++steps_ > kMaxItems) return std::nullopt;
      const std::string text = token().text;
      const std::size_t before = at_++;
      auto right = unary(depth);
      if (!right) {
        at_ = before;
        break;
      }
      left = join(Kind::times, text, std::move(*left), std::move(*right));
    }
    return left;
  }

  std::optional<Node> unary(int depth) {
    if (is_too_much(depth)) return std::nullopt;
    if (is_op("-") || is_op("√")) {
      const bool minus = token().text == "-";
      const std::size_t begin = token().begin;
      ++at_;
      auto operand = unary(depth + 1);
      if (!operand) return std::nullopt;
      Node node = wrap(minus ? Kind::negative : Kind::root, "", std::move(*operand));
      node.begin = begin;
      return node;
    }
    auto node = primary(depth);
    furthest_ = std::max(furthest_, at_);
    return node ? postfix(std::move(*node), depth) : node;
  }

  std::optional<Node> postfix(Node node, int depth) {
    for (;;) {
      if (++steps_ > kMaxItems) return std::nullopt;
      if (is_op("ᵀ")) {
        ++at_;
        node = wrap(Kind::transpose, "", std::move(node));
      } else if (is_op("^")) {
        const std::size_t before = at_++;
        const bool brace = is_op("(");
        const std::size_t inside = brace ? 1 : 0;
        if (token(inside).kind == Token::Kind::name && token(inside).text == "T") {
          at_ += 1 + 2 * inside;
          node = wrap(Kind::transpose, "", std::move(node));
          continue;
        }
        auto exponent = unary(depth + 1);
        if (!exponent) {
          at_ = before;
          return node;
        }
        node = join(Kind::power, "", std::move(node), std::move(*exponent));
      } else if (is_op(".") && !token().spaced && token(1).kind == Token::Kind::name &&
                 !token(1).spaced) {
        const std::string name = token(1).text;
        at_ += 2;
        node = wrap(Kind::method, name, std::move(node));
        if (is_op("(") && !token().spaced && !arguments(node, ")", depth)) return std::nullopt;
      } else if (is_op("[") && !token().spaced) {
        node = wrap(Kind::index, "", std::move(node));
        if (!arguments(node, "]", depth)) return std::nullopt;
      } else {
        return node;
      }
    }
  }

  // ( a, b=c ) as further children.
  bool arguments(Node& node, std::string_view close, int depth) {
    ++at_;
    const bool in_list = std::exchange(in_list_, false);
    bool good = true;
    while (good && !is_op(close)) {
      auto item = argument(depth + 1);
      good = item && node.children.size() < kMaxItems;
      if (good) node.children.push_back(std::move(*item));
      if (good && is_op(",")) {
        ++at_;
      } else if (good && !is_op(close)) {
        good = false;
      }
    }
    in_list_ = in_list;
    if (!good) return false;
    node.end = token().end;
    ++at_;
    return true;
  }

  std::optional<Node> argument(int depth) {
    if (token().kind == Token::Kind::name && token(1).kind == Token::Kind::sign &&
        token(1).text == "=") {
      const std::string name = token().text;
      const std::size_t begin = token().begin;
      at_ += 2;
      auto value = expression(depth);
      if (!value) return std::nullopt;
      Node node = wrap(Kind::keyword, name, std::move(*value));
      node.begin = begin;
      return node;
    }
    return expression(depth);
  }

  std::optional<Node> primary(int depth) {
    const Token& t = token();
    Node node;
    node.begin = t.begin;
    node.end = t.end;
    switch (t.kind) {
      case Token::Kind::number:
        node.kind = Kind::number;
        node.number = t.number;
        ++at_;
        return counted(std::move(node));
      case Token::Kind::literal:
        node.kind = Kind::literal;
        node.literal = t.literal;
        ++at_;
        return node;
      case Token::Kind::name: return name_or_call(depth);
      case Token::Kind::op:
        if (t.text == "(") return parenthesis(depth);
        if (t.text == "[") return list(depth);
        break;
      default: break;
    }
    return std::nullopt;
  }

  // 2 Q + 2 K + 4 V: channels.
  Node counted(Node number) {
    const Token& t = token();
    if (t.kind == Token::Kind::name && (t.text == "Q" || t.text == "K" || t.text == "V") &&
        token(1).text != "·" && token(1).text != "@") {
      const std::string name = t.text;
      ++at_;
      return wrap(Kind::count, name, std::move(number));
    }
    return number;
  }

  std::optional<Node> name_or_call(int depth) {
    Node node;
    node.kind = Kind::name;
    node.text = token().text;
    node.begin = token().begin;
    node.end = token().end;
    ++at_;
    if (node.text == "\\frac") return fraction(depth);
    if (is_op("(") && !token().spaced) {
      node.kind = Kind::call;
      if (!arguments(node, ")", depth)) return std::nullopt;
    }
    return node;
  }

  std::optional<Node> fraction(int depth) {
    if (!is_op("(")) return std::nullopt;
    auto above = parenthesis(depth);
    if (!above || !is_op("(")) return std::nullopt;
    auto below = parenthesis(depth);
    if (!below) return std::nullopt;
    return join(Kind::times, "/", std::move(*above), std::move(*below));
  }

  std::optional<Node> parenthesis(int depth) {
    Node node;
    node.kind = Kind::tuple;
    node.begin = token().begin;
    if (!arguments(node, ")", depth) || node.children.empty()) return std::nullopt;
    if (node.children.size() > 1 || node.children[0].kind == Kind::keyword) return node;
    Node inner = std::move(node.children.front());
    inner.begin = node.begin;
    inner.end = node.end;
    closed_ = node.end;  // a closed sum takes no further terms
    return inner;
  }

  // [a, b] or [a b], whose entries are no plain numbers (those are literals).
  std::optional<Node> list(int depth) {
    Node node;
    node.kind = Kind::list;
    node.begin = token().begin;
    ++at_;
    const bool in_list = std::exchange(in_list_, true);
    while (!is_op("]")) {
      auto item = expression(depth + 1);
      if (!item || node.children.size() >= kMaxItems) {
        in_list_ = in_list;
        return std::nullopt;
      }
      node.children.push_back(std::move(*item));
      if (is_op(",")) ++at_;
    }
    in_list_ = in_list;
    node.end = token().end;
    ++at_;
    if (node.children.empty()) return std::nullopt;
    return node;
  }

  const std::vector<Token>& tokens_;
  std::size_t at_ = 0;
  std::size_t steps_ = 0;  // since the last start: bounds the work on a line
  std::size_t furthest_ = 0;
  std::size_t closed_ = 0;
  bool in_list_ = false;
  bool parsed_ = false;  // the first part of the last chain
};

}  // namespace

std::vector<Chain> find_chains(const Source& source, const std::vector<Literal>& literals,
                               const std::vector<Table>& tables) {
  std::vector<bool> is_table_line(static_cast<std::size_t>(source.lines()));
  for (const Table& table : tables) {
    for (std::int64_t i = table.first; i <= table.last; ++i) {
      is_table_line[static_cast<std::size_t>(i)] = true;
    }
  }
  const std::vector<Token> tokens = tokens_of(source, literals, is_table_line);
  return Parser(tokens).run();
}

}  // namespace qkv::check
