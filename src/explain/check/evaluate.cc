#include "explain/check/evaluate.h"

#include <algorithm>
#include <cmath>

namespace qkv::check {
namespace {

using Kind = Node::Kind;

// Larger products are left to the matrices, which have a budget.
constexpr std::size_t kMaxOperand = 4096;

Matrix scalar_matrix(double value, double bound = 0) {
  Matrix m(1, 1);
  m.values[0] = value;
  m.bounds[0] = bound;
  return m;
}

// As in matrix_of: three decimals and more are taken for rounded.
Matrix printed_matrix(std::int64_t rows, std::int64_t columns, const std::vector<Printed>& cells) {
  Matrix m(rows, columns);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    m.values[i] = cells[i].value;
    if (cells[i].decimals >= 3) m.bounds[i] = 0.5 * std::pow(10.0, -cells[i].decimals);
  }
  return m;
}

bool is_module(const Node& node) {
  return node.kind == Kind::name &&
         (node.text == "torch" || node.text == "np" || node.text == "F" || node.text == "math" ||
          node.text == "numpy" || node.text == "tf");
}

Matrix row_of(const Matrix& m, std::int64_t r) {
  Matrix row(1, m.columns);
  for (std::int64_t c = 0; c < m.columns; ++c) {
    row.at(0, c) = m.at(r, c);
    row.bounds[static_cast<std::size_t>(c)] = m.bound(r, c);
  }
  return row;
}

std::optional<Matrix> divide(const Matrix& a, const Matrix& b, bool floor) {
  if (!b.is_scalar() || b.values[0] == 0) return std::nullopt;
  Matrix out = scaled(a, 1 / b.values[0]);
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] = a.values[i] / b.values[0];  // 1/x twice would round twice
    out.bounds[i] += std::abs(out.values[i] / b.values[0]) * b.bounds[0];
    if (floor) out.values[i] = std::floor(out.values[i]);
  }
  return out;
}

}  // namespace

bool is_print(const Node& node) {
  switch (node.kind) {
    case Kind::number:
    case Kind::literal: return true;
    case Kind::negative: return is_print(node.children[0]);
    case Kind::list:
    case Kind::tuple: return std::all_of(node.children.begin(), node.children.end(), is_print);
    default: return false;
  }
}

Evaluator::Evaluator(const Source& source, const std::vector<Literal>& literals,
                     const std::vector<Grid>& grids, const std::vector<Derived>& derived)
    : source_(source), literals_(literals), grids_(grids), derived_(derived) {
  for (const Grid& grid : grids) grid_names_.push_back(plain_name(grid.name));
}

const Evaluator::Definition* Evaluator::defined(const std::string& name) const {
  const auto found = scalars_.find(name);
  return found == scalars_.end() ? nullptr : &found->second;
}

const Matrix* Evaluator::find(Role role, std::size_t at) const {
  const Matrix* found = nullptr;
  for (std::size_t i = 0; i < grids_.size(); ++i) {
    if (grids_[i].role() != role || grids_[i].meaning.index) continue;
    if (found != nullptr && grids_[i].begin >= at) break;
    found = &derived_[i].truth;
  }
  return found;
}

std::optional<double> Evaluator::scalar(const Node& node) {
  const auto m = value(node);
  if (!m || !m->is_scalar()) return std::nullopt;
  return m->values[0];
}

std::optional<std::int64_t> Evaluator::size(const Node& node) {
  const auto v = scalar(node);
  if (!v || *v < 0 || *v > 1e15 || *v != std::floor(*v)) return std::nullopt;
  return static_cast<std::int64_t>(*v);
}

std::optional<Matrix> Evaluator::value(const Node& node) {
  switch (node.kind) {
    case Kind::number: return printed_matrix(1, 1, {node.number});
    case Kind::name: return of_name(node);
    case Kind::literal: {
      const Literal& literal = literals_[node.literal];
      return printed_matrix(literal.rows, literal.columns, literal.cells);
    }
    case Kind::list: return of_list(node);
    case Kind::sum: return of_sum(node);
    case Kind::times: return of_times(node);
    case Kind::count: return value(node.children[0]);
    case Kind::negative: {
      const auto m = value(node.children[0]);
      return m ? std::optional(scaled(*m, -1)) : m;
    }
    case Kind::transpose: {
      const auto m = value(node.children[0]);
      return m ? std::optional(transposed(*m)) : m;
    }
    case Kind::root: return of_function("sqrt", node.children);
    case Kind::power: return of_function("pow", node.children);
    case Kind::call: return of_call(node);
    case Kind::method: return of_method(node);
    case Kind::index: return of_index(node);
    case Kind::tuple:
    case Kind::keyword: break;
  }
  return std::nullopt;
}

// A number that was defined, a matrix of that very name, or one of its role.
std::optional<Matrix> Evaluator::of_name(const Node& node) {
  if (const Definition* number = defined(node.text)) return scalar_matrix(number->value);
  const std::string plain = plain_name(node.text);
  const Name name = role_of_name(node.text);
  const Derived* same = nullptr;
  for (std::size_t i = 0; i < grids_.size(); ++i) {
    if (same != nullptr && grids_[i].begin >= node.begin) break;
    const bool means_same = name.role != Role::none && grids_[i].role() == name.role &&
                            grids_[i].meaning.index == name.index;
    if (means_same || (grid_names_[i] == plain && !plain.empty())) same = &derived_[i];
  }
  if (same != nullptr) return same->truth;
  if (name.role != Role::none && name.index && *name.index >= 0) {
    if (auto row = of_row(name.role, *name.index, node.text, node.begin)) return row;
  }
  if (missing_.empty()) missing_ = node.text;
  return std::nullopt;
}

// q_1 is the second row if the note has a q_0 too, otherwise the first.
std::optional<Matrix> Evaluator::of_row(Role role, int number, std::string_view name,
                                        std::size_t at) {
  const Matrix* m = find(role, at);
  if (m == nullptr) return std::nullopt;
  std::string zeroth(name);
  while (!zeroth.empty() && is_digit(zeroth.back())) zeroth.pop_back();
  zeroth += '0';
  const bool from_zero = source_.text().find(zeroth) != std::string_view::npos;
  const std::int64_t r = from_zero ? number : number - 1;
  if (r < 0 || r >= m->rows) return std::nullopt;
  return row_of(*m, r);
}

std::optional<Matrix> Evaluator::of_list(const Node& node) {
  std::vector<Matrix> rows;
  for (const Node& child : node.children) {
    auto row = value(child);
    if (!row || row->rows != 1 || (!rows.empty() && rows.front().columns != row->columns)) {
      return std::nullopt;
    }
    rows.push_back(std::move(*row));
  }
  const bool flat = rows.front().columns == 1;
  const auto count = static_cast<std::int64_t>(rows.size());
  Matrix m(flat ? 1 : count, flat ? count : rows.front().columns);
  std::size_t i = 0;
  for (const Matrix& row : rows) {
    for (std::size_t c = 0; c < row.values.size(); ++c, ++i) {
      m.values[i] = row.values[c];
      m.bounds[i] = row.bounds[c];
    }
  }
  return m;
}

std::optional<Matrix> Evaluator::of_sum(const Node& node) {
  std::optional<Matrix> total;
  for (const Node& child : node.children) {
    auto m = value(child);
    if (!m) return std::nullopt;
    total = total ? sum(*total, *m) : std::move(m);
    if (!total) return std::nullopt;
  }
  return total;
}

std::optional<Matrix> Evaluator::of_times(const Node& node) {
  const auto a = value(node.children[0]);
  const auto b = value(node.children[1]);
  if (!a || !b || a->values.size() > kMaxOperand || b->values.size() > kMaxOperand) {
    return std::nullopt;
  }
  if (node.text == "/" || node.text == "//") return divide(*a, *b, node.text == "//");
  if (a->is_scalar() || b->is_scalar()) {
    const Matrix& factor = a->is_scalar() ? *a : *b;
    const Matrix& other = a->is_scalar() ? *b : *a;
    Matrix out = scaled(other, factor.values[0]);
    for (std::size_t i = 0; i < out.bounds.size(); ++i) {
      out.bounds[i] += std::abs(other.values[i]) * factor.bounds[0];
    }
    return out;
  }
  // Two vectors written alike are multiplied entry by entry and added up.
  if (a->rows == 1 && b->rows == 1 && a->columns == b->columns) return product(*a, transposed(*b));
  return product(*a, *b);
}

std::optional<Matrix> Evaluator::of_index(const Node& node) {
  const Node& indexed = node.children[0];
  auto m = value(indexed);
  // A size has no entries: heads[0,1] is not of the number of heads.
  if (m && m->rows == 1 && m->columns == 1 && indexed.kind == Kind::name &&
      role_of_name(indexed.text).role == Role::none) {
    return std::nullopt;
  }
  for (std::size_t i = 1; m && i < node.children.size(); ++i) {
    const auto at = size(node.children[i]);
    if (!at) return std::nullopt;
    if (m->rows > 1 || (node.children.size() > 2 && i == 1)) {
      if (*at >= m->rows) return std::nullopt;
      m = row_of(*m, *at);
    } else {
      if (*at >= m->columns) return std::nullopt;
      const auto c = static_cast<std::size_t>(*at);
      m = scalar_matrix(m->values[c], m->bounds[c]);
    }
  }
  return m;
}

std::optional<Matrix> Evaluator::of_function(std::string_view name,
                                             const std::vector<Node>& arguments) {
  if (arguments.empty()) return std::nullopt;
  if (name == "pow") {
    const auto exponent = scalar(arguments[1]);
    if (arguments[0].kind == Kind::name && arguments[0].text == "e" && defined("e") == nullptr) {
      if (!exponent) return std::nullopt;
      return scalar_matrix(std::exp(*exponent));
    }
    const auto base = scalar(arguments[0]);
    if (!base || !exponent) return std::nullopt;
    return scalar_matrix(std::pow(*base, *exponent));
  }
  const auto m = value(arguments[0]);
  if (!m) return std::nullopt;
  if (name == "softmax") return softmax_rows(*m);
  if ((name == "dot" || name == "matmul" || name == "inner") && arguments.size() == 2) {
    Node times;
    times.kind = Kind::times;
    times.text = "·";
    times.children = arguments;
    return of_times(times);
  }
  const auto each = [&](double (*f)(double)) -> std::optional<Matrix> {
    Matrix out = *m;
    for (std::size_t i = 0; i < out.values.size(); ++i) {
      const double low = f(m->values[i] - m->bounds[i]), high = f(m->values[i] + m->bounds[i]);
      out.values[i] = f(m->values[i]);
      out.bounds[i] = std::max(std::abs(low - out.values[i]), std::abs(high - out.values[i]));
      if (!std::isfinite(out.bounds[i])) out.bounds[i] = 0;
    }
    return out;
  };
  if (name == "sqrt") return each([](double v) { return std::sqrt(v); });
  if (name == "exp") return each([](double v) { return std::exp(v); });
  if (name == "int" || name == "trunc") return each([](double v) { return std::trunc(v); });
  if (name == "floor") return each([](double v) { return std::floor(v); });
  return std::nullopt;
}

std::optional<Matrix> Evaluator::of_call(const Node& node) {
  if (auto m = of_function(node.text, node.children)) return m;
  // Q(p0): a row by its label.
  const Name name = role_of_name(node.text);
  if (name.role != Role::none && node.children.size() == 1 && node.children[0].kind == Kind::name) {
    const std::string& label = node.children[0].text;
    if (label.size() > 1 && label.size() < 6 && is_digit(label.back())) {
      const std::size_t digits = label.find_first_of("0123456789");
      return of_row(name.role, std::atoi(label.c_str() + digits), label, node.begin);
    }
  }
  return std::nullopt;
}

std::optional<Matrix> Evaluator::of_method(const Node& node) {
  if (is_module(node.children[0])) {
    return of_function(node.text, {node.children.begin() + 1, node.children.end()});
  }
  if (node.text == "T" || node.text == "t" || node.text == "transpose" || node.text == "mT") {
    const auto m = value(node.children[0]);
    return m ? std::optional(transposed(*m)) : m;
  }
  if (node.text == "softmax") return of_function("softmax", node.children);
  return std::nullopt;
}

}  // namespace qkv::check
