#pragma once

// Equations as notes write them, line by line: chains of expressions with signs between them,
//
//   head_dim = dim // num_heads = 2
//   Q·K = 1*2 + 2*1 + 3*0 = 4
//   qkv.reshape(B, N, 3, heads, head_dim) → [1, 197, 3, 12, 64]
//
// Prose around them is skipped: what does not parse is no equation.

#include <cstdint>
#include <string>
#include <vector>

#include "explain/check/grids.h"

namespace qkv::check {

struct Node {
  enum class Kind : unsigned char {
    number,     // printed
    name,       // text
    literal,    // literals[index]: a list of numbers
    list,       // [a, b] or, at the end of a chain, a, b
    tuple,      // (a, b)
    sum,        // children; text is "+" or "-" for two
    times,      // text: * · @ × / //
    power,      // a^b
    negative,   // -a
    root,       // √a
    transpose,  // aᵀ
    call,       // text(children): softmax, int, sqrt
    method,     // children[0].text(children[1..])
    index,      // children[0][children[1..]]
    keyword,    // text = children[0], inside of parentheses
    count,      // 2 Q: children[0] channels of text
  };
  Kind kind = Kind::number;
  std::string text{};
  Printed number{};
  std::size_t literal = 0;
  std::vector<Node> children{};
  std::size_t begin = 0, end = 0;  // bytes of the note
};

enum class Sign : unsigned char { equals, arrow, colon };

struct Chain {
  std::vector<Node> parts{};
  std::vector<Sign> signs{};  // one between each two
  std::size_t begin = 0, end = 0;
};

// Chains of at least two parts, and what may be sizes on its own, (1, 6) or B × T, in order. Cells
// of tables are lines of their own.
std::vector<Chain> find_chains(const Source& source, const std::vector<Literal>& literals,
                               const std::vector<Table>& tables);

}  // namespace qkv::check
