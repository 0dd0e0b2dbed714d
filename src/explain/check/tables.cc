// Markdown tables: a matrix with labels around it, columns that are results, or cells with vectors.

#include <algorithm>
#include <charconv>
#include <optional>

#include "explain/check/grids.h"

namespace qkv::check {
namespace {

bool is_ruler(std::string_view line) {
  line = trim(line);
  return line.find('-') != std::string_view::npos && line.find('|') != std::string_view::npos &&
         line.find_first_not_of("|-: \t") == std::string_view::npos;
}

std::vector<TableCell> split_cells(const Source& source, std::int64_t line) {
  const std::string_view content = source.line(line);
  const std::size_t start = source.start(line);
  std::vector<TableCell> cells;
  std::size_t begin = content.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return cells;
  if (content[begin] == '|') ++begin;
  for (std::size_t i = begin; i <= content.size(); ++i) {
    const bool bar = i < content.size() && content[i] == '|' && (i == 0 || content[i - 1] != '\\');
    if (!bar && i < content.size()) continue;
    if (i == content.size() && trim(content.substr(begin)).empty()) break;
    cells.push_back({start + begin, start + i});
    begin = i + 1;
  }
  return cells;
}

// What a cell holds, its bold and code marks aside.
std::string_view content_of(const Source& source, const TableCell& cell) {
  std::string_view content = trim(source.text().substr(cell.begin, cell.end - cell.begin));
  constexpr std::string_view marks = "*`$_ ";
  while (!content.empty() && marks.find(content.front()) != std::string_view::npos) {
    content.remove_prefix(1);
  }
  while (!content.empty() && marks.find(content.back()) != std::string_view::npos) {
    content.remove_suffix(1);
  }
  return content;
}

// The numbers of a cell: one, or a vector; none if it holds anything else.
std::vector<Printed> numbers_of(const Source& source, const TableCell& cell,
                                const std::vector<Literal>& literals) {
  const std::string_view content = content_of(source, cell);
  const auto begin = static_cast<std::size_t>(content.data() - source.text().data());
  const auto literal =
      std::lower_bound(literals.begin(), literals.end(), begin,
                       [](const Literal& l, std::size_t at) { return l.begin < at; });
  if (literal != literals.end() && literal->begin == begin &&
      literal->end == begin + content.size() && literal->rows == 1) {
    return literal->cells;
  }
  std::vector<Printed> numbers;
  for (std::size_t p = begin; p < begin + content.size();) {
    if (is_space(source.text()[p])) {
      ++p;
      continue;
    }
    const auto number = read_number(source.text(), p, true);
    if (!number || number->end > begin + content.size()) return {};
    p = number->end;
    if (p < begin + content.size() && !is_space(source.text()[p])) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

struct Column {
  std::vector<std::vector<Printed>> cells;  // one a body row
  std::size_t width = 0;                    // numbers of a cell; 0: no column of numbers
  Heading heading;
};

std::vector<Column> columns_of(const Source& source, const Table& table,
                               const std::vector<Literal>& literals) {
  std::vector<Column> columns(table.rows.front().size());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    Column& column = columns[c];
    column.heading.name = content_of(source, table.rows[0][c]);
    for (std::size_t r = 1; r < table.rows.size(); ++r) {
      if (c >= table.rows[r].size()) break;
      column.cells.push_back(numbers_of(source, table.rows[r][c], literals));
    }
    if (column.cells.size() + 1 != table.rows.size()) continue;
    column.width = column.cells.front().size();
    for (const auto& cell : column.cells) {
      if (cell.size() != column.width) column.width = 0;
    }
  }
  return columns;
}

Grid gather(const std::vector<Column>& columns, std::size_t first, std::size_t last) {
  Grid grid;
  for (std::size_t r = 0; r < columns[first].cells.size(); ++r) {
    for (std::size_t c = first; c < last; ++c) {
      grid.cells.insert(grid.cells.end(), columns[c].cells[r].begin(), columns[c].cells[r].end());
    }
  }
  grid.rows = static_cast<std::int64_t>(columns[first].cells.size());
  grid.columns = static_cast<std::int64_t>(grid.cells.size()) / grid.rows;
  grid.begin = grid.cells.front().at;
  grid.end = grid.cells.back().end;
  return grid;
}

// What names of a series have in common: "p" of p0, p1, p2, and nothing of 0, 1, 2. Names in a
// series say which row or column it is, not which matrix.
std::optional<std::string> stem_of_series(const std::vector<std::string_view>& names) {
  std::optional<std::string> stem;
  std::int64_t expected = 0;
  for (const std::string_view name : names) {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    const std::string_view number = name.substr(digits);
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
    if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
    if (stem && (*stem != name.substr(0, digits) || n != expected)) return std::nullopt;
    stem = name.substr(0, digits);
    expected = n + 1;
  }
  return names.size() >= 2 ? stem : std::nullopt;
}

// Headings p0, p1, p2 are pixels or positions; z1, z2, z3 are the columns of Z.
void name_series(std::vector<Column>& columns) {
  std::vector<std::string_view> names;
  for (std::size_t c = 1; c < columns.size(); ++c) names.emplace_back(columns[c].heading.name);
  const auto stem = stem_of_series(names);
  if (!stem) return;
  Heading heading;
  if (*stem != "p") heading.role = role_of_name(*stem).role;
  if (heading.role != Role::none) heading.name = symbol_of(heading.role);
  for (std::size_t c = 1; c < columns.size(); ++c) columns[c].heading = heading;
  // Columns 0, 1, 2 have rows 0, 1, 2 at their side, which are no numbers of the matrix either.
  if (!stem->empty() || columns[0].width != 1) return;
  auto expected = static_cast<double>(names.front() == "1");
  const bool counts = std::all_of(
      columns[0].cells.begin(), columns[0].cells.end(), [&](const std::vector<Printed>& cell) {
        return cell.front().decimals == 0 && cell.front().value == expected++;
      });
  if (counts) columns[0].width = 0;
}

// A single column of numbers is the result for one query: a vector.
void lay_down(Grid& grid) {
  if (grid.columns != 1) return;
  std::swap(grid.rows, grid.columns);
  grid.is_vector = true;
}

// | Q | [1 2 3] |: rows that carry their own name.
bool add_named_rows(std::vector<Grid>& grids, const Source& source, const Table& table,
                    const std::vector<Literal>& literals) {
  std::vector<std::string_view> names;
  for (std::size_t r = 1; r < table.rows.size(); ++r) {
    if (!table.rows[r].empty()) names.push_back(content_of(source, table.rows[r].front()));
  }
  if (stem_of_series(names)) return false;
  bool any = false;
  for (std::size_t r = 1; r < table.rows.size(); ++r) {
    if (table.rows[r].size() < 2) continue;
    const std::string_view name = content_of(source, table.rows[r][0]);
    const Name meaning = role_of_name(name);
    auto numbers = numbers_of(source, table.rows[r][1], literals);
    if (meaning.role == Role::none || numbers.empty()) continue;
    Grid grid{std::string(name), meaning, 1, static_cast<std::int64_t>(numbers.size()), true,
              std::move(numbers)};
    grid.begin = grid.cells.front().at;
    grid.end = grid.cells.back().end;
    grids.push_back(std::move(grid));
    any = true;
  }
  return any;
}

}  // namespace

std::vector<Table> find_tables(const Source& source) {
  std::vector<Table> tables;
  for (std::int64_t i = 1; i < source.lines(); ++i) {
    if (!is_ruler(source.line(i)) || source.is_code(i) ||
        source.line(i - 1).find('|') == std::string_view::npos) {
      continue;
    }
    Table table{i - 1, i, {split_cells(source, i - 1)}};
    while (table.last + 1 < source.lines() && !source.is_fence(table.last + 1) &&
           source.line(table.last + 1).find('|') != std::string_view::npos) {
      table.rows.push_back(split_cells(source, ++table.last));
    }
    i = table.last;
    if (!table.rows.front().empty()) tables.push_back(std::move(table));
  }
  return tables;
}

void add_table_grids(std::vector<Grid>& grids, const Source& source, const Table& table,
                     const std::vector<Literal>& literals, const std::vector<bool>& has_numbers) {
  if (table.rows.size() < 2 || table.rows.size() * table.rows.front().size() > kMaxCells) return;
  std::vector<Column> columns = columns_of(source, table, literals);
  for (Column& column : columns) column.heading.role = role_of_name(column.heading.name).role;
  name_series(columns);
  if (columns.size() >= 2 && columns[0].width == 0 &&
      std::all_of(columns.begin() + 1, columns.end(),
                  [](const Column& c) { return c.heading.role == Role::none; }) &&
      add_named_rows(grids, source, table, literals)) {
    return;
  }
  for (std::size_t first = 0; first < columns.size();) {
    if (columns[first].width == 0) {
      ++first;
      continue;
    }
    const Role role = columns[first].heading.role;
    std::size_t last = first + 1;
    while (last < columns.size() && columns[last].width > 0 && columns[last].heading.role == role) {
      ++last;
    }
    Grid grid = gather(columns, first, last);
    Heading heading = columns[first].heading;
    if (role == Role::none) {
      // The corner may name the matrix; so may the line above the table.
      heading = {columns[0].heading.name, columns[0].heading.role};
      if (first == 0 || heading.role == Role::none) {
        heading = heading_above(source, table.first, has_numbers);
      }
    }
    grid.name = heading.name;
    grid.meaning.role = heading.role;
    if (role != Role::none) lay_down(grid);
    grids.push_back(std::move(grid));
    first = last;
  }
}

}  // namespace qkv::check
