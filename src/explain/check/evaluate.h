#pragma once

// Values of expressions, with the names of a note.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "explain/check/derive.h"
#include "explain/check/expression.h"

namespace qkv::check {

class Evaluator {
 public:
  Evaluator(const Source& source, const std::vector<Literal>& literals,
            const std::vector<Grid>& grids, const std::vector<Derived>& derived);

  // None if a name in it is unknown (then missing() names it) or it is no arithmetic.
  std::optional<Matrix> value(const Node& node);
  std::optional<double> scalar(const Node& node);
  // The same for a whole number ≥ 0, of a size.
  std::optional<std::int64_t> size(const Node& node);

  const std::string& missing() const noexcept { return missing_; }
  void forget_missing() { missing_.clear(); }

  // A number with a name, and where it was said. `computed`: by a formula rather than given.
  struct Definition {
    double value = 0;
    std::size_t at = 0;
    bool computed = false;
  };
  void define(const std::string& name, const Definition& definition) {
    scalars_[name] = definition;
  }
  const Definition* defined(const std::string& name) const;

  // The matrix that a name means at a place of the note: the last one before it, or else the
  // first one after it. Null if there is none.
  const Matrix* find(Role role, std::size_t at) const;

 private:
  std::optional<Matrix> of_name(const Node& node);
  std::optional<Matrix> of_row(Role role, int number, std::string_view name, std::size_t at);
  std::optional<Matrix> of_times(const Node& node);
  std::optional<Matrix> of_sum(const Node& node);
  std::optional<Matrix> of_list(const Node& node);
  std::optional<Matrix> of_index(const Node& node);
  std::optional<Matrix> of_function(std::string_view name, const std::vector<Node>& arguments);
  std::optional<Matrix> of_call(const Node& node);
  std::optional<Matrix> of_method(const Node& node);

  const Source& source_;
  const std::vector<Literal>& literals_;
  const std::vector<Grid>& grids_;
  const std::vector<Derived>& derived_;
  std::vector<std::string> grid_names_;  // plain
  std::map<std::string, Definition> scalars_;
  std::string missing_;
};

// A number, a literal or a list of numbers: what a note prints rather than what it computes.
bool is_print(const Node& node);

}  // namespace qkv::check
