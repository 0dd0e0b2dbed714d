#include "explain/check/derive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace qkv::check {
namespace {

// Multiplications that one note may cost, so that no text keeps the program busy for long.
constexpr double kBudget = 2e9;
// Definitions of one name that are tried, the nearest first.
constexpr std::size_t kNearest = 3;

struct Candidate {
  Matrix expected{};
  std::string formula{};
};

struct Choice {
  std::optional<Candidate> best{};
  Comparison comparison{};
  bool turned_up = false;  // some candidate was computed, whatever its shape
};

// A matrix that others are computed from, by its name in formulas.
struct Part {
  Matrix matrix{};
  std::string name{};
};

bool is_causal_print(const Grid& grid) {
  if (grid.rows < 2 || grid.rows != grid.columns) return false;
  for (std::int64_t r = 0; r < grid.rows; ++r) {
    for (std::int64_t c = r + 1; c < grid.columns; ++c) {
      const double value = grid.at(r, c).value;
      if (value != 0 && !(std::isinf(value) && value < 0)) return false;
    }
  }
  return true;
}

bool is_input(Role role) {
  return role == Role::input || (role >= Role::w_query && role <= Role::b_value);
}

// Widths that the text divides by: √64, sqrt(64), d_k = 64, head_dim = 2.
std::set<std::int64_t> widths_in(std::string_view text) {
  std::set<std::int64_t> widths;
  for (std::string_view word : {"√", "sqrt(", "\\sqrt{", "d_k", "head_dim", "key_dim"}) {
    for (std::size_t at = text.find(word); at < text.size() && widths.size() < 6;
         at = text.find(word, at + 1)) {
      std::size_t p = at + word.size();
      while (p < text.size() && (is_space(text[p]) || text[p] == '=' || text[p] == '(')) ++p;
      const auto number = read_number(text, p);
      if (number && number->value >= 2 && number->value < 1e6 && number->decimals == 0) {
        widths.insert(static_cast<std::int64_t>(number->value));
      }
    }
  }
  return widths;
}

class Deriver {
 public:
  Deriver(const Source& source, const std::vector<Grid>& grids)
      : source_(source), grids_(grids), widths_(widths_in(source.text())) {
    for (const Grid& grid : grids) {
      // What a note computes is rounded if it has decimals; what it starts from only if it has
      // many.
      Derived derived;
      derived.printed = matrix_of(grid, is_input(grid.role()) ? 3 : 1);
      derived.truth = derived.printed;
      derived.finding.line = source.line_of(grid.begin) + 1;
      // "Then the matrix K" is K.
      const bool phrase = grid.name.find(' ') != std::string::npos && !grid.meaning.index;
      derived.finding.subject =
          phrase && grid.role() != Role::none ? std::string(symbol_of(grid.role())) : grid.name;
      if (derived.finding.subject.empty()) {
        derived.finding.subject = fmt::format("{}×{}", grid.rows, grid.columns);
      }
      results_.push_back(std::move(derived));
    }
  }

  std::vector<Derived> run() {
    for (std::size_t i = 0; i < grids_.size(); ++i) {
      if (is_input(grids_[i].role())) results_[i].finding.verdict = Verdict::given;
      if (grids_[i].role() == Role::none || grids_[i].role() == Role::qkv)
        results_[i].finding.reason = "check.reason.no_name";
    }
    for (Role role :
         {Role::query, Role::key, Role::value, Role::scores, Role::weights, Role::output}) {
      for (std::size_t i = 0; i < grids_.size(); ++i) {
        if (grids_[i].role() == role) check(i);
      }
    }
    return std::move(results_);
  }

 private:
  using Offer = std::function<void(const Matrix&, const std::string&)>;

  // --- what others are computed from

  // Whole matrices of a role, the nearest before `at` first, then those after it.
  std::vector<std::size_t> definitions(Role role, std::size_t at) const {
    std::vector<std::size_t> found;
    for (std::size_t i = at; i-- > 0 && found.size() < kNearest;) {
      if (grids_[i].role() == role && !grids_[i].meaning.index) found.push_back(i);
    }
    for (std::size_t i = at + 1; i < grids_.size() && found.size() < kNearest; ++i) {
      if (grids_[i].role() == role && !grids_[i].meaning.index) found.push_back(i);
    }
    return found;
  }

  bool exists(Role role, std::size_t from = 0) const {
    return std::any_of(grids_.begin(), grids_.end(),
                       [&](const Grid& grid) { return grid.role() == role && grid.begin >= from; });
  }

  std::vector<Part> parts(Role role, std::size_t at) {
    std::vector<Part> found;
    for (std::size_t i : definitions(role, at)) {
      if (i == at) continue;
      found.push_back(
          {printed_ ? results_[i].printed : results_[i].truth, std::string(symbol_of(role))});
      used_.insert(i);
    }
    return found;
  }

  // Q, K or V: as printed, or X times its weights (a note may print but one row of it).
  std::vector<Part> projections(Role role, std::size_t at) {
    std::vector<Part> found = parts(role, at);
    const bool whole = std::any_of(found.begin(), found.end(),
                                   [](const Part& part) { return part.matrix.rows > 1; });
    if (whole) return found;
    for_each_projection(role, at, [&](const Matrix& m, const std::string& formula) {
      if (found.size() < 2 * kNearest) found.push_back({m, "(" + formula + ")"});
    });
    return found;
  }

  void for_each_projection(Role role, std::size_t at, const Offer& offer) {
    const auto shift = static_cast<int>(role) - static_cast<int>(Role::query);
    const auto weight_role = static_cast<Role>(static_cast<int>(Role::w_query) + shift);
    const auto bias_role = static_cast<Role>(static_cast<int>(Role::b_query) + shift);
    const std::string w(symbol_of(weight_role)), b(symbol_of(bias_role));
    for (const Part& x : parts(Role::input, at)) {
      for (const Part& weight : parts(weight_role, at)) {
        for (bool turned : {false, true}) {
          const auto y = multiply(x.matrix, turned ? transposed(weight.matrix) : weight.matrix);
          if (!y) continue;
          const std::string formula = "X·" + w + (turned ? "ᵀ" : "");
          for (const Part& bias : parts(bias_role, at)) {
            if (const auto z = sum(*y, bias.matrix)) offer(*z, formula + " + " + b);
          }
          offer(*y, formula);
        }
      }
    }
  }

  // --- scores, weights, outputs

  struct Variant {
    double scale;
    std::string divisor;  // "/√2", or empty
    bool causal;
  };

  // `widths`: what to take roots of besides none.
  std::vector<Variant> variants(std::set<std::int64_t> widths, bool causal) const {
    std::vector<Variant> all;
    for (bool hidden : {false, true}) {
      if (hidden && !causal) continue;
      all.push_back({1, "", hidden});
      for (std::int64_t d : widths) {
        if (d < 2) continue;  // √1 is no scaling
        all.push_back({1 / std::sqrt(static_cast<double>(d)), fmt::format("/√{}", d), hidden});
      }
    }
    return all;
  }

  struct Pair {
    Matrix query, key;
    std::string name;  // "Q·Kᵀ", "X·Xᵀ"
    bool turned = false;
  };

  std::vector<Pair> pairs(std::size_t at) {
    std::vector<Pair> found;
    for (const Part& q : projections(Role::query, at)) {
      for (const Part& k : projections(Role::key, at)) {
        if (q.matrix.columns == k.matrix.columns) {
          found.push_back({q.matrix, k.matrix, q.name + "·" + k.name + "ᵀ"});
        }
        if (q.matrix.rows == k.matrix.rows && q.matrix.rows > 1) {
          found.push_back(
              {transposed(q.matrix), transposed(k.matrix), q.name + "ᵀ·" + k.name, true});
        }
      }
    }
    for (const Part& x : parts(Role::input, at)) {
      // A single token attends to nothing but itself: that is nobody's example.
      if (x.matrix.rows > 1) found.push_back({x.matrix, x.matrix, "X·Xᵀ"});
    }
    return found;
  }

  static std::string masked(const std::string& formula, const Variant& variant) {
    return formula + variant.divisor + (variant.causal ? " + mask" : "");
  }

  void offer_scores(std::size_t at, const Offer& offer) {
    const bool causal = is_causal_print(grids_[at]);
    for (const Pair& pair : pairs(at)) {
      for (const Variant& v : variants({pair.query.columns}, causal)) {
        if (!spend(pair.query.rows * pair.key.rows, pair.query.columns)) return;
        const auto a = attend(pair.query, pair.key, nullptr, v.scale, v.causal);
        if (a) offer(a->scores, masked(pair.name, v));
      }
    }
    for (std::size_t i : definitions(Role::scores, at)) {
      if (i > at || grids_[i].rows != grids_[at].rows || grids_[i].columns != grids_[at].columns) {
        continue;  // scaled scores follow the unscaled ones
      }
      used_.insert(i);
      for (const Variant& v : variants(widths_, causal)) {
        if (v.divisor.empty() && !v.causal) continue;
        Matrix m = scaled(printed_ ? results_[i].printed : results_[i].truth, v.scale);
        if (v.causal) hide(m);
        offer(m, masked("scores", v));
      }
    }
  }

  static void hide(Matrix& m) {
    for (std::int64_t r = 0; r < m.rows; ++r) {
      for (std::int64_t c = r + 1; c < m.columns; ++c) m.at(r, c) = -INFINITY;
    }
  }

  // Weights that others are computed from or compared with: softmax of what precedes them.
  void offer_weights(std::size_t at, bool causal, const Offer& offer) {
    for (const Pair& pair : pairs(at)) {
      for (const Variant& v : variants({pair.query.columns}, causal)) {
        if (!spend(pair.query.rows * pair.key.rows, pair.query.columns)) return;
        const auto a = attend(pair.query, pair.key, nullptr, v.scale, v.causal);
        if (a) offer(a->weights, "softmax(" + masked(pair.name, v) + ")");
      }
    }
    for (const Part& s : parts(Role::scores, at)) {
      std::set<std::int64_t> widths = widths_;
      for (const Part& k : parts(Role::key, at)) widths.insert(k.matrix.columns);
      for (const Variant& v : variants(widths, causal)) {
        offer(softmax_rows(scaled(s.matrix, v.scale), v.causal),
              "softmax(" + masked(s.name, v) + ")");
      }
    }
  }

  void offer_output(std::size_t at, const Offer& offer) {
    const auto with_projection = [&](const Matrix& z, const std::string& formula) {
      offer(z, formula);
      for (const Part& w : parts(Role::w_output, at)) {
        if (const auto y = multiply(z, w.matrix)) offer(*y, formula + "·Wo");
      }
    };
    const std::vector<Part> values = value_parts(at);
    for (const Pair& pair : pairs(at)) {
      for (const Part& v : pair.name == "X·Xᵀ" ? parts(Role::input, at) : values) {
        const Matrix value = pair.turned ? transposed(v.matrix) : v.matrix;
        for (const Variant& variant : variants({pair.query.columns}, true)) {
          if (!spend(pair.query.rows * pair.key.rows, pair.query.columns + value.columns)) return;
          const auto a = attend(pair.query, pair.key, &value, variant.scale, variant.causal);
          if (!a) continue;
          const std::string formula = "softmax(" + masked(pair.name, variant) + ")·" + v.name;
          with_projection(a->output, formula);
          if (pair.turned) offer(transposed(a->output), "(" + formula + ")ᵀ");
        }
      }
    }
    for (const Part& w : parts(Role::weights, at)) {
      for (const Part& v : values) {
        if (const auto z = multiply(w.matrix, v.matrix)) with_projection(*z, w.name + "·" + v.name);
      }
    }
  }

  // What the weights are applied to: V, or X where a note has no V.
  std::vector<Part> value_parts(std::size_t at) {
    std::vector<Part> values = projections(Role::value, at);
    for (Part& x : parts(Role::input, at)) values.push_back(std::move(x));
    return values;
  }

  std::optional<Matrix> multiply(const Matrix& a, const Matrix& b) {
    if (a.columns != b.rows || !spend(a.rows * a.columns, b.columns)) return std::nullopt;
    return product(a, b);
  }

  bool spend(std::int64_t a, std::int64_t b) {
    spent_ += static_cast<double>(a) * static_cast<double>(b);
    return spent_ <= kBudget;
  }

  // --- choosing and judging

  void offer_all(std::size_t at, const Offer& offer) {
    const Role role = grids_[at].role();
    if (role == Role::scores) return offer_scores(at, offer);
    if (role == Role::weights) return offer_weights(at, is_causal_print(grids_[at]), offer);
    if (role == Role::output) return offer_output(at, offer);
    for_each_projection(role, at, [&](const Matrix& m, const std::string& formula) {
      offer(m, formula);
      if (m.rows != m.columns) offer(transposed(m), "(" + formula + ")ᵀ");
    });
  }

  Choice choose(std::size_t at, bool printed) {
    const Grid& grid = grids_[at];
    Choice choice;
    const auto consider = [&](const Matrix& m, const std::string& formula) {
      Comparison comparison = compare(grid, m);
      if (choice.best && comparison.score <= choice.comparison.score) return;
      choice = {Candidate{m, formula}, std::move(comparison), true};
    };
    printed_ = printed;
    used_.clear();
    offer_all(at, [&](const Matrix& m, const std::string& formula) {
      choice.turned_up = true;
      if (choice.best && choice.comparison.score == 1) return;
      if (m.columns != grid.columns) return;
      if (m.rows == grid.rows) {
        consider(m, formula);
      } else if (grid.rows == 1) {
        consider_rows(grid, m, formula, consider);
      }
    });
    return choice;
  }

  // One row of a result: the row that its index names (from 0 or from 1), or else any.
  static void consider_rows(const Grid& grid, const Matrix& m, const std::string& formula,
                            const Offer& consider) {
    for (std::int64_t r = 0; r < m.rows; ++r) {
      const int index = grid.meaning.index.value_or(-1);
      if (index >= 0 && r != index && r + 1 != index) continue;
      Matrix row(1, m.columns);
      for (std::int64_t c = 0; c < m.columns; ++c) {
        row.at(0, c) = m.at(r, c);
        row.bounds[static_cast<std::size_t>(c)] = m.bound(r, c);
      }
      consider(row, fmt::format("({})[{}]", formula, r));
    }
  }

  void check(std::size_t at) {
    Derived& result = results_[at];
    CheckFinding& finding = result.finding;
    if (is_something_else(grids_[at])) {
      finding.reason = "check.reason.no_name";
      return;
    }
    const Choice choice = choose(at, false);
    if (spent_ > kBudget) {
      finding.reason = "check.reason.too_much";
      return;
    }
    if (!choice.best) return judge_without(at, choice.turned_up);
    finding.formula = choice.best->formula;
    finding.numbers = static_cast<std::int64_t>(grids_[at].cells.size());
    if (choice.comparison.score >= 0.5) result.truth = choice.best->expected;
    if (choice.comparison.is_full()) {
      if (judge_divisor(at)) return;
      finding.verdict = Verdict::agrees;
      if (choice.comparison.score < 1) finding.reason = "check.remark.bounded";
      return;
    }
    finding.verdict = Verdict::differs;
    finding.differences =
        differences_of(source_, grids_[at], choice.best->expected, choice.comparison);
    judge_carried(at);
  }

  // Weights of a layer, not of attention: those are never negative.
  static bool is_something_else(const Grid& grid) {
    return grid.role() == Role::weights &&
           std::any_of(grid.cells.begin(), grid.cells.end(),
                       [](const Printed& cell) { return cell.value < 0; });
  }

  // A heading that says another root than the numbers do: "scores (÷√3)" of Q·Kᵀ/√2.
  bool judge_divisor(std::size_t at) {
    CheckFinding& finding = results_[at].finding;
    const auto root_in = [](std::string_view text) -> std::optional<Printed> {
      const std::size_t sign = text.find("√");
      if (sign == std::string_view::npos) return std::nullopt;
      return read_number(text, sign + std::string_view("√").size());
    };
    const auto said = root_in(grids_[at].name), used = root_in(finding.formula);
    if (!said || !used || said->value == used->value) return false;
    finding.verdict = Verdict::differs;
    CheckDifference difference;
    difference.line = finding.line;
    difference.expected = "√" + format_like(used->value, used->decimals);
    difference.found = "√" + format_like(said->value, said->decimals);
    finding.differences.push_back(std::move(difference));
    return true;
  }

  // Does it follow from the numbers as they are printed? Then either their rounding was carried
  // along, or one of them is wrong and this is not to blame.
  void judge_carried(std::size_t at) {
    CheckFinding& finding = results_[at].finding;
    const bool only_cut = std::all_of(
        finding.differences.begin(), finding.differences.end(),
        [](const CheckDifference& difference) { return difference.miss == Miss::cut_off; });
    if (only_cut) return;
    const Choice choice = choose(at, true);
    if (!choice.best || choice.comparison.score < 1) return;
    bool parent_differs = false;
    for (std::size_t i : used_) {
      for (const CheckDifference& difference : results_[i].finding.differences) {
        parent_differs = parent_differs || difference.miss == Miss::wrong;
      }
    }
    if (parent_differs) {
      finding.verdict = Verdict::agrees;
      finding.formula = choice.best->formula;
      finding.reason = "check.remark.from_printed";
      finding.differences.clear();
      results_[at].truth = results_[at].printed;
      return;
    }
    for (CheckDifference& difference : finding.differences) difference.miss = Miss::carried;
  }

  // Nothing to compute it from.
  void judge_without(std::size_t at, bool other_shape) {
    CheckFinding& finding = results_[at].finding;
    const Grid& grid = grids_[at];
    const Role role = grid.role();
    const auto missing = [&](std::string_view names) {
      finding.reason = "check.reason.missing";
      finding.arguments = {std::string(names)};
    };
    if (role == Role::weights && !other_shape && judge_row_sums(at)) return;
    if (other_shape && role != Role::query && role != Role::key && role != Role::value) {
      finding.reason = "check.reason.shape";
      finding.arguments = {fmt::format("{}×{}", grid.rows, grid.columns)};
    } else if (role == Role::scores) {
      missing(exists(Role::query) ? "K" : exists(Role::key) ? "Q" : "Q, K");
    } else if (role == Role::weights) {
      missing("scores");
    } else if (role == Role::output) {
      missing(exists(Role::weights) || exists(Role::scores) ? "V" : "Q, K, V");
    } else {
      const auto shift = static_cast<int>(role) - static_cast<int>(Role::query);
      const auto weight = static_cast<Role>(static_cast<int>(Role::w_query) + shift);
      if (exists(weight) && exists(Role::input)) {
        // Another section may be another example, with vectors of its own.
        const std::size_t section = source_.section_start(grid.begin);
        if (!exists(weight, section) || !exists(Role::input, section)) {
          finding.verdict = Verdict::given;
          return;
        }
        finding.reason = "check.reason.shape";
        finding.arguments = {fmt::format("{}×{}", grid.rows, grid.columns)};
      } else if (exists(weight)) {
        missing("X");
      } else if (exists(Role::w_query) || exists(Role::w_key) || exists(Role::w_value)) {
        missing(symbol_of(weight));
      } else {
        finding.verdict = Verdict::given;
      }
    }
  }

  // Weights of unknown scores still add up to 1 in every row.
  bool judge_row_sums(std::size_t at) {
    const Grid& grid = grids_[at];
    const bool plausible =
        std::all_of(grid.cells.begin(), grid.cells.end(),
                    [](const Printed& cell) { return cell.value >= 0 && cell.value <= 1; });
    if (!plausible || grid.columns < 2) return false;
    CheckFinding& finding = results_[at].finding;
    const int decimals = most_decimals(grid);
    finding.verdict = Verdict::agrees;
    finding.formula = "Σ = 1";
    finding.reason = "check.remark.row_sums";
    finding.numbers = static_cast<std::int64_t>(grid.cells.size());
    for (std::int64_t r = 0; r < grid.rows; ++r) {
      double total = 0, bound = 0;
      for (std::int64_t c = 0; c < grid.columns; ++c) {
        total += grid.at(r, c).value;
        bound += 0.5 * std::pow(10.0, -claimed_decimals(grid.at(r, c), decimals));
      }
      if (std::abs(total - 1) <= bound + 1e-12) continue;
      finding.verdict = Verdict::differs;
      CheckDifference difference;
      difference.line = source_.line_of(grid.at(r, 0).at) + 1;
      difference.row = grid.is_vector ? 0 : r + 1;
      difference.expected = "Σ = 1";
      difference.found = "Σ = " + format_like(total, decimals);
      finding.differences.push_back(std::move(difference));
    }
    return true;
  }

  const Source& source_;
  const std::vector<Grid>& grids_;
  std::set<std::int64_t> widths_;
  std::vector<Derived> results_;
  double spent_ = 0;
  bool printed_ = false;        // take parents as printed rather than as they should be
  std::set<std::size_t> used_;  // grids that the last choice looked at
};

}  // namespace

std::vector<Derived> derive(const Source& source, const std::vector<Grid>& grids) {
  return Deriver(source, grids).run();
}

}  // namespace qkv::check
