#include "explain/check/check.h"

#include <algorithm>
#include <iterator>

#include "explain/check/equations.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using namespace check;

// Matrices that are looked at; more of them is no note.
constexpr std::size_t kMaxGrids = 4096;

void refuse_unless_text(std::string_view text) {
  if (text.size() > kMaxNoteSize) {
    throw Error(ErrorKind::value, "check", "note",
                "at most " + std::to_string(kMaxNoteSize) + " bytes",
                std::to_string(text.size()) + " bytes");
  }
  if (text.find('\0') != std::string_view::npos) {
    throw Error(ErrorKind::value, "check", "note", "text", "a NUL byte");
  }
  if (!is_utf8(text)) {
    throw Error(ErrorKind::value, "check", "note", "UTF-8 text", "bytes that are not UTF-8");
  }
}

// A matrix with a name, or one large enough that its author meant something by it.
bool is_worth_reporting(const Grid& grid) { return grid.role() != Role::none || grid.rows > 1; }

}  // namespace

std::int64_t CheckReport::count(Verdict verdict) const noexcept {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const CheckFinding& finding) { return finding.verdict == verdict; });
}

CheckReport check_note(std::string_view text) {
  refuse_unless_text(text);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const Source source(text);
  const std::vector<Literal> literals = find_literals(source);
  const std::vector<Table> tables = find_tables(source);
  std::vector<Grid> grids = find_grids(source, literals, tables);
  if (grids.size() > kMaxGrids) grids.resize(kMaxGrids);
  const std::vector<Derived> derived = derive(source, grids);
  const NoteParts parts{source, literals, tables, grids, derived};

  CheckReport report;
  for (std::size_t i = 0; i < grids.size(); ++i) {
    if (is_worth_reporting(grids[i])) report.findings.push_back(derived[i].finding);
  }
  std::vector<CheckFinding> equations =
      check_equations(parts, find_chains(source, literals, tables));
  std::move(equations.begin(), equations.end(), std::back_inserter(report.findings));
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const CheckFinding& a, const CheckFinding& b) { return a.line < b.line; });
  return report;
}

}  // namespace qkv
