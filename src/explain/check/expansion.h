#pragma once

// Products written out: 1*2 + 2*1 + 3*0, against the operands that they should have.

#include <optional>
#include <string>
#include <vector>

#include "explain/check/evaluate.h"

namespace qkv::check {

// What is multiplied: a row of `left` with a column of `right`.
struct Operands {
  Matrix left, right;
};

// The operands that a part of a chain names: Q·K, [1,0,1,2]·Wq, or a result such as Q(p0), which
// is a row of X·Wq.
std::optional<Operands> operands_of(Evaluator& evaluator, const Node& node);

// One sum of products, or several (the entries of a row).
bool is_expansion(const Node& node);

struct ExpansionFault {
  const Node* node = nullptr;
  std::string expected{};
};

// The sums of `node` whose factors are not those of the operands. Terms may be in any order, and
// terms that are 0 may be left out. `checked` counts the sums that could be compared.
std::vector<ExpansionFault> expansion_faults(const Node& node, const Operands& operands,
                                             std::int64_t& checked);

}  // namespace qkv::check
