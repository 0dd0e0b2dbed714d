#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "explain/writers/width.h"
#include "explain/writers/writer.h"

namespace qkv {
namespace {

constexpr std::string_view kIndent = "    ";

class TextWriter {
 public:
  TextWriter(const Explanation& explanation, const WriteOptions& options)
      : e_(explanation), o_(options) {}

  std::string write() {
    const std::string title(message(o_.language, e_.text + ".title"));
    line(bold(title));
    line(std::string(display_width(title), '='));
    prose(message(o_.language, e_.text + ".intro"), "");
    for (std::size_t n = 0; n < e_.steps.size(); ++n) step(n);
    remarks("");
    return std::move(text_);
  }

 private:
  void line(std::string_view s) {
    text_ += s;
    text_ += '\n';
  }

  void prose(std::string_view s, std::string_view indent) {
    for (const std::string& l : wrap(s, o_.width - indent.size()))
      line(fmt::format("{}{}", indent, l));
  }

  std::string paint(std::string_view code, std::string_view s) const {
    return o_.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, s) : std::string(s);
  }
  std::string bold(std::string_view s) const { return paint("1", s); }
  std::string faint(std::string_view s) const { return paint("2", s); }

  void step(std::size_t n) {
    const Step& s = e_.steps[n];
    line("");
    line(fmt::format("{:>2}. {}  {}  {}", n + 1, bold(title_of(s, o_.language)),
                     faint(fmt::format("({})", s.name)), paint("36", shape_with_axes(s))));
    line(fmt::format("{}{}", kIndent, paint("33", s.formula)));
    prose(meaning_of(s, o_.language), kIndent);
    const PageView view = view_page(s, o_.selection);
    if (view.page.turned()) prose(message(o_.language, "writer.turned"), kIndent);
    if (view.cut_rows || view.cut_cols || hides_lead(s, view)) {
      line(fmt::format("{}{}", kIndent, faint(describe_part(s, view))));
    }
    for (const Matrix& m : view.matrices) matrix(s, view, m);
    for (const Dims& index : entries_of(e_, s, o_)) {
      prose(format_expansion(s, index, o_), kIndent);
    }
    remarks(s.name);
  }

  bool hides_lead(const Step& s, const PageView& view) const {
    for (std::size_t i = 0; i < view.part.lead.size(); ++i) {
      if (view.part.lead[i].size() < s.value->dim(static_cast<int>(i))) return true;
    }
    return false;
  }

  // "shown: B 0 of 32; h 0 of 8; rows 0–5 of 20; columns 0–7 of 64"
  std::string describe_part(const Step& s, const PageView& view) const {
    std::string ranges;
    const auto range = [&](std::string_view name, const Range& r, std::int64_t extent) {
      const std::string which =
          r.size() == 1 ? fmt::format("{}", r.begin) : fmt::format("{}–{}", r.begin, r.end - 1);
      if (!ranges.empty()) ranges += message(o_.language, "writer.and");
      ranges += message(o_.language, "writer.range",
                        {std::string(name), which, fmt::format("{}", extent)});
    };
    for (std::size_t i = 0; i < view.part.lead.size(); ++i) {
      const std::int64_t extent = s.value->dim(static_cast<int>(i));
      if (view.part.lead[i].size() < extent) range(s.axes[i], view.part.lead[i], extent);
    }
    if (view.cut_rows) {
      range(message(o_.language, "writer.rows"), view.part.rows, view.page.row_count());
    }
    if (view.cut_cols) {
      range(message(o_.language, "writer.columns"), view.part.cols, view.page.col_count());
    }
    return message(o_.language, "writer.shown", {ranges});
  }

  void matrix(const Step& s, const PageView& view, const Matrix& m) {
    if (view.matrices.size() > 1) {
      std::string which;
      for (std::size_t i = 0; i < m.lead.size(); ++i) {
        if (s.value->dim(static_cast<int>(i)) > 1) {
          which += fmt::format("{}{} = {}", which.empty() ? "" : ", ", s.axes[i], m.lead[i]);
        }
      }
      line(fmt::format("{}{}", kIndent, faint(which)));
    }
    // Cells, right-aligned in columns.
    std::vector<std::vector<std::string>> cells;
    for (const auto& row : m.values) {
      auto& out = cells.emplace_back();
      for (double v : row) out.push_back(format_number(v, o_.digits, m.whole[out.size()]));
    }
    const bool heads = !s.cols.empty() || view.page.turned() || view.cut_cols;
    std::vector<std::size_t> widths(static_cast<std::size_t>(view.part.cols.size()), 1);
    for (std::size_t c = 0; c < widths.size(); ++c) {
      if (heads) widths[c] = display_width(label(view, c));
      for (const auto& row : cells) widths[c] = std::max(widths[c], display_width(row[c]));
    }
    std::size_t margin = 0;
    for (std::int64_t r = view.part.rows.begin; r < view.part.rows.end; ++r) {
      margin = std::max(margin, display_width(row_name(view, r)));
    }
    if (heads) header(view, widths, margin);
    for (std::size_t r = 0; r < cells.size(); ++r) {
      std::string out = fmt::format(
          "{}{}", kIndent,
          faint(pad_right(row_name(view, view.part.rows.begin + static_cast<std::int64_t>(r)),
                          margin)));
      for (std::size_t c = 0; c < widths.size(); ++c) {
        out += "  " + shade(s, m.values[r][c], pad_left(cells[r][c], widths[c]));
      }
      if (view.cut_cols) out += "  …";
      line(out);
    }
    if (view.cut_rows) line(fmt::format("{}{}", kIndent, "…"));
  }

  // A matrix that is shown from its first row on, with no names, needs no numbers at its side.
  std::string row_name(const PageView& view, std::int64_t row) const {
    if (!view.page.has_row_labels() && !view.cut_rows && !view.cut_cols) return "";
    return view.page.row_label(row);
  }

  std::string label(const PageView& view, std::size_t c) const {
    return view.page.col_label(view.part.cols.begin + static_cast<std::int64_t>(c));
  }

  void header(const PageView& view, const std::vector<std::size_t>& widths, std::size_t margin) {
    std::string out = fmt::format("{}{}", kIndent, std::string(margin, ' '));
    for (std::size_t c = 0; c < widths.size(); ++c)
      out += "  " + pad_left(label(view, c), widths[c]);
    line(faint(out));
  }

  // Heat map: from no background (0) to a strong one (1), on the 256-colour cube's blues.
  std::string shade(const Step& s, double value, const std::string& cell) const {
    if (!o_.color || !s.shares || !std::isfinite(value)) return cell;
    constexpr int kRamp[] = {-1, 17, 18, 19, 20, 26, 32, 38, 44, 50};
    const int n = std::clamp(static_cast<int>(value * 10), 0, 9);
    if (kRamp[n] < 0) return cell;
    return fmt::format("\x1b[48;5;{};38;5;{}m{}\x1b[0m", kRamp[n], n < 6 ? 15 : 16, cell);
  }

  void remarks(std::string_view step) {
    for (const Remark& r : e_.remarks) {
      if (r.step != step) continue;
      prose(fmt::format("» {}", message(o_.language, r.text, r.arguments)), kIndent);
    }
  }

  const Explanation& e_;
  const WriteOptions& o_;
  std::string text_;
};

}  // namespace

std::string write_text(const Explanation& explanation, const WriteOptions& options) {
  check_selection(explanation, options.selection);
  return TextWriter(explanation, options).write();
}

}  // namespace qkv
