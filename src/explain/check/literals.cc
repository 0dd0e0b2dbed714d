// Bracketed literals: [1, 2], [[1 2] [3 4]], np.array(...), tensor(...), \begin{bmatrix}.

#include <algorithm>
#include <optional>

#include "explain/check/grids.h"

namespace qkv::check {
namespace {

constexpr int kMaxDepth = 4;

struct Rows {
  std::vector<std::vector<Printed>> rows;
  int depth = 1;
};

class ListReader {
 public:
  ListReader(std::string_view text, std::size_t at) : text_(text), at_(at) {
    // The mark of a comment stands near: "# tensor([[".
    const std::string_view before =
        text.substr(at - std::min<std::size_t>(at, 80), std::min<std::size_t>(at, 80));
    commented_ = trim(before.substr(before.rfind('\n') + 1)).starts_with('#');
  }

  // Reads the list that begins here; false if it is no list of numbers.
  bool read(Rows& out, int depth = 1) {
    if (depth > kMaxDepth) return false;
    ++at_;  // [
    const bool comma = has_decimal_commas();
    std::vector<Printed> numbers;
    bool nested = false;
    while (skip_blank()) {
      const char c = text_[at_];
      if (c == ']') {
        ++at_;
        return finish(out, std::move(numbers), nested, depth);
      }
      if (c == '[') {
        if (!numbers.empty() || !read(out, depth + 1)) return false;
        nested = true;
      } else if (c == ';' && !nested) {  // Matlab: [1 2; 3 4]
        ++at_;
        if (!comma) {
          add_row(out, std::move(numbers), depth + 1);
          numbers.clear();
        }
      } else if (!take_number(numbers, comma) || nested) {
        return false;
      }
    }
    return false;
  }
  std::size_t position() const noexcept { return at_; }

 private:
  // Skips blanks, commas and comments; false at the end, at a blank line or past the limit.
  bool skip_blank() {
    bool newline = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        if (newline) return false;
        newline = true;
      } else if (c == '#' && !(commented_ && newline)) {
        at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
      } else if (!is_space(c) && c != ',' && c != '#') {
        return true;
      }
    }
    return false;
  }

  // [0,34 0,33]: blanks between all numbers and one comma inside each.
  bool has_decimal_commas() const {
    const std::size_t close = text_.find_first_of("[]\n", at_);
    if (close == std::string_view::npos || text_[close] != ']') return false;
    int numbers = 0;
    for (std::size_t p = at_; p < close;) {
      if (is_space(text_[p]) || text_[p] == ';') {
        ++p;
        continue;
      }
      const auto number = read_number(text_, p, true);
      if (!number || number->end > close || number->decimals == 0) return false;
      if (text_.substr(p, number->end - p).find(',') == std::string_view::npos) return false;
      p = number->end;
      if (p < close && !is_space(text_[p]) && text_[p] != ';') return false;
      ++numbers;
    }
    return numbers > 1;
  }

  bool take_number(std::vector<Printed>& numbers, bool comma) {
    const auto number = read_number(text_, at_, comma);
    if (!number || ++count_ > kMaxCells) return false;
    // 2Q, 1*1 and 0..3 are no numbers of a list.
    if (number->end < text_.size()) {
      const char next = text_[number->end];
      if (!is_space(next) && next != ',' && next != ']' && next != ';' && next != '\n')
        return false;
    }
    numbers.push_back(*number);
    at_ = number->end;
    return true;
  }

  static void add_row(Rows& out, std::vector<Printed> numbers, int depth) {
    out.depth = std::max(out.depth, depth);
    out.rows.push_back(std::move(numbers));
  }

  static bool finish(Rows& out, std::vector<Printed> numbers, bool nested, int depth) {
    if (nested) return true;
    if (numbers.empty()) return false;
    add_row(out, std::move(numbers), out.rows.empty() || depth > 1 ? depth : out.depth);
    return true;
  }

  std::string_view text_;
  std::size_t at_;
  std::size_t count_ = 0;
  bool commented_ = false;  // a result in a comment: every line of it begins with #
};

std::optional<Literal> to_literal(Rows rows, std::size_t begin, std::size_t end) {
  Literal literal;
  literal.begin = begin;
  literal.end = end;
  literal.rows = static_cast<std::int64_t>(rows.rows.size());
  literal.columns = static_cast<std::int64_t>(rows.rows.front().size());
  literal.is_vector = rows.depth == 1;
  for (const auto& row : rows.rows) {
    if (static_cast<std::int64_t>(row.size()) != literal.columns) return std::nullopt;
    literal.cells.insert(literal.cells.end(), row.begin(), row.end());
  }
  return literal;
}

// Depth 3 and more is rank 3: several matrices, unless the leading dimensions are 1.
bool is_matrix(std::string_view text, const Rows& rows) {
  if (rows.depth <= 2) return true;
  const std::size_t opens = text.find_first_not_of("[ \n\t\r");
  const std::string_view head = text.substr(0, opens);
  if (std::count(head.begin(), head.end(), '[') != rows.depth) return false;
  std::string_view tail = text;
  std::int64_t closes = 0;
  // "]]" only at the very end: one matrix.
  for (std::size_t i = 0; i + 1 < tail.size(); ++i) {
    if (tail[i] == ']' && tail[i + 1] == ']') ++closes;
  }
  return closes <= rows.depth - 1;
}

std::optional<Literal> read_list(std::string_view text, std::size_t at, std::size_t& budget) {
  if (at > 0) {
    const char before = text[at - 1];
    // Q[0] is an index, ![…] an image.
    if ((is_letter(before) && static_cast<unsigned char>(before) < 0x80) || is_digit(before) ||
        before == ']' || before == ')' || before == '!') {
      return std::nullopt;
    }
  }
  ListReader reader(text, at);
  Rows rows;
  const bool is_list = reader.read(rows);
  budget -= std::min(budget, reader.position() - at);
  if (!is_list || rows.rows.empty() || rows.rows.front().empty()) return std::nullopt;
  const std::size_t end = reader.position();
  if (looking_at(text, end, "(")) return std::nullopt;  // a link
  if (!is_matrix(text.substr(at, end - at), rows)) return std::nullopt;
  return to_literal(std::move(rows), at, end);
}

bool read_latex_row(std::string_view text, std::size_t begin, std::size_t end, Rows& rows) {
  std::vector<Printed> numbers;
  while (begin <= end) {
    const std::size_t ampersand = std::min(text.find('&', begin), end);
    std::size_t p = begin;
    while (p < ampersand && (is_space(text[p]) || text[p] == '\n')) ++p;
    const auto number = read_number(text, p);
    if (!number || number->end > ampersand || numbers.size() >= kMaxCells) return false;
    if (!trim(text.substr(number->end, ampersand - number->end)).empty()) return false;
    numbers.push_back(*number);
    begin = ampersand + 1;
  }
  rows.rows.push_back(std::move(numbers));
  return true;
}

// \begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}
std::optional<Literal> read_latex(std::string_view text, std::size_t at, std::size_t& budget) {
  std::size_t begin = text.find('}', at);
  if (begin == std::string_view::npos || begin - at > 20) return std::nullopt;
  const std::string_view kind = text.substr(at + 7, begin - at - 7);
  if (!kind.ends_with("matrix") && kind != "array") return std::nullopt;
  ++begin;
  if (kind == "array") {
    begin = text.find('}', begin);
    if (begin == std::string_view::npos) return std::nullopt;
    ++begin;
  }
  const std::size_t stop = text.find("\\end{", begin);
  budget -= std::min(budget, std::min(stop, text.size()) - begin);
  if (stop == std::string_view::npos) return std::nullopt;
  Rows rows;
  rows.depth = 2;
  std::size_t cells = 0;
  for (std::size_t row = begin; row < stop;) {
    const std::size_t end = std::min(text.find("\\\\", row), stop);
    if (trim(text.substr(row, end - row)).empty() && end == stop) break;
    if (!read_latex_row(text, row, end, rows)) return std::nullopt;
    if ((cells += rows.rows.back().size()) > kMaxCells) return std::nullopt;
    row = end + 2;
  }
  if (rows.rows.empty()) return std::nullopt;
  const std::size_t end = std::min(text.find('}', stop), text.size() - 1) + 1;
  return to_literal(std::move(rows), at, end);
}

// A row of a matrix in tall brackets: ⎡1 0⎤, ⎢0 1⎥, ⎣1 1⎦.
std::optional<Literal> read_tall_row(std::string_view text, std::size_t at) {
  Rows rows;
  rows.rows.emplace_back();
  for (std::size_t p = at + 3; p < text.size() && rows.rows[0].size() < 256;) {
    if (is_space(text[p]) || text[p] == ',') {
      ++p;
      continue;
    }
    for (std::string_view close : {"⎤", "⎥", "⎦"}) {
      if (!looking_at(text, p, close)) continue;
      if (rows.rows[0].empty()) return std::nullopt;
      return to_literal(std::move(rows), at, p + 3);
    }
    const auto number = read_number(text, p);
    if (!number) return std::nullopt;
    rows.rows[0].push_back(*number);
    p = number->end;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Literal> find_literals(const Source& source) {
  const std::string_view text = source.text();
  std::vector<Literal> literals;
  // Lists that are never closed could be read over and over.
  std::size_t budget = 1000000 + 32 * text.size();
  for (std::size_t at = 0; at < text.size() && budget > 0;) {
    std::optional<Literal> literal;
    if (text[at] == '[') literal = read_list(text, at, budget);
    for (std::string_view open : {"⎡", "⎢", "⎣"}) {
      if (looking_at(text, at, open)) literal = read_tall_row(text, at);
    }
    if (looking_at(text, at, "\\begin{")) literal = read_latex(text, at, budget);
    if (literal) {
      at = literal->end;
      literals.push_back(std::move(*literal));
    } else {
      ++at;
    }
  }
  return literals;
}

}  // namespace qkv::check
