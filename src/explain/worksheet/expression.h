#pragma once

// How an entry of a worksheet is computed from other entries, as a small tree. One tree gives the
// worked hint ("1·2 + 0·3"), the live formula of a spreadsheet ("=B4*G4+C4*G5"), the number, and
// how far a learner who rounds each step may be off.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qkv::worksheet {

// Where an entry stands: which part of the worksheet, which of its grids, which row and column.
struct Place {
  std::size_t part = 0, grid = 0, row = 0, col = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

struct Expression {
  enum class Kind : std::uint8_t {
    number,       // a constant
    entry,        // the entry at `place`, whose value is `number`
    sum,          // of all operands
    product,      // of all operands
    difference,   // of two
    quotient,     // of two
    root,         // square root of one
    exponential,  // e to the power of one
    largest,      // of all operands
    floor,        // the whole part of one, which is not negative
  };
  Kind kind = Kind::number;
  double number = 0;
  Place place;
  std::vector<Expression> operands;

  static Expression constant(double value);
  static Expression entry(const Place& place, double value);
  static Expression of(Kind kind, std::vector<Expression> operands);
};

// A number and a bound of how far it may be off.
struct Approximate {
  double value = 0, error = 0;
};

// The value of an expression whose entries are as `entry_at` says. Errors add up to first order,
// which is enough for the few units of the last decimal that they are.
Approximate evaluate(const Expression& expression,
                     const std::function<Approximate(const Place&)>& entry_at);

// "1·2 + 0·3", "exp(0.7071 − 3.5355)/(…)": every number as `write` writes it, which gets the leaf.
std::string write_out(const Expression& expression,
                      const std::function<std::string(const Expression& leaf)>& write);

// "B4*G4+C4*G5", without the leading "=". `cell_of` names the cell of an entry.
std::string spreadsheet_formula(const Expression& expression,
                                const std::function<std::string(const Place&)>& cell_of);

}  // namespace qkv::worksheet
