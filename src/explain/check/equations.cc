#include "explain/check/equations.h"

#include <algorithm>
#include <cmath>

#include "explain/check/expansion.h"

namespace qkv::check {
namespace {

using Kind = Node::Kind;

// Chains that are looked at; more of them is no note.
constexpr std::size_t kMaxChains = 10000;

// The numbers of a print in order, with their decimals.
void collect(const Node& node, const std::vector<Literal>& literals, std::vector<Printed>& out,
             double sign = 1) {
  if (node.kind == Kind::number) {
    out.push_back(node.number);
    out.back().value *= sign;
  } else if (node.kind == Kind::literal) {
    const auto& cells = literals[node.literal].cells;
    out.insert(out.end(), cells.begin(), cells.end());
  } else {
    if (node.kind == Kind::negative) sign = -sign;
    for (const Node& child : node.children) collect(child, literals, out, sign);
  }
}

std::string join(const std::vector<std::string>& texts) {
  if (texts.size() == 1) return texts.front();
  std::string joined = "[";
  for (const std::string& text : texts) {
    if (joined.size() > 1) joined += ' ';
    joined += text;
  }
  return joined + "]";
}

// 4 rather than 4.000000, 0.81 rather than 0.810000.
std::string plainly(double value) {
  std::string text = format_like(value, 6);
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

bool has_numbers(const Node& node) {
  return node.kind == Kind::number || node.kind == Kind::literal ||
         std::any_of(node.children.begin(), node.children.end(), has_numbers);
}

// Names of attention that an expression uses.
bool uses_attention(const Node& node) {
  if (node.kind == Kind::name) return role_of_name(node.text).role != Role::none;
  return std::any_of(node.children.begin(), node.children.end(), uses_attention);
}

}  // namespace

std::string_view EquationChecker::text(const Node& node) const {
  return trim(parts_.source.text().substr(node.begin, node.end - node.begin));
}

const Derived* EquationChecker::claimed(const Node& node) const {
  if (node.kind != Kind::literal) return nullptr;
  const std::size_t first = parts_.literals[node.literal].cells.front().at;
  auto grid = std::upper_bound(parts_.grids.begin(), parts_.grids.end(), first,
                               [](std::size_t at, const Grid& g) { return at < g.begin; });
  // Matrices side by side begin before each other's rows: look at a few.
  for (int i = 0; i < 8 && grid != parts_.grids.begin(); ++i) {
    --grid;
    const auto cell =
        std::lower_bound(grid->cells.begin(), grid->cells.end(), first,
                         [](const Printed& printed, std::size_t at) { return printed.at < at; });
    if (cell == grid->cells.end() || cell->at != first) continue;
    const auto index = static_cast<std::size_t>(grid - parts_.grids.begin());
    const Derived& derived = parts_.derived[index];
    return grid->role() != Role::none && derived.finding.numbers > 0 ? &derived : nullptr;
  }
  return nullptr;
}

void EquationChecker::add(CheckFinding& finding, Miss miss, const Node& node, std::string expected,
                          std::string found) const {
  CheckDifference difference;
  difference.miss = miss;
  difference.line = parts_.source.line_of(node.begin) + 1;
  difference.expected = std::move(expected);
  difference.found = std::move(found);
  finding.differences.push_back(std::move(difference));
}

// The first part that computes something. Names at the beginning are what is being defined. Those
// of attention are known from elsewhere, if the matrix that ends the equation is one that was
// judged: scores = … may be called so after other scores.
std::optional<EquationChecker::Reference> EquationChecker::reference_of(
    const std::vector<Node>& equation) {
  const Derived* judged = nullptr;
  for (const Node& node : equation) judged = judged == nullptr ? claimed(node) : judged;
  bool leading = true;
  for (std::size_t i = 0; i < equation.size(); ++i) {
    if (is_print(equation[i])) continue;
    leading = leading && equation[i].kind == Kind::name;
    const Name name = leading ? role_of_name(equation[i].text) : Name{};
    const bool row = name.role != Role::none && name.index.value_or(-1) >= 0;
    if (leading && !row && (name.role == Role::none || judged == nullptr)) continue;
    auto value = leading && !row ? std::optional(judged->truth) : evaluator_.value(equation[i]);
    if (value && equation[i].kind == Kind::name && value->values.size() > 64) continue;
    if (value) return Reference{i, std::move(*value)};
  }
  return std::nullopt;
}

std::optional<CheckFinding> EquationChecker::check(const std::vector<Node>& equation) {
  const Node& head = equation.front();
  const Node& last = equation.back();
  // K = [1, 2] defines; the matrices have been judged by then.
  if (equation.size() == 2 && head.kind == Kind::name && is_print(last) &&
      role_of_name(head.text).role != Role::none) {
    return std::nullopt;
  }
  evaluator_.forget_missing();
  const auto reference = reference_of(equation);
  CheckFinding finding;
  finding.line = parts_.source.line_of(equation.size() > 1 ? last.begin : head.begin) + 1;
  finding.subject = text(head);
  check_factors(equation, finding);
  if (reference) {
    finding.formula = text(equation[reference->part]);
    for (std::size_t i = reference->part + 1; i < equation.size(); ++i) {
      compare_part(equation[i], reference->value, finding);
    }
  }
  for (std::size_t i = 0; i + 1 < equation.size(); ++i) {
    compare_terms(equation[i], equation[i + 1], finding);
  }
  define(equation, reference);
  if (finding.numbers == 0) return reference ? std::nullopt : not_checkable(equation);
  finding.verdict = finding.differences.empty() ? Verdict::agrees : Verdict::differs;
  if (finding.verdict == Verdict::differs) finding.reason.clear();
  return finding;
}

// d_k = d_v = 64 gives both names their value.
void EquationChecker::define(const std::vector<Node>& equation,
                             const std::optional<Reference>& reference) {
  std::optional<double> value;
  if (reference && reference->value.is_scalar()) {
    value = reference->value.values[0];
  } else if (!reference && is_print(equation.back())) {
    value = evaluator_.scalar(equation.back());
  }
  if (!value) return;
  for (const Node& node : equation) {
    if (node.kind != Kind::name || role_of_name(node.text).role != Role::none) break;
    evaluator_.define(node.text, {*value, node.begin, reference.has_value()});
  }
}

// An equation of attention whose operands the note does not give.
std::optional<CheckFinding> EquationChecker::not_checkable(const std::vector<Node>& equation) {
  if (evaluator_.missing().empty() || !is_print(equation.back())) return std::nullopt;
  const bool product = std::any_of(equation.begin(), equation.end(), [](const Node& node) {
    return node.kind == Kind::times && uses_attention(node);
  });
  if (!product || claimed(equation.back()) != nullptr) return std::nullopt;
  CheckFinding finding;
  finding.line = parts_.source.line_of(equation.back().begin) + 1;
  finding.subject = text(equation.front());
  finding.reason = "check.reason.missing";
  finding.arguments = {evaluator_.missing()};
  return finding;
}

void EquationChecker::compare_part(const Node& node, const Matrix& expected,
                                   CheckFinding& finding) {
  if (is_print(node)) {
    if (claimed(node) == nullptr) compare_print(node, expected, finding);
    return;
  }
  if (!has_numbers(node)) return;  // Q = X·Wq says how, not what
  const auto value = evaluator_.value(node);
  if (!value || value->values.size() != expected.values.size()) return;
  for (std::size_t i = 0; i < value->values.size(); ++i) {
    ++finding.numbers;
    const double bound = value->bounds[i] + expected.bounds[i];
    const Fit fit = qkv::check::compare(value->values[i], 9, expected.values[i], bound);
    if (fit == Fit::bounded) finding.reason = "check.remark.bounded";
    if (fit < Fit::cut_off) continue;
    add(finding, Miss::wrong, node, plainly(expected.values[i]),
        std::string(text(node)) + " = " + plainly(value->values[i]));
  }
}

void EquationChecker::compare_print(const Node& node, const Matrix& expected,
                                    CheckFinding& finding) {
  std::vector<Printed> numbers;
  collect(node, parts_.literals, numbers);
  if (numbers.size() != expected.values.size()) return;
  int most = 0;
  for (const Printed& number : numbers) most = std::max(most, number.decimals);
  std::vector<std::string> right, printed;
  bool wrong = false, cut_off = false;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    ++finding.numbers;
    const int decimals = claimed_decimals(numbers[i], most);
    Fit fit =
        qkv::check::compare(numbers[i].value, decimals, expected.values[i], expected.bounds[i]);
    // A whole number for 0.7 was not rounded, it is wrong: the note computes with whole numbers.
    if (fit == Fit::equal && decimals == 0 &&
        std::abs(numbers[i].value - expected.values[i]) > 0.05) {
      fit = Fit::wrong;
    }
    if (fit == Fit::bounded) finding.reason = "check.remark.bounded";
    wrong = wrong || fit == Fit::wrong;
    cut_off = cut_off || fit == Fit::cut_off;
    right.push_back(decimals > 0 ? format_like(expected.values[i], decimals)
                                 : plainly(expected.values[i]));
    printed.push_back(format_like(numbers[i].value, numbers[i].decimals));
  }
  if (wrong || cut_off) {
    add(finding, wrong ? Miss::wrong : Miss::cut_off, node, join(right), join(printed));
  }
}

// 1*2 + 2*1 + 3*0 = 2 + 2 + 0: each term by itself.
void EquationChecker::compare_terms(const Node& sums, const Node& node, CheckFinding& finding) {
  if (sums.kind != Kind::sum || node.kind != Kind::sum ||
      sums.children.size() != node.children.size()) {
    return;
  }
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const Node& term = node.children[i];
    if (!is_print(term) || is_print(sums.children[i])) continue;
    const auto expected = evaluator_.value(sums.children[i]);
    if (expected && expected->is_scalar()) compare_print(term, *expected, finding);
  }
}

void EquationChecker::check_factors(const std::vector<Node>& equation, CheckFinding& finding) {
  std::optional<Operands> operands;
  for (const Node& node : equation) {
    if (!operands) {
      operands = operands_of(evaluator_, node);
      if (operands) continue;
    }
    if (!operands || !is_expansion(node)) continue;
    for (const ExpansionFault& fault : expansion_faults(node, *operands, finding.numbers)) {
      add(finding, Miss::factors, *fault.node, fault.expected, std::string(text(*fault.node)));
    }
  }
}

std::vector<CheckFinding> check_equations(const NoteParts& parts,
                                          const std::vector<Chain>& chains) {
  Evaluator evaluator(parts.source, parts.literals, parts.grids, parts.derived);
  EquationChecker equations(parts, evaluator);
  ShapeChecker shapes(parts, evaluator);
  std::vector<CheckFinding> findings;
  for (std::size_t c = 0; c < std::min(chains.size(), kMaxChains); ++c) {
    const Chain& chain = chains[c];
    if (shapes.check(chain, findings)) continue;
    // A colon only announces: `p0: Q = …`.
    std::vector<Node> equation;
    for (std::size_t i = 0; i < chain.parts.size(); ++i) {
      if (i > 0 && chain.signs[i - 1] == Sign::colon) equation.clear();
      equation.push_back(chain.parts[i]);
      const bool ends = i + 1 == chain.parts.size() || chain.signs[i] == Sign::colon;
      if (!ends || equation.size() < 2) continue;
      if (auto finding = equations.check(equation)) findings.push_back(std::move(*finding));
      shapes.check_definition(equation.front(), findings);
    }
  }
  return findings;
}

}  // namespace qkv::check
