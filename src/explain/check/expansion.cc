#include "explain/check/expansion.h"

#include <algorithm>
#include <cmath>

namespace qkv::check {
namespace {

using Kind = Node::Kind;

struct Term {
  Printed a, b;
};

std::optional<Printed> printed_of(const Node& node) {
  if (node.kind == Kind::number) return node.number;
  if (node.kind == Kind::negative && node.children[0].kind == Kind::number) {
    Printed number = node.children[0].number;
    number.value = -number.value;
    return number;
  }
  return std::nullopt;
}

std::optional<Term> term_of(const Node& node) {
  if (node.kind == Kind::negative) {
    auto term = term_of(node.children[0]);
    if (term) term->a.value = -term->a.value;
    return term;
  }
  if (node.kind != Kind::times || node.text == "/" || node.text == "//") return std::nullopt;
  const auto a = printed_of(node.children[0]);
  const auto b = printed_of(node.children[1]);
  if (!a || !b) return std::nullopt;
  return Term{*a, *b};
}

// The products of a sum; empty if anything else stands in it.
std::vector<Term> terms_of(const Node& node) {
  std::vector<Term> terms;
  if (const auto single = term_of(node)) return {*single};
  if (node.kind != Kind::sum) return terms;
  for (const Node& child : node.children) {
    const auto term = term_of(child);
    if (!term) return {};
    terms.push_back(*term);
  }
  return terms;
}

bool same(const Printed& printed, double value) {
  return compare(printed.value, printed.decimals, value) == Fit::equal &&
         (printed.decimals > 0 || printed.value == value);
}

bool fits(const Term& term, double a, double b) {
  return (same(term.a, a) && same(term.b, b)) || (same(term.a, b) && same(term.b, a));
}

// How many of the terms are products of row r and column c, each used once; what is left of the
// row and column has to be 0 (or the count is that of a misfit).
struct Match {
  std::size_t terms = 0;
  bool complete = false;
};
Match match(const std::vector<Term>& terms, const Operands& operands, std::int64_t r,
            std::int64_t c) {
  const std::int64_t n = operands.left.columns;
  std::vector<bool> used(static_cast<std::size_t>(n));
  Match result;
  for (std::size_t t = 0; t < terms.size(); ++t) {
    // Its own place first, so that equal products are not taken from later terms.
    for (std::int64_t i = 0; i < n; ++i) {
      const auto k = (static_cast<std::int64_t>(t) + i) % n;
      if (used[static_cast<std::size_t>(k)] ||
          !fits(terms[t], operands.left.at(r, k), operands.right.at(k, c))) {
        continue;
      }
      used[static_cast<std::size_t>(k)] = true;
      ++result.terms;
      break;
    }
  }
  result.complete = result.terms == terms.size();
  for (std::int64_t k = 0; k < n && result.complete; ++k) {
    result.complete =
        used[static_cast<std::size_t>(k)] || operands.left.at(r, k) * operands.right.at(k, c) == 0;
  }
  return result;
}

// 1*0 + 0*1, with as many decimals as the sum itself has.
std::string write_out(const std::vector<Term>& terms, const Operands& operands, std::int64_t r,
                      std::int64_t c) {
  const auto write = [&](double value) {
    int decimals = 0;
    for (const Term& term : terms) {
      decimals = std::max({decimals, term.a.decimals, term.b.decimals});
    }
    while (decimals > 0 &&
           compare(value, 12, std::stod(format_like(value, decimals - 1))) == Fit::equal) {
      --decimals;
    }
    return format_like(value, decimals);
  };
  std::string text;
  for (std::int64_t k = 0; k < operands.left.columns; ++k) {
    if (k > 0) text += " + ";
    text += write(operands.left.at(r, k)) + "*" + write(operands.right.at(k, c));
  }
  return text;
}

bool has_sensible_size(const Operands& operands) {
  return operands.left.columns == operands.right.rows && operands.left.columns > 0 &&
         operands.left.values.size() <= 4096 && operands.right.values.size() <= 4096;
}

}  // namespace

std::optional<Operands> operands_of(Evaluator& evaluator, const Node& node) {
  Operands operands;
  if (node.kind == Kind::times && node.text != "/" && node.text != "//") {
    auto a = evaluator.value(node.children[0]);
    auto b = evaluator.value(node.children[1]);
    if (!a || !b) return std::nullopt;
    if (a->rows == 1 && b->rows == 1 && a->columns == b->columns) b = transposed(*b);
    operands = {std::move(*a), std::move(*b)};
    return has_sensible_size(operands) ? std::optional(std::move(operands)) : std::nullopt;
  }
  // A result by name: Q, Q(p0), Q[0][1], q0.
  const Node* name = &node;
  while (name->kind == Kind::index) name = &name->children[0];
  if (name->kind != Kind::name && name->kind != Kind::call) return std::nullopt;
  const Role role = role_of_name(name->text).role;
  const auto find = [&](Role wanted) { return evaluator.find(wanted, node.begin); };
  const Matrix* left = nullptr;
  const Matrix* right = nullptr;
  bool turned = false;
  if (role == Role::query || role == Role::key || role == Role::value) {
    const int shift = static_cast<int>(role) - static_cast<int>(Role::query);
    left = find(Role::input);
    right = find(static_cast<Role>(static_cast<int>(Role::w_query) + shift));
  } else if (role == Role::scores) {
    left = find(Role::query) != nullptr ? find(Role::query) : find(Role::input);
    right = find(Role::key) != nullptr ? find(Role::key) : find(Role::input);
    turned = true;
  } else if (role == Role::output) {
    left = find(Role::weights);
    right = find(Role::value) != nullptr ? find(Role::value) : find(Role::input);
  }
  if (left == nullptr || right == nullptr) return std::nullopt;
  operands = {*left, turned ? transposed(*right) : *right};
  return has_sensible_size(operands) ? std::optional(std::move(operands)) : std::nullopt;
}

bool is_expansion(const Node& node) {
  if (node.kind == Kind::list) {
    return std::all_of(node.children.begin(), node.children.end(),
                       [](const Node& child) { return !terms_of(child).empty(); });
  }
  return node.kind == Kind::sum && !terms_of(node).empty();
}

std::vector<ExpansionFault> expansion_faults(const Node& node, const Operands& operands,
                                             std::int64_t& checked) {
  std::vector<const Node*> sums;
  if (node.kind == Kind::list) {
    for (const Node& child : node.children) sums.push_back(&child);
  } else {
    sums.push_back(&node);
  }
  const auto count = static_cast<std::int64_t>(sums.size());
  const bool whole_row = count == operands.right.columns;
  if (count > 1 && !whole_row) return {};
  // The row (and, of a single sum, the column) that fits best.
  std::size_t most = 0;
  std::int64_t row = 0, column = 0;
  std::vector<std::vector<Term>> terms;
  for (const Node* sum : sums) terms.push_back(terms_of(*sum));
  for (std::int64_t r = 0; r < operands.left.rows; ++r) {
    for (std::int64_t c = 0; c < (whole_row ? 1 : operands.right.columns); ++c) {
      std::size_t fit = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const Match m = match(terms[static_cast<std::size_t>(i)], operands, r, c + i);
        fit += 2 * m.terms + (m.complete ? 1 : 0);
      }
      if (fit > most) {
        most = fit;
        row = r;
        column = c;
      }
    }
  }
  std::size_t all = 0;
  for (const auto& sum : terms) all += sum.size();
  // Less than half of the factors fit: it is about something else.
  if (most < all) return {};
  std::vector<ExpansionFault> faults;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& sum = terms[static_cast<std::size_t>(i)];
    ++checked;
    if (match(sum, operands, row, column + i).complete) continue;
    faults.push_back(
        {sums[static_cast<std::size_t>(i)], write_out(sum, operands, row, column + i)});
  }
  return faults;
}

}  // namespace qkv::check
