#pragma once

// The equations and shapes of a note, in its order: each may use what those before it defined.

#include <vector>

#include "explain/check/evaluate.h"
#include "explain/check/shapes.h"

namespace qkv::check {

struct NoteParts {
  const Source& source;
  const std::vector<Literal>& literals;
  const std::vector<Table>& tables;
  const std::vector<Grid>& grids;
  const std::vector<Derived>& derived;
};

std::vector<CheckFinding> check_equations(const NoteParts& parts, const std::vector<Chain>& chains);

// --- pieces of it

// One equation, its parts joined by = or →.
class EquationChecker {
 public:
  EquationChecker(const NoteParts& parts, Evaluator& evaluator)
      : parts_(parts), evaluator_(evaluator) {}

  // Defines what it defines; a finding if there was something to check.
  std::optional<CheckFinding> check(const std::vector<Node>& equation);

 private:
  struct Reference {
    std::size_t part = 0;
    Matrix value{};
  };

  std::string_view text(const Node& node) const;
  // The matrix with a name of its own, judged by itself, that a literal is (a row of); or null.
  const Derived* claimed(const Node& node) const;
  std::optional<Reference> reference_of(const std::vector<Node>& equation);
  void define(const std::vector<Node>& equation, const std::optional<Reference>& reference);
  void compare_part(const Node& node, const Matrix& expected, CheckFinding& finding);
  void compare_print(const Node& node, const Matrix& expected, CheckFinding& finding);
  void compare_terms(const Node& sums, const Node& node, CheckFinding& finding);
  void check_factors(const std::vector<Node>& equation, CheckFinding& finding);
  void add(CheckFinding& finding, Miss miss, const Node& node, std::string expected,
           std::string found) const;
  std::optional<CheckFinding> not_checkable(const std::vector<Node>& equation);

  const NoteParts& parts_;
  Evaluator& evaluator_;
};

// Statements about shapes: chains with a shape in them.
class ShapeChecker {
 public:
  ShapeChecker(const NoteParts& parts, Evaluator& evaluator)
      : parts_(parts),
        evaluator_(evaluator),
        reader_(evaluator, parts.literals),
        sizes_(evaluator) {}

  // True if the chain is about a shape; then findings may have been added.
  bool check(const Chain& chain, std::vector<CheckFinding>& findings);

  // After an equation: whether what it defined is at odds with what a shape said, `dim = 4` with
  // (B=1, C=5, …).
  void check_definition(const Node& head, std::vector<CheckFinding>& findings) const;

 private:
  struct Subject {
    std::string name{};
    Role role = Role::none;
  };

  Subject subject_of(const Chain& chain, std::size_t shape_part) const;
  Subject subject_in_row(std::size_t at) const;
  void compare_shapes(const Chain& chain, const std::vector<std::optional<Extents>>& shapes,
                      CheckFinding& finding);
  bool compare_scalar(const Node& node, const Extents& shape, CheckFinding& finding);
  void judge_role(const Subject& subject, const Extents& shape, std::size_t at,
                  CheckFinding& finding);
  void judge_grid(const Subject& subject, const Chain& chain, const Extents& shape,
                  CheckFinding& finding);

  const NoteParts& parts_;
  Evaluator& evaluator_;
  ShapeReader reader_;
  Sizes sizes_;
};

}  // namespace qkv::check
