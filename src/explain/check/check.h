#pragma once

// Checks the numbers of somebody's note about attention.
//
//   text → matrices, equations, shapes → what follows from what → findings
//
// Of every result that the note prints (Q, scores, weights, Z; `Q·K = 4`; `h = dim + nh_kd * 2 =
// 8`; the shape of a tensor) the true value is recomputed in f64 from the most original numbers
// that the note gives, so that one error does not show as ten, and compared digit by digit.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "explain/catalogue.h"

namespace qkv {

enum class Verdict : std::uint8_t {
  agrees,
  differs,
  not_checkable,
  given,  // an input: the rest is computed from it
};

// How a printed number misses the true one.
enum class Miss : std::uint8_t {
  wrong,
  cut_off,  // its digits are right, but the last one was not rounded
  carried,  // follows from the numbers above as printed: their rounding was carried along
  factors,  // a sum of products written out, with factors other than those of its operands
};

// Numbers of a note that miss, in the note's own precision: a row of a matrix, or one result.
struct CheckDifference {
  Miss miss = Miss::wrong;
  std::int64_t line = 0;    // from 1
  std::int64_t row = 0;     // from 1; 0: the finding is about one number or one line
  std::int64_t column = 0;  // of the first one that misses, from 1
  std::int64_t count = 1;   // numbers that miss
  std::string expected, found;
};

struct CheckFinding {
  Verdict verdict = Verdict::not_checkable;
  std::int64_t line = 0;  // from 1
  std::string subject;    // as the note calls it: "Z", "Q·K", "qkv.shape"
  std::string formula;    // what it was recomputed by: "softmax(X·Xᵀ)·X"; empty if it was not
  std::string reason;     // key of a message, or empty: why not checkable, or a remark
  std::vector<std::string> arguments;  // of the reason
  std::int64_t numbers = 0;            // how many were compared
  std::vector<CheckDifference> differences;
};

struct CheckReport {
  std::vector<CheckFinding> findings;  // in the note's order

  std::int64_t count(Verdict verdict) const noexcept;
};

// Largest note that is read, in bytes.
inline constexpr std::size_t kMaxNoteSize = std::size_t{4} << 20;

// Never fails on text, whatever it says. Throws Error if it is no text: not UTF-8, a NUL byte in
// it, or larger than kMaxNoteSize.
CheckReport check_note(std::string_view text);

// One line a finding, `name:line: …`, then the differences, then a summary.
std::string check_report_text(const CheckReport& report, std::string_view name, Language language,
                              bool color);

// {"note", "findings": [{"verdict", "line", "subject", "formula", "message", "numbers",
// "differences": [{"kind", "line", "row", "column", "expected", "found"}]}], "summary": {…}}.
// Verdicts and kinds are identifiers, the same in every language.
std::string check_report_json(const CheckReport& report, std::string_view name, Language language);

}  // namespace qkv
