// Statements about shapes.

#include <fmt/format.h>

#include <algorithm>

#include "explain/check/equations.h"

namespace qkv::check {
namespace {

using Kind = Node::Kind;

// Words that say that a list of whole numbers is a shape.
bool speaks_of_shapes(std::string_view line) {
  for (std::string_view word :
       {"shape", "Shape", "size(", "Size(", "hình dạng", "Hình dạng", "kích thước", "Kích thước",
        "형태", "모양", "크기", "차원", "形状", "维度", "尺寸"}) {
    if (line.find(word) != std::string_view::npos) return true;
  }
  return false;
}

bool has_symbol(const Extents& shape) {
  return std::any_of(shape.begin(), shape.end(),
                     [](const Extent& extent) { return !extent.symbol.empty(); });
}

std::size_t factors_of(const Node& node) {
  std::size_t factors = 1;
  for (const Node* n = &node; n->kind == Kind::times; n = &n->children[0]) {
    factors += n->text == "×" ? 1 : 0;
  }
  return factors;
}

// Roles of names that are tensors, and of no words that any text may use: "A", "values".
Role role_of_tensor(std::string_view name) {
  const bool letter =
      name.size() == 1 && std::string_view("XQKVZxqkvz").find(name) == std::string_view::npos;
  for (std::string_view word : {"attention", "values", "keys", "queries", "outputs", "inputs"}) {
    if (to_lower(name) == word) return Role::none;
  }
  return letter ? Role::none : role_of_name(name).role;
}

// The last name of a list such as `q, k, v:`, or of a method's object.
const Node* name_of(const Node& node) {
  const Node* n = &node;
  while (n->kind == Kind::method || n->kind == Kind::index) n = &n->children[0];
  return n->kind == Kind::name ? n : nullptr;
}

}  // namespace

bool ShapeChecker::check(const Chain& chain, std::vector<CheckFinding>& findings) {
  // The words around it, in its line.
  constexpr std::size_t kNear = 200;
  const std::int64_t line = parts_.source.line_of(chain.begin);
  const std::size_t start =
      std::max(parts_.source.start(line), chain.begin - std::min(chain.begin, kNear));
  bool context = speaks_of_shapes(parts_.source.text().substr(start, chain.end - start));
  for (const Node& node : chain.parts) context = context || is_shape_question(node);
  std::vector<std::optional<Extents>> shapes;
  std::size_t first = chain.parts.size();
  bool sized = false;
  for (std::size_t i = 0; i < chain.parts.size(); ++i) {
    const Node& node = chain.parts[i];
    // A product of two numbers is arithmetic; of three or more it may be a shape.
    const bool arithmetic = node.kind == Kind::times && factors_of(node) < 3;
    std::optional<Extents> shape;
    if (!arithmetic) shape = reader_.read(node, context);
    if (shape && first == chain.parts.size()) first = i;
    sized = sized || (shape && (node.kind != Kind::times || has_symbol(*shape) ||
                                (i > 0 && chain.signs[i - 1] == Sign::colon)));
    shapes.push_back(std::move(shape));
  }
  if (first == chain.parts.size() || !sized) return false;

  CheckFinding finding;
  finding.line = parts_.source.line_of(chain.parts[first].begin) + 1;
  const Subject subject = subject_of(chain, first);
  const Node& shown = chain.parts[first];
  finding.subject =
      !subject.name.empty()
          ? subject.name
          : std::string(trim(parts_.source.text().substr(shown.begin, shown.end - shown.begin)));
  compare_shapes(chain, shapes, finding);
  Extents last;
  for (const auto& shape : shapes) {
    if (shape) last = *shape;
  }
  if (const auto bad = reader_.bad_reshape()) {
    ++finding.numbers;
    CheckDifference difference;
    difference.line = finding.line;
    difference.expected = to_string(bad->from);
    difference.found = to_string(bad->to);
    finding.reason = "check.remark.reshape";
    finding.differences.push_back(std::move(difference));
  }
  judge_grid(subject, chain, last, finding);
  judge_role(subject, last, chain.begin, finding);
  reader_.define_keywords();
  if (!subject.name.empty()) reader_.remember(subject.name, last);
  if (finding.numbers > 0) {
    finding.verdict = finding.differences.empty() ? Verdict::agrees : Verdict::differs;
  }
  if (finding.numbers > 0 || finding.verdict == Verdict::given || subject.role != Role::none) {
    if (finding.verdict == Verdict::not_checkable && finding.reason.empty()) {
      finding.reason = "check.reason.sizes";
    }
    findings.push_back(std::move(finding));
  }
  return true;
}

void ShapeChecker::check_definition(const Node& head, std::vector<CheckFinding>& findings) const {
  if (head.kind != Kind::name) return;
  const auto other = sizes_.contradiction(head.text, parts_.source.section_start(head.begin));
  const Evaluator::Definition* found = evaluator_.defined(head.text);
  if (!other || found == nullptr || found->at != head.begin) return;
  CheckFinding finding;
  finding.verdict = Verdict::differs;
  finding.line = parts_.source.line_of(head.begin) + 1;
  finding.subject = head.text;
  finding.numbers = 1;
  CheckDifference difference;
  difference.line = finding.line;
  difference.expected = std::to_string(*other);
  difference.found = format_like(found->value, 0);
  finding.differences.push_back(std::move(difference));
  findings.push_back(std::move(finding));
}

// The name before the shape: a part of the chain, the word before it, or a cell of its row.
ShapeChecker::Subject ShapeChecker::subject_of(const Chain& chain, std::size_t shape_part) const {
  for (std::size_t i = 0; i <= shape_part; ++i) {
    const Node& part = chain.parts[i];
    // x.reshape(…) is another tensor than x.
    if (is_shape_question(part) && part.text != "shape" && part.text != "size") return {};
    if (const Node* name = name_of(part)) {
      const Role role = role_of_tensor(name->text);
      if (role != Role::none || i > 0 || shape_part > 0) return {name->text, role};
    }
  }
  if (Subject subject = subject_in_row(chain.begin); !subject.name.empty()) return subject;
  const std::int64_t line = parts_.source.line_of(chain.begin);
  std::string_view before = parts_.source.text().substr(parts_.source.start(line),
                                                        chain.begin - parts_.source.start(line));
  // Up to two words: "qkv output (1, 8, 3, 3)", "Q (1,1,2,4)".
  for (int words = 0; words < 2; ++words) {
    constexpr std::string_view marks = " \t`*:=→\"";
    while (!before.empty() && (marks.find(before.back()) != std::string_view::npos)) {
      before.remove_suffix(1);
    }
    std::size_t begin = before.size();
    while (begin > 0 && (is_letter(before[begin - 1]) || is_digit(before[begin - 1]))) --begin;
    const std::string_view word = before.substr(begin);
    if (word.empty()) break;
    const Role role = role_of_tensor(word);
    // "qkv output" is the fused projection, not the output.
    const std::string_view rest = trim(before.substr(0, begin));
    if (role == Role::output && rest.ends_with("qkv")) return {"qkv", Role::qkv};
    if (role != Role::none) return {std::string(word), role};
    if (word != "shape" && word != "tensor" && word != "size") break;
    before = before.substr(0, begin);
  }
  return {};
}

ShapeChecker::Subject ShapeChecker::subject_in_row(std::size_t at) const {
  for (const Table& table : parts_.tables) {
    for (const auto& row : table.rows) {
      if (row.empty() || at < row.front().begin || at >= row.back().end) continue;
      for (const TableCell& cell : row) {
        if (cell.begin <= at && at < cell.end) break;
        std::string_view name =
            trim(parts_.source.text().substr(cell.begin, cell.end - cell.begin));
        name = trim(name.substr(0, name.find('=')));
        const Role role = role_of_name(name).role;
        if (role != Role::none) return {std::string(name), role};
      }
    }
  }
  return {};
}

// Shapes that one chain states, extent by extent; a name without a value gets it here.
void ShapeChecker::compare_shapes(const Chain& chain,
                                  const std::vector<std::optional<Extents>>& shapes,
                                  CheckFinding& finding) {
  const Extents* before = nullptr;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i]) {
      if (before != nullptr) compare_scalar(chain.parts[i], *before, finding);
      continue;
    }
    if (before != nullptr && before->size() == shapes[i]->size()) {
      bool differs = false;
      for (std::size_t d = 0; d < before->size(); ++d) {
        const Extent &a = (*before)[d], &b = (*shapes[i])[d];
        // (x, y) = (1, 2) may be any point, and another one later.
        const bool stranger = a.symbol.size() == 1 && sizes_.letter_of(a.symbol) == 0;
        if (a.value && b.value && !stranger) {
          ++finding.numbers;
          differs = differs || *a.value != *b.value;
        } else if (b.value && !a.symbol.empty()) {
          evaluator_.define(a.symbol, {static_cast<double>(*b.value), chain.begin, false});
        }
      }
      if (differs) {
        CheckDifference difference;
        difference.line = parts_.source.line_of(chain.parts[i].begin) + 1;
        difference.expected = to_string(*before);
        difference.found = to_string(*shapes[i]);
        finding.differences.push_back(std::move(difference));
      }
    }
    before = &*shapes[i];
  }
}

// (1, 8, 3, 3) = 2 Q + 2 K + 4 V: the channels; B × T × h·d_k = d_model: the last extent.
bool ShapeChecker::compare_scalar(const Node& node, const Extents& shape, CheckFinding& finding) {
  const auto value = evaluator_.size(node);
  if (!value) return false;
  double product = 1;
  for (const Extent& extent : shape) {
    if (!extent.value) return false;
    product *= static_cast<double>(*extent.value);
  }
  ++finding.numbers;
  const std::size_t channel = shape.size() == 4 ? 1 : shape.size() - 1;
  if (*shape[channel].value == *value || *shape.back().value == *value ||
      product == static_cast<double>(*value)) {
    return true;
  }
  CheckDifference difference;
  difference.line = parts_.source.line_of(node.begin) + 1;
  difference.expected = std::to_string(*shape[channel].value);
  difference.found = fmt::format(
      "{} = {}", trim(parts_.source.text().substr(node.begin, node.end - node.begin)), *value);
  finding.differences.push_back(std::move(difference));
  return false;
}

void ShapeChecker::judge_role(const Subject& subject, const Extents& shape, std::size_t at,
                              CheckFinding& finding) {
  if (subject.role == Role::none) return;
  const ShapeJudgement judgement =
      judge_shape(subject.role, shape, sizes_, at, parts_.source.section_start(at));
  if (judgement.verdict == Verdict::given) {
    finding.verdict = Verdict::given;
  } else if (judgement.verdict != Verdict::not_checkable) {
    finding.numbers += static_cast<std::int64_t>(shape.size());
    finding.formula = judgement.layout;
  }
  if (judgement.verdict == Verdict::differs && finding.differences.empty()) {
    CheckDifference difference;
    difference.line = finding.line;
    difference.expected = to_string(judgement.expected);
    difference.found = to_string(shape);
    finding.differences.push_back(std::move(difference));
  }
}

// A matrix that is printed has the shape that is stated of it, leading ones aside.
void ShapeChecker::judge_grid(const Subject& subject, const Chain& chain, const Extents& shape,
                              CheckFinding& finding) {
  if (subject.role == Role::none || shape.size() != 2) return;
  const Matrix* matrix = evaluator_.find(subject.role, chain.begin);
  if (matrix == nullptr || !shape[0].value || !shape[1].value) return;
  finding.numbers += 2;
  const bool same = *shape[0].value == matrix->rows && *shape[1].value == matrix->columns;
  const bool turned = *shape[0].value == matrix->columns && *shape[1].value == matrix->rows;
  if (same || turned) return;
  CheckDifference difference;
  difference.line = finding.line;
  difference.expected = fmt::format("({}, {})", matrix->rows, matrix->columns);
  difference.found = to_string(shape);
  finding.differences.push_back(std::move(difference));
}

}  // namespace qkv::check
