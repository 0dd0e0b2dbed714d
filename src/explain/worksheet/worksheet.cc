#include "explain/worksheet/worksheet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>

#include "explain/explain.h"
#include "explain/worksheet/recipes.h"
#include "explain/writers/writer.h"
#include "qkv/error.h"

namespace qkv::worksheet {
namespace {

// The fewest decimals, up to `most`, that write every entry of a kind in full; -1 if none do.
int exact_decimals(const std::vector<Grid>& grids, Entry::Kind kind, int most) {
  for (int decimals = 0; decimals <= most; ++decimals) {
    const double unit = std::pow(10.0, decimals);
    bool all = true;
    for (const Grid& grid : grids) {
      for (const Entry& e : grid.entries) {
        const double off = std::abs(e.value - std::round(e.value * unit) / unit);
        all = all && (e.kind != kind || off <= 1e-11 * std::max(1.0, std::abs(e.value)));
      }
    }
    if (all) return decimals;
  }
  return -1;
}

// To two digits, with room for the last bit: who rounds half a unit up is exactly at the bound.
double rounded_up(double tolerance) {
  if (tolerance < 1e-6) return 1e-6;
  const double unit = std::pow(10.0, std::floor(std::log10(tolerance)) - 1);
  return std::ceil(tolerance / unit * (1 + 1e-9)) * unit;
}

class Builder {
 public:
  Builder(const Explanation& explanation, int digits) : e_(explanation) {
    sheet_.digits = digits;
    sheet_.text = e_.text;
  }

  Worksheet build() && {
    for (const bool given : {true, false}) {
      for (const Step& step : e_.steps) {
        const Recipe recipe = recipe_of(e_, step);
        if (given == !recipe && !left_out(step)) add(step, recipe);
      }
    }
    for (const Remark& remark : e_.remarks) add_remark(remark);
    return std::move(sheet_);
  }

 private:
  // By hand one makes Q, K and V, not [Q | K | V].
  static bool left_out(const Step& step) { return step.name == "qkv"; }

  static std::size_t flat(const Step& step, const Dims& index) {
    std::int64_t n = 0;
    for (int axis = 0; axis < index.rank(); ++axis) n = n * step.value->dim(axis) + index[axis];
    return static_cast<std::size_t>(n);
  }

  Expression entry_of(const Step& step, const Dims& index) const {
    return Expression::entry(places_.at(step.name)[flat(step, index)],
                             step.value->view().at(index));
  }

  void add(const Step& step, const Recipe& recipe) {
    Part part;
    part.name = step.name;
    part.text = step.text;
    part.formula = step.formula;
    part.symbol = symbol_of(step);
    part.shape = shape_with_axes(step);
    part.row_names = !(step.tokens_last ? step.cols : step.rows).empty();
    part.col_names = !(step.tokens_last ? step.rows : step.cols).empty();
    places_[step.name].resize(static_cast<std::size_t>(step.value->size()));
    const Page page(step);
    std::vector<std::int64_t> lead(static_cast<std::size_t>(page.lead_count()), 0);
    do {
      add_grid(part, step, page, lead);
    } while (advance(lead, step));
    if (part.is_list()) {  // its columns say it all
      part.symbol.clear();
      part.grids.front().rows.front().clear();
    }
    if (recipe) fill(part, step, page, recipe);
    if (recipe && looks_like_its_source(part, step)) return;
    round(part);
    choose_hint(part, step);
    sheet_.parts.push_back(std::move(part));
  }

  static bool advance(std::vector<std::int64_t>& lead, const Step& step) {
    for (std::size_t axis = lead.size(); axis-- > 0;) {
      if (++lead[axis] < step.value->dim(static_cast<int>(axis))) return true;
      lead[axis] = 0;
    }
    return false;
  }

  void add_grid(Part& part, const Step& step, const Page& page,
                const std::vector<std::int64_t>& lead) {
    Grid grid;
    for (std::size_t axis = 0; axis < lead.size(); ++axis) {
      if (step.value->dim(static_cast<int>(axis)) == 1) continue;
      const bool head = step.axes[axis] == "heads" || step.axes[axis] == "h";
      grid.caption = head ? "worksheet.head" : "worksheet.channel";
      grid.number = lead[axis];
    }
    for (std::int64_t r = 0; r < page.row_count(); ++r) grid.rows.push_back(page.row_label(r));
    for (std::int64_t c = 0; c < page.col_count(); ++c) grid.cols.push_back(page.col_label(c));
    for (std::int64_t r = 0; r < page.row_count(); ++r) {
      for (std::int64_t c = 0; c < page.col_count(); ++c) {
        const Dims index = page.index(lead, r, c);
        Entry entry;
        entry.value = step.value->view().at(index);
        grid.entries.push_back(std::move(entry));
        places_[step.name][flat(step, index)] = {sheet_.parts.size(), part.grids.size(),
                                                 static_cast<std::size_t>(r),
                                                 static_cast<std::size_t>(c)};
      }
    }
    part.grids.push_back(std::move(grid));
  }

  // Says how each entry is made, and makes sure that this gives the engine's number: a key that is
  // wrong would be worse than none.
  void fill(Part& part, const Step& step, const Page& page, const Recipe& recipe) {
    part.given = false;
    const EntryOf leaf = [this](const Step& s, const Dims& i) { return entry_of(s, i); };
    const auto value_at = [&](const Place& p) {
      return Approximate{p.part < sheet_.parts.size() ? sheet_.at(p).value
                                                      : part.grids[p.grid].at(p.row, p.col).value};
    };
    std::vector<std::int64_t> lead(static_cast<std::size_t>(page.lead_count()), 0);
    for (Grid& grid : part.grids) {
      for (std::size_t n = 0; n < grid.entries.size(); ++n) {
        const auto width = static_cast<std::int64_t>(grid.cols.size());
        const auto at = static_cast<std::int64_t>(n);
        Entry entry = recipe(page.index(lead, at / width, at % width), leaf);
        entry.value = grid.entries[n].value;
        if (entry.kind == Entry::Kind::made) {
          const double value = evaluate(entry.how, value_at).value;
          if (!(std::abs(value - entry.value) <= 1e-9 * (1 + std::abs(value)))) {
            throw std::logic_error(fmt::format("worksheet: {} is not made as it says", step.name));
          }
        }
        part.has_hidden = part.has_hidden || entry.kind == Entry::Kind::hidden;
        grid.entries[n] = std::move(entry);
      }
      advance(lead, step);
    }
  }

  // A step that prints the very grids of another one is left out; its entries are the other's.
  bool looks_like_its_source(const Part& part, const Step& step) {
    const Entry& first = part.grids.front().entries.front();
    if (first.kind != Entry::Kind::made || first.how.kind != Expression::Kind::entry) return false;
    const std::size_t source = first.how.place.part;
    if (source >= sheet_.parts.size() || sheet_.parts[source].grids.size() != part.grids.size()) {
      return false;
    }
    for (std::size_t g = 0; g < part.grids.size(); ++g) {
      const Grid& grid = part.grids[g];
      for (std::size_t n = 0; n < grid.entries.size(); ++n) {
        const Place same{source, g, n / grid.cols.size(), n % grid.cols.size()};
        const Expression& how = grid.entries[n].how;
        if (how.kind != Expression::Kind::entry || how.place != same) return false;
      }
    }
    for (Place& place : places_[step.name]) place.part = source;
    return true;
  }

  // Decimals, and how far each entry may be off when every step is rounded to its decimals.
  void round(Part& part) const {
    double inherited = 0;
    const auto at = [&](const Place& p) {
      if (p.part >= sheet_.parts.size())
        return Approximate{part.grids[p.grid].at(p.row, p.col).value};
      return Approximate{sheet_.at(p).value, sheet_.at(p).error};
    };
    for (Grid& grid : part.grids) {
      for (Entry& entry : grid.entries) {
        if (entry.kind == Entry::Kind::made) entry.error = evaluate(entry.how, at).error;
        inherited = std::max(inherited, entry.error);
      }
    }
    constexpr int kGivenDecimals = 8;
    const int exact = part.given ? exact_decimals(part.grids, Entry::Kind::given, kGivenDecimals)
                                 : exact_decimals(part.grids, Entry::Kind::made, sheet_.digits);
    part.exact = exact >= 0 && inherited == 0;
    part.decimals = part.exact ? exact : part.given ? kGivenDecimals : sheet_.digits;
    if (part.given) return;
    for (Grid& grid : part.grids) {
      for (Entry& entry : grid.entries) {
        if (!part.exact) entry.error += 0.5 * std::pow(10.0, -part.decimals);
        part.tolerance = std::max(part.tolerance, entry.error);
      }
    }
    part.tolerance = rounded_up(part.tolerance);
  }

  // An entry that the explanation writes out, or the first one that is computed.
  void choose_hint(Part& part, const Step& step) const {
    const auto offer = [&](const Place& p) {
      const Entry& entry = part.grids[p.grid].at(p.row, p.col);
      const bool worth =
          entry.kind == Entry::Kind::made && entry.how.kind != Expression::Kind::number;
      if (worth && !part.hint) part.hint = p;
    };
    for (const auto& [name, index] : e_.expanded) {
      if (name == step.name) offer(places_.at(name)[flat(step, index)]);
    }
    for (const Place& place : places_.at(step.name)) offer(place);
  }

  // A remark about a step that was left out goes to the next one.
  void add_remark(const Remark& remark) {
    bool passed = false;
    for (const Step& step : e_.steps) {
      passed = passed || step.name == remark.step;
      for (Part& part : sheet_.parts) {
        if (passed && !part.given && part.name == step.name) {
          part.remarks.push_back(remark);
          return;
        }
      }
    }
    sheet_.parts.back().remarks.push_back(remark);
  }

  Explanation e_;
  Worksheet sheet_;
  std::map<std::string, std::vector<Place>> places_;  // of each entry of a step, row-major
};

std::size_t blanks_of(const Grid& grid) {
  return static_cast<std::size_t>(
      std::count_if(grid.entries.begin(), grid.entries.end(),
                    [](const Entry& e) { return e.kind != Entry::Kind::given; }));
}

}  // namespace

bool Part::is_list() const {
  return col_names && !row_names && grids.size() == 1 && grids.front().rows.size() == 1;
}

std::size_t Part::blanks() const {
  std::size_t count = 0;
  for (const Grid& grid : grids) count += blanks_of(grid);
  return count;
}

std::size_t Worksheet::blanks() const {
  std::size_t count = 0;
  for (const Part& part : parts) count += part.blanks();
  return count;
}

const Part* Worksheet::find(std::string_view name) const {
  for (const Part& part : parts) {
    if (part.name == name) return &part;
  }
  return nullptr;
}

Worksheet make_worksheet(const Explanation& explanation, int digits) {
  if (digits < kMinDigits || digits > kMaxDigits) {
    throw Error(ErrorKind::value, "worksheet", "digits",
                fmt::format("{} to {}", kMinDigits, kMaxDigits), fmt::format("{}", digits));
  }
  return Builder(explanation, digits).build();
}

const std::vector<std::string>& worksheet_examples() {
  static const std::vector<std::string> names = {"dot",     "pixels", "channels",
                                                 "journey", "causal", "heads"};
  return names;
}

Worksheet example_worksheet(std::string_view name, int digits) {
  const std::vector<std::string>& names = worksheet_examples();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::vector<std::string>& all = example_names();
    const bool known = std::find(all.begin(), all.end(), name) != all.end();
    throw Error(ErrorKind::value, "worksheet", "example",
                fmt::format("one of {}", fmt::join(names, ", ")),
                fmt::format("\"{}\"{}", name, known ? ", which is too large to do by hand" : ""));
  }
  return make_worksheet(explain_example(name), digits);
}

}  // namespace qkv::worksheet
