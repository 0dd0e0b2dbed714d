#pragma once

// The words of an equation.

#include <string>
#include <vector>

#include "explain/check/grids.h"

namespace qkv::check {

struct Token {
  enum class Kind : unsigned char {
    number,
    name,
    literal,  // a whole bracketed list of numbers
    op,       // one of + - * · × @ / // ^ √ ᵀ . , ( ) [ ] in `text`
    sign,     // = → :  ("=", ">" and ":" in `text`)
    end,      // of a line or of a table's cell
    other,    // nothing of an equation
  };
  Kind kind = Kind::other;
  std::string text{};
  Printed number{};
  std::size_t literal = 0;
  std::size_t begin = 0, end = 0;
  bool spaced = false;  // blanks before it
};

// The tokens of the whole note; lines end with an `end` token. `bars`: whether | ends a cell.
std::vector<Token> tokens_of(const Source& source, const std::vector<Literal>& literals,
                             const std::vector<bool>& is_table_line);

}  // namespace qkv::check
