#include "explain/worksheet/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace qkv::worksheet {

Expression Expression::constant(double value) {
  Expression e;
  e.number = value;
  return e;
}

Expression Expression::entry(const Place& place, double value) {
  Expression e;
  e.kind = Kind::entry;
  e.place = place;
  e.number = value;
  return e;
}

Expression Expression::of(Kind kind, std::vector<Expression> operands) {
  Expression e;
  e.kind = kind;
  e.operands = std::move(operands);
  return e;
}

namespace {

using Kind = Expression::Kind;

Approximate combine(Kind kind, const Approximate& a, const Approximate& b) {
  switch (kind) {
    case Kind::sum: return {a.value + b.value, a.error + b.error};
    case Kind::difference: return {a.value - b.value, a.error + b.error};
    case Kind::product:
      return {a.value * b.value, std::abs(a.value) * b.error + std::abs(b.value) * a.error};
    case Kind::quotient: {
      const double value = a.value / b.value;
      return {value, (a.error + std::abs(value) * b.error) / std::abs(b.value)};
    }
    default: return {std::max(a.value, b.value), std::max(a.error, b.error)};  // largest
  }
}

}  // namespace

Approximate evaluate(const Expression& e,
                     const std::function<Approximate(const Place&)>& entry_at) {
  if (e.kind == Kind::number) return {e.number, 0};
  if (e.kind == Kind::entry) return entry_at(e.place);
  Approximate result = evaluate(e.operands.front(), entry_at);
  for (std::size_t n = 1; n < e.operands.size(); ++n) {
    result = combine(e.kind, result, evaluate(e.operands[n], entry_at));
  }
  if (e.kind == Kind::root) {
    result.value = std::sqrt(result.value);
    result.error /= 2 * result.value;
  } else if (e.kind == Kind::exponential) {
    result.value = std::exp(result.value);
    result.error *= result.value;
  } else if (e.kind == Kind::floor) {
    // Half of 0.5·4 written in tenths must not fall below 1.
    result = {std::floor(result.value + 1e-9), 0};
  }
  return result;
}

namespace {

// The signs between operands, in print and in a spreadsheet.
struct Notation {
  const char *plus, *minus, *times, *over;
};
constexpr Notation kPrint = {" + ", " − ", "·", "/"};
constexpr Notation kSheet = {"+", "-", "*", "/"};

int strength(Kind kind) {
  switch (kind) {
    case Kind::sum:
    case Kind::difference: return 1;
    case Kind::product:
    case Kind::quotient: return 2;
    default: return 3;
  }
}

const char* sign_of(Kind kind, const Notation& notation) {
  switch (kind) {
    case Kind::sum: return notation.plus;
    case Kind::difference: return notation.minus;
    case Kind::product: return notation.times;
    default: return notation.over;
  }
}

// Operands joined by their sign. What binds less strongly gets parentheses; so does what binds as
// strongly on the right of − or /.
template <typename Write>
std::string infix(const Expression& e, const Notation& notation, Write&& write) {
  std::string result;
  const bool strict = e.kind == Kind::difference || e.kind == Kind::quotient;
  for (std::size_t n = 0; n < e.operands.size(); ++n) {
    const Expression& operand = e.operands[n];
    if (n > 0) result += sign_of(e.kind, notation);
    const int needed = strength(e.kind) + (strict && n > 0 ? 1 : 0);
    const std::string text = write(operand);
    result += strength(operand.kind) < needed ? fmt::format("({})", text) : text;
  }
  return result;
}

// MAX(B4:E4) rather than MAX(B4,C4,D4,E4), where the entries stand side by side.
std::string list_of_cells(const Expression& e,
                          const std::function<std::string(const Place&)>& cell_of) {
  Place next = e.operands.front().place;
  bool side_by_side = e.operands.size() > 1;
  for (const Expression& operand : e.operands) {
    side_by_side = side_by_side && operand.kind == Kind::entry && operand.place == next;
    ++next.col;
  }
  if (side_by_side) {
    return fmt::format("{}:{}", cell_of(e.operands.front().place),
                       cell_of(e.operands.back().place));
  }
  std::string result;
  for (const Expression& operand : e.operands) {
    if (!result.empty()) result += ",";
    result += spreadsheet_formula(operand, cell_of);
  }
  return result;
}

}  // namespace

std::string write_out(const Expression& e,
                      const std::function<std::string(const Expression& leaf)>& write) {
  const auto inner = [&](const Expression& operand) { return write_out(operand, write); };
  switch (e.kind) {
    case Kind::number:
    case Kind::entry: return write(e);
    case Kind::root: return "√" + inner(e.operands.front());
    case Kind::exponential: return fmt::format("exp({})", inner(e.operands.front()));
    case Kind::floor: return fmt::format("⌊{}⌋", inner(e.operands.front()));
    case Kind::largest: {
      const auto less = [](const Expression& a, const Expression& b) {
        return a.number < b.number;
      };
      return write(*std::max_element(e.operands.begin(), e.operands.end(), less));
    }
    default: return infix(e, kPrint, inner);
  }
}

std::string spreadsheet_formula(const Expression& e,
                                const std::function<std::string(const Place&)>& cell_of) {
  const auto inner = [&](const Expression& operand) {
    return spreadsheet_formula(operand, cell_of);
  };
  switch (e.kind) {
    case Kind::number: return fmt::format("{}", e.number);
    case Kind::entry: return cell_of(e.place);
    case Kind::root: return fmt::format("SQRT({})", inner(e.operands.front()));
    case Kind::exponential: return fmt::format("EXP({})", inner(e.operands.front()));
    case Kind::floor: return fmt::format("INT({})", inner(e.operands.front()));
    case Kind::largest: return fmt::format("MAX({})", list_of_cells(e, cell_of));
    default: return infix(e, kSheet, inner);
  }
}

}  // namespace qkv::worksheet
