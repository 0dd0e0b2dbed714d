// Rows into matrices. A line of a note is cut into pieces, each a row with the text before it:
//
//   X = p0 [1 0 1 2]    Wq = [1 0]        a name before "=", a label after it
//       p1 [2 1 0 2]         [0 0]        no name: goes on with the piece above it

#include "explain/check/grids.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace qkv::check {
namespace {

// Rows side by side in one line; more is no matrix.
constexpr std::size_t kMaxPieces = 64;

struct Piece {
  std::size_t begin = 0, end = 0;
  std::vector<Printed> cells{};
  const Literal* literal = nullptr;  // null: bare numbers in code
};

bool stands_alone(std::string_view line, std::size_t begin, std::size_t end) {
  const bool before = begin == 0 || is_space(line[begin - 1]);
  const bool after = end >= line.size() || is_space(line[end]);
  return before && after;
}

// Runs of at least two bare numbers, blanks between them, in a line of code.
void add_bare_runs(std::vector<Piece>& pieces, const Source& source, std::int64_t line) {
  const std::string_view content = source.line(line);
  const std::size_t start = source.start(line);
  Piece run;
  std::size_t next = 0;  // literal, in their order
  const std::size_t literals = pieces.size();
  const auto finish = [&] {
    if (run.cells.size() > 1) pieces.push_back(run);
    run = {};
  };
  for (std::size_t p = 0; p < content.size();) {
    if (is_space(content[p])) {
      ++p;
      continue;
    }
    while (next < literals && pieces[next].end <= start + p) ++next;
    const bool in_literal = next < literals && pieces[next].begin <= start + p;
    const std::size_t skip_to = in_literal ? pieces[next].end - start : 0;
    const auto number = read_number(content, p);
    if (skip_to == 0 && number && stands_alone(content, p, number->end)) {
      if (run.cells.empty()) run.begin = start + p;
      run.cells.push_back({number->value, number->decimals, start + p, start + number->end});
      p = number->end;
      run.end = start + p;
      continue;
    }
    finish();
    if (skip_to > 0) {
      p = skip_to;
    } else {
      while (p < content.size() && !is_space(content[p]) && content[p] != '[') ++p;
      if (p < content.size() && content[p] == '[') ++p;
    }
  }
  finish();
}

struct Label {
  std::string name;
  bool explicit_name = false;  // with "=", or a colon after a name of attention
};

// The last statement of a text: names do not reach back over the end of a sentence.
std::string_view last_statement(std::string_view text) {
  for (std::string_view end : {". ", "; ", "。", "；", ", ", "，"}) {
    const std::size_t at = text.rfind(end);
    // q1 . k1 is a product.
    if (at == std::string_view::npos || (at > 0 && end == ". " && text[at - 1] == ' ')) continue;
    text = text.substr(at + end.size());
  }
  return trim(text);
}

// The first of the signs that stand between a name and its value.
std::pair<std::size_t, std::size_t> find_sign(std::string_view text) {
  std::pair<std::size_t, std::size_t> first = {std::string_view::npos, 0};
  for (std::string_view sign : {"=", "≈", "→", "->", "⇒"}) {
    if (const std::size_t at = text.find(sign); at < first.first) first = {at, sign.size()};
  }
  return first;
}

// The text before a row: "X = p0", "Q·Kᵀ / √2 =", "→ scores", "journey", "weights:".
Label label_of(std::string_view text) {
  text = trim(text);
  for (std::string_view call : {"np.array(", "torch.tensor(", "tensor(", "array(", "np.matrix("}) {
    if (text.ends_with(call)) text = trim(text.substr(0, text.size() - call.size()));
  }
  text = last_statement(text);
  if (const auto [at, length] = find_sign(text); length > 0) {
    std::string_view name = trim(text.substr(0, at));
    if (name.empty()) {  // "→ scores", "→ scores ="
      name = trim(text.substr(at + length));
      name = trim(name.substr(0, find_sign(name).first));
    }
    // "Then the scores are: S =": the name is the last part.
    if (const std::size_t colon = name.rfind(": "); colon != std::string_view::npos) {
      name = trim(name.substr(colon + 2));
    }
    constexpr std::string_view marks = "-*>`:";
    while (!name.empty() && marks.find(name.front()) != std::string_view::npos) {
      name = trim(name.substr(1));
    }
    return {std::string(name), true};
  }
  for (std::string_view colon : {":", "："}) {
    if (text.ends_with(colon)) {
      const std::string_view name = trim(text.substr(0, text.size() - colon.size()));
      return {std::string(name), role_of_name(name).role != Role::none};
    }
  }
  return {std::string(text), false};
}

// Whether a list is an operand rather than a result: softmax([1, 2]), [1, 0] · [0, 1].
bool is_operand(std::string_view text, const Literal& literal, std::string_view before) {
  for (std::string_view call : {"np.array(", "torch.tensor(", "tensor(", "array(", "np.matrix("}) {
    if (trim(before).ends_with(call)) return false;
  }
  if (trim(before).ends_with('(')) return true;
  for (std::string_view sign : {"·", "⋅", "@", "×", "+", "·", "•", "."}) {
    if (trim(before).ends_with(sign)) return true;
  }
  std::string_view after = text.substr(literal.end, 8);
  const bool spaced = after.starts_with(' ');
  after = trim(after.substr(0, after.find('\n')));
  for (std::string_view sign : {"·", "⋅", "@", "×", "+", "•", "ᵀ"}) {
    if (after.starts_with(sign)) return true;
  }
  return spaced && after.starts_with(". [");
}

// What a row before it is called; `q.shape` is no row of numbers, but its shape.
Name meaning_of(const Label& label) {
  const bool is_shape = label.name.ends_with(".shape") || label.name.ends_with(".size()");
  return label.explicit_name && !is_shape ? role_of_name(label.name) : Name{};
}

class Assembler {
 public:
  Assembler(const Source& source, const std::vector<Literal>& literals,
            const std::vector<Table>& tables)
      : source_(source), has_numbers_(static_cast<std::size_t>(source.lines())) {
    in_table_.resize(has_numbers_.size());
    for (const Table& table : tables) {
      for (std::int64_t i = table.first; i <= table.last; ++i) {
        in_table_[static_cast<std::size_t>(i)] = true;
        has_numbers_[static_cast<std::size_t>(i)] = true;
      }
    }
    for (const Literal& literal : literals) {
      lines_[source.line_of(literal.begin)].push_back({literal.begin, literal.end, {}, &literal});
    }
  }

  std::vector<Grid> run() {
    for (std::int64_t line = 0; line < source_.lines(); ++line) {
      if (in_table_[static_cast<std::size_t>(line)]) {
        open_.clear();
        continue;
      }
      std::vector<Piece> pieces;
      if (const auto found = lines_.find(line); found != lines_.end()) {
        pieces = std::move(found->second);
      }
      if (source_.is_code(line)) add_bare_runs(pieces, source_, line);
      std::sort(pieces.begin(), pieces.end(),
                [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
      add_line(line, pieces);
      has_numbers_[static_cast<std::size_t>(line)] = !pieces.empty();
    }
    return std::move(grids_);
  }
  const std::vector<bool>& has_numbers() const noexcept { return has_numbers_; }

 private:
  struct Open {
    std::size_t grid;
    std::size_t column;
  };

  void add_line(std::int64_t line, std::vector<Piece> pieces) {
    if (pieces.size() > kMaxPieces) pieces.resize(kMaxPieces);
    std::vector<Open> now;
    std::size_t before = source_.start(line);
    std::size_t ordinal = 0;
    std::size_t rows = 0;  // pieces that could go on with one above
    for (const Piece& piece : pieces) rows += piece.literal == nullptr || piece.literal->is_vector;
    for (const Piece& piece : pieces) {
      const std::string_view text =
          source_.text().substr(before, piece.begin > before ? piece.begin - before : 0);
      before = std::max(before, piece.end);
      const std::size_t column = display_width(
          source_.text().substr(source_.start(line), piece.begin - source_.start(line)));
      if (piece.literal != nullptr && is_operand(source_.text(), *piece.literal, text)) {
        --rows;
        continue;
      }
      if (piece.literal != nullptr) {
        add_row(line, column, label_of(text), *piece.literal, rows, ordinal, now);
      } else {
        add_bare(line, column, label_of(text), piece.cells, rows, ordinal, now);
      }
      ++ordinal;
    }
    open_ = std::move(now);
  }

  // The matrix above that a nameless row goes on with: by order if the lines have equally many
  // rows, otherwise by where it stands.
  std::optional<std::size_t> above(std::size_t rows, std::size_t ordinal, std::size_t column,
                                   std::int64_t columns) const {
    std::optional<std::size_t> found;
    if (rows == open_.size() && ordinal < open_.size()) {
      found = open_[ordinal].grid;
    } else {
      for (const Open& open : open_) {
        if (open.column == column) found = open.grid;
      }
    }
    if (found && grids_[*found].columns != columns) found.reset();
    return found;
  }

  void add_row(std::int64_t line, std::size_t column, const Label& label, const Literal& literal,
               std::size_t rows, std::size_t ordinal, std::vector<Open>& now) {
    const Name meaning = meaning_of(label);
    const bool nameless = !label.explicit_name || meaning.role == Role::none;
    if (literal.is_vector && nameless) {
      if (const auto grid = above(rows, ordinal, column, literal.columns)) {
        // a = [1, 2] below Q = [3, 4] is another vector; below "X:" it is another row.
        if (!label.explicit_name || named_above_[*grid]) {
          extend(*grid, literal.cells, literal.end);
          now.push_back({*grid, column});
          return;
        }
      }
    }
    // [1] alone is a citation.
    if (literal.cells.size() == 1 && !label.explicit_name) return;
    start(line, column, label, meaning, literal, now);
  }

  void start(std::int64_t line, std::size_t column, const Label& label, const Name& meaning,
             const Literal& literal, std::vector<Open>& now) {
    Grid grid{label.explicit_name ? label.name : std::string(),
              meaning,
              literal.rows,
              literal.columns,
              literal.is_vector,
              literal.cells,
              literal.begin,
              literal.end};
    bool from_above = false;
    if (!label.explicit_name || meaning.role == Role::none) {
      // Prose may hold vectors of all sorts; only what begins its line is announced by one above.
      const std::string_view line_start =
          source_.text().substr(source_.start(line), literal.begin - source_.start(line));
      const bool first = line_start.find_first_of("=[") == std::string_view::npos ||
                         (label.explicit_name && line_start.find('[') == std::string_view::npos &&
                          label.name.find_first_of("(·@*+") == std::string::npos);
      const Heading heading = first ? heading_above(source_, line, has_numbers_) : Heading{};
      if (heading.role != Role::none) {
        grid.name = heading.name;
        grid.meaning.role = heading.role;
        from_above = true;
      }
    }
    now.push_back({grids_.size(), column});
    grids_.push_back(std::move(grid));
    named_above_.push_back(from_above);
  }

  void extend(std::size_t index, const std::vector<Printed>& cells, std::size_t end) {
    Grid& grid = grids_[index];
    grid.cells.insert(grid.cells.end(), cells.begin(), cells.end());
    ++grid.rows;
    grid.is_vector = false;
    grid.end = end;
  }

  // Bare numbers: the first line of a matrix has its name before it, or a line of names above; the
  // lines below are cut as the first one was.
  void add_bare(std::int64_t line, std::size_t column, const Label& label,
                const std::vector<Printed>& cells, std::size_t rows, std::size_t ordinal,
                std::vector<Open>& now) {
    if (!label.explicit_name && continue_bare(column, cells, rows, ordinal, now)) return;
    if (!label.explicit_name && start_below_names(line, cells, now)) return;
    Literal literal{cells.front().at,
                    cells.back().end,
                    1,
                    static_cast<std::int64_t>(cells.size()),
                    true,
                    cells};
    start(line, column, label, meaning_of(label), literal, now);
  }

  bool continue_bare(std::size_t column, const std::vector<Printed>& cells, std::size_t rows,
                     std::size_t ordinal, std::vector<Open>& now) {
    const auto width = static_cast<std::int64_t>(cells.size());
    if (const auto grid = above(rows, ordinal, column, width)) {
      extend(*grid, cells, cells.back().end);
      now.push_back({*grid, column});
      return true;
    }
    std::int64_t total = 0;
    std::size_t last = now.size();
    while (last < open_.size() && total < width) total += grids_[open_[last++].grid].columns;
    if (total != width || last <= now.size()) return false;
    auto cell = cells.begin();
    for (std::size_t i = now.size(), end = last; i < end; ++i) {
      const Open open = open_[i];
      const auto next = cell + grids_[open.grid].columns;
      extend(open.grid, {cell, next}, (next - 1)->end);
      now.push_back(open);
      cell = next;
    }
    return true;
  }

  // scores (÷√2)      weights          a line of names, each at the column of its numbers
  // 0.7 2.1           0.1 0.9
  bool start_below_names(std::int64_t line, const std::vector<Printed>& cells,
                         std::vector<Open>& now) {
    if (line == 0) return false;
    struct Header {
      std::size_t column;
      std::string_view name;
      std::vector<Printed> cells{};
    };
    std::vector<Header> headers;
    const std::string_view names = source_.line(line - 1);
    for (std::size_t p = names.find_first_not_of(" \t"); p < names.size();) {
      const std::size_t end = std::min(names.find("  ", p), names.size());
      const std::string_view name = trim(names.substr(p, end - p));
      if (role_of_name(name).role == Role::none) return false;
      headers.push_back({display_width(names.substr(0, p)), name});
      p = names.find_first_not_of(" \t", end);
    }
    if (headers.size() < 2) return false;
    for (const Printed& cell : cells) {
      const std::size_t column =
          display_width(source_.text().substr(source_.start(line), cell.at - source_.start(line)));
      auto header = headers.rbegin();
      while (std::next(header) != headers.rend() && header->column > column) ++header;
      header->cells.push_back(cell);
    }
    for (const Header& header : headers) {
      if (header.cells.empty()) return false;
    }
    for (const Header& header : headers) {
      Literal literal{header.cells.front().at,
                      header.cells.back().end,
                      1,
                      static_cast<std::int64_t>(header.cells.size()),
                      true,
                      header.cells};
      start(line, header.column, {std::string(header.name), true}, role_of_name(header.name),
            literal, now);
    }
    return true;
  }

  const Source& source_;
  std::map<std::int64_t, std::vector<Piece>> lines_;
  std::vector<bool> in_table_, has_numbers_;
  std::vector<Grid> grids_;
  std::vector<bool> named_above_;
  std::vector<Open> open_;
};

// Rows that carry their own index, where no grid gives the whole matrix.
void add_indexed_rows(std::vector<Grid>& grids) {
  std::map<Role, std::vector<std::size_t>> rows;
  for (std::size_t i = 0; i < grids.size(); ++i) {
    if (grids[i].meaning.index.value_or(-1) >= 0 && grids[i].rows == 1)
      rows[grids[i].role()].push_back(i);
  }
  for (const auto& [role, members] : rows) {
    const auto whole = std::find_if(grids.begin(), grids.end(), [role = role](const Grid& grid) {
      return grid.role() == role && !grid.meaning.index;
    });
    if (members.size() < 2 || whole != grids.end()) continue;
    Grid joined = grids[members.front()];
    const int first = *joined.meaning.index;
    bool fits = first == 0 || first == 1;
    for (std::size_t i = 1; i < members.size(); ++i) {
      const Grid& row = grids[members[i]];
      fits = fits && *row.meaning.index == first + static_cast<int>(i) &&
             row.columns == joined.columns;
      joined.cells.insert(joined.cells.end(), row.cells.begin(), row.cells.end());
      joined.end = row.end;
      ++joined.rows;
    }
    if (!fits) continue;
    joined.name = symbol_of(role);
    joined.meaning.index.reset();
    joined.is_vector = false;
    for (auto i = members.rbegin(); i != members.rend(); ++i) {
      grids.erase(grids.begin() + static_cast<std::ptrdiff_t>(*i));
    }
    grids.push_back(std::move(joined));
  }
}

}  // namespace

Heading heading_above(const Source& source, std::int64_t line,
                      const std::vector<bool>& has_numbers) {
  const auto heading = [&](std::int64_t i) {
    std::string_view text = trim(source.line(i));
    while (!text.empty() && (text.front() == '#' || is_space(text.front()))) text.remove_prefix(1);
    const Role role = role_in_prose(text);
    std::string name(role == Role::none ? "" : symbol_of(role));
    return Heading{name, role};
  };
  int seen = 0;
  for (std::int64_t i = line - 1; i >= 0 && line - i <= 12; --i) {
    const std::string_view text = trim(source.line(i));
    if (text.empty() || source.is_fence(i)) continue;
    if (has_numbers[static_cast<std::size_t>(i)]) return {};
    if (seen == 0 || text.starts_with("#")) {
      if (Heading found = heading(i); found.role != Role::none) return found;
    }
    if (text.starts_with("#")) return {};
    ++seen;
  }
  return {};
}

std::vector<Grid> find_grids(const Source& source, const std::vector<Literal>& literals,
                             const std::vector<Table>& tables) {
  Assembler assembler(source, literals, tables);
  std::vector<Grid> grids = assembler.run();
  for (const Table& table : tables) {
    add_table_grids(grids, source, table, literals, assembler.has_numbers());
  }
  add_indexed_rows(grids);
  std::sort(grids.begin(), grids.end(),
            [](const Grid& a, const Grid& b) { return a.begin < b.begin; });
  return grids;
}

}  // namespace qkv::check
