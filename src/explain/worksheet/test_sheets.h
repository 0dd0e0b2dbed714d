#pragma once

// Worksheets for the tests: every small example, and exercises of several shapes.

#include <string>
#include <utility>
#include <vector>

#include "explain/explain.h"
#include "explain/worksheet/worksheet.h"

namespace qkv::worksheet {

struct NamedWorksheet {
  std::string name;
  Explanation explanation;
  Worksheet sheet;
};

inline std::vector<NamedWorksheet> test_sheets(int digits = 4) {
  std::vector<NamedWorksheet> sheets;
  for (const std::string& name : worksheet_examples()) {
    sheets.push_back({name, explain_example(name), example_worksheet(name, digits)});
  }
  const std::vector<std::pair<std::string, ExerciseOptions>> exercises = {
      {"exercise", {.seed = 7}},
      {"exercise of two heads", {.seed = 8, .tokens = 4, .heads = 2}},
      {"causal exercise", {.seed = 9, .head_width = 3, .causal = true}},
  };
  for (const auto& [name, options] : exercises) {
    sheets.push_back({name, make_exercise(options), exercise_worksheet(options, digits)});
  }
  return sheets;
}

}  // namespace qkv::worksheet
