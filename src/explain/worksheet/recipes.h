#pragma once

// What each step of an explanation is made from. An Expansion of a step has the numbers of one
// entry; a spreadsheet needs to know where they stand.

#include <functional>

#include "explain/explanation.h"
#include "explain/worksheet/worksheet.h"

namespace qkv::worksheet {

// The entry of a step as a leaf of an expression.
using EntryOf = std::function<Expression(const Step& step, const Dims& index)>;

// How the entry at an index is made; its value is left to the caller.
using Recipe = std::function<Entry(const Dims& index, const EntryOf& entry_of)>;

// Empty if the step is given: an input or a weight. Explanation and step have to outlive it.
Recipe recipe_of(const Explanation& explanation, const Step& step);

}  // namespace qkv::worksheet
