#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "explain/writers/writer.h"

namespace qkv {

std::string title_of(const Step& step, Language language) {
  return std::string(message(language, step.text + ".title"));
}

std::string meaning_of(const Step& step, Language language) {
  return std::string(message(language, step.text + ".meaning"));
}

std::string shape_with_axes(const Step& step) {
  std::string result = "[";
  for (int i = 0; i < step.value->shape().rank(); ++i) {
    if (i > 0) result += ", ";
    const std::string& axis = step.axes[static_cast<std::size_t>(i)];
    // An axis that is named by a number (a table's) needs no more than its extent.
    const bool number = !axis.empty() && axis.find_first_not_of("0123456789") == std::string::npos;
    result += number ? fmt::format("{}", step.value->dim(i))
                     : fmt::format("{}={}", axis, step.value->dim(i));
  }
  return result + "]";
}

std::string symbol_of(const Step& step) {
  const std::string_view formula = step.formula;
  const std::string_view left = formula.substr(0, formula.find(" = "));
  const std::string symbol(left.substr(0, left.find('[')));
  return symbol.empty() || symbol.find(' ') != std::string::npos ? step.name : symbol;
}

std::string format_number(double value, int digits, bool whole) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (whole && std::abs(value) < 1e15) return fmt::format("{:.0f}", value == 0 ? 0.0 : value);
  const double size = std::abs(value);
  // Fixed digits would hide what is very small and bury what is very large.
  if (size != 0 && (size >= 1e7 || size < 0.5 * std::pow(10.0, -digits))) {
    return fmt::format("{:.{}e}", value, std::max(digits - 2, 1));
  }
  return fmt::format("{:.{}f}", value == 0 ? 0.0 : value, digits);
}

namespace {

// A factor inside of a sum: as short as it can be.
std::string factor(double value, int digits) {
  const bool whole = std::isfinite(value) && value == std::trunc(value);
  const std::string text = format_number(value, digits, whole);
  return value < 0 ? fmt::format("({})", text) : text;
}

// Puts " + " between terms, and "…" in place of the middle of many.
template <typename Term>
std::string join_terms(std::size_t count, std::size_t most, Term&& term) {
  std::string result;
  for (std::size_t n = 0; n < count; ++n) {
    if (n > 0) result += " + ";
    if (count > most && n == most / 2) {
      result += "…";
      n = count - most / 2 - 1;
      continue;
    }
    result += term(n);
  }
  return result;
}

std::string products(const Expansion& e, int digits, std::size_t most) {
  std::string sum = join_terms(e.terms.size(), most, [&](std::size_t n) {
    return fmt::format("{}·{}", factor(e.terms[n].first, digits),
                       factor(e.terms[n].second, digits));
  });
  if (e.has_addend) sum += fmt::format(" + {}", factor(e.addend, digits));
  return sum;
}

// s/√n, where the one factor is 1/√n.
std::string over_root(const Expansion& e, int digits) {
  return fmt::format("{}/√{}", factor(e.terms.front().first, digits), e.root);
}

std::string silu(const Expansion& e, int digits, std::size_t most) {
  const auto& [a, b] = e.terms.front();
  if (e.terms.size() == 1 && b == 1 && !e.has_addend) {
    return fmt::format("{0} / (1 + exp(−{0}))", factor(a, digits));
  }
  double s = e.addend;
  for (const auto& [x, w] : e.terms) s += x * w;
  return fmt::format("silu({0}) = {1} / (1 + exp(−{1}))", products(e, digits, most),
                     factor(s, digits));
}

std::string norm(const Expansion& e, int digits) {
  const auto& [x, w] = e.terms.front();
  const std::string centred =
      e.mean == 0 ? factor(x, digits)
                  : fmt::format("({} − {})", factor(x, digits), factor(e.mean, digits));
  return fmt::format("{}/√({} + {})·{}{}", centred, factor(e.variance, digits), e.eps,
                     factor(w, digits),
                     e.has_addend ? fmt::format(" + {}", factor(e.addend, digits)) : "");
}

std::string softmax(const Expansion& e, int digits, std::size_t most) {
  const auto power = [&](double s) {
    return fmt::format("exp({} − {})", factor(s, digits), factor(e.largest, digits));
  };
  return fmt::format(
      "{} / ({})", power(e.scores[static_cast<std::size_t>(e.chosen)]),
      join_terms(e.scores.size(), most, [&](std::size_t n) { return power(e.scores[n]); }));
}

}  // namespace

std::string format_expansion(const Step& step, const Dims& index, const WriteOptions& options,
                             std::size_t most) {
  const Expansion e = step.expand(index);
  const int digits = options.digits;
  const bool whole = std::isfinite(e.value) && e.value == std::trunc(e.value);
  const std::string name = entry_name(step, index);
  const std::string value = format_number(e.value, digits, whole);
  switch (e.kind) {
    case Expansion::Kind::given:
      return fmt::format("{} = {}  ({})", name, value, message(options.language, "writer.given"));
    case Expansion::Kind::copied:
      return fmt::format("{} = {}{} = {}", name, e.source, to_string(e.source_index), value);
    case Expansion::Kind::hidden:
      return fmt::format("{} = {}  ({})", name, value, message(options.language, "writer.hidden"));
    case Expansion::Kind::products:
      return fmt::format("{} = {} = {}", name,
                         e.root != 0 ? over_root(e, digits) : products(e, digits, most), value);
    case Expansion::Kind::sum:
      return fmt::format(
          "{} = {} = {}", name,
          join_terms(e.terms.size(), most,
                     [&](std::size_t n) { return factor(e.terms[n].first, digits); }),
          value);
    case Expansion::Kind::softmax:
      return fmt::format("{} = {} = {}", name, softmax(e, digits, most / 2), value);
    case Expansion::Kind::silu:
      return fmt::format("{} = {} = {}", name, silu(e, digits, most), value);
    case Expansion::Kind::softcap:
      return fmt::format("{0} = {2}·tanh({1}/{2}) = {3}", name,
                         factor(e.terms.front().first, digits),
                         factor(e.terms.front().second, digits), value);
    case Expansion::Kind::norm: return fmt::format("{} = {} = {}", name, norm(e, digits), value);
  }
  return name;
}

std::vector<Dims> entries_of(const Explanation& explanation, const Step& step,
                             const WriteOptions& options) {
  std::vector<Dims> result;
  if (!step.expand) return result;
  const PagePart part = page_part(step, options.selection);
  const auto inside = [](const Range& range, std::int64_t n) {
    return n >= range.begin && n < range.end;
  };
  for (const auto& [name, index] : explanation.expanded) {
    if (name != step.name) continue;
    // Of the batch and head that are shown, if the matrix shows the entry at all.
    Dims shown = index;
    for (std::size_t axis = 0; axis < part.lead.size(); ++axis) {
      auto& n = shown[static_cast<int>(axis)];
      if (!inside(part.lead[axis], n)) n = part.lead[axis].begin;
    }
    const auto [row, col] = place_of(step, shown);
    if (inside(part.rows, row) && inside(part.cols, col)) result.push_back(shown);
  }
  for (const Entry& entry : options.expanded) {
    if (entry.step == step.name) result.push_back(entry.index);
  }
  return result;
}

PageView view_page(const Step& step, const Selection& selection) {
  PageView view{Page(step), page_part(step, selection), {}, false, false};
  view.cut_rows = view.part.rows.size() < view.page.row_count();
  view.cut_cols = view.part.cols.size() < view.page.col_count();
  std::vector<std::int64_t> lead;
  for (const Range& range : view.part.lead) {
    if (range.size() == 0) return view;
    lead.push_back(range.begin);
  }
  for (;;) {
    Matrix matrix{
        lead, {}, std::vector<bool>(static_cast<std::size_t>(view.part.cols.size()), true)};
    for (std::int64_t r = view.part.rows.begin; r < view.part.rows.end; ++r) {
      auto& row = matrix.values.emplace_back();
      for (std::int64_t c = view.part.cols.begin; c < view.part.cols.end; ++c) {
        const double v = step.value->view().at(view.page.index(lead, r, c));
        row.push_back(v);
        if (std::isfinite(v) && v != std::trunc(v)) matrix.whole[row.size() - 1] = false;
      }
    }
    // Unless the columns are different things, they look alike.
    if (!step.table &&
        std::find(matrix.whole.begin(), matrix.whole.end(), false) != matrix.whole.end()) {
      matrix.whole.assign(matrix.whole.size(), false);
    }
    view.matrices.push_back(std::move(matrix));
    int axis = static_cast<int>(lead.size()) - 1;  // counts up like an odometer
    for (; axis >= 0; --axis) {
      const auto a = static_cast<std::size_t>(axis);
      if (++lead[a] < view.part.lead[a].end) break;
      lead[a] = view.part.lead[a].begin;
    }
    if (axis < 0) return view;
  }
}

}  // namespace qkv
