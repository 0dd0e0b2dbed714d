#include <fmt/format.h>

#include "explain/writers/writer.h"

namespace qkv {
namespace {

std::string escape(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '<' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// Code in backticks; a bar would end a table's cell, but formulas stand outside of tables.
std::string code(std::string_view text) { return fmt::format("`{}`", text); }

// "query[0, 1, :, :]": which of several matrices it is; nothing where there is one.
std::string slice_of(const Step& step, const Matrix& m) {
  bool several = false;
  std::string result = step.name + "[";
  for (int axis = 0; axis < step.value->shape().rank(); ++axis) {
    const auto n = static_cast<std::size_t>(axis);
    if (axis > 0) result += ", ";
    result += n < m.lead.size() ? fmt::format("{}", m.lead[n]) : ":";
    several = several || (n < m.lead.size() && step.value->dim(axis) > 1);
  }
  return several ? result + "]" : "";
}

// The corner says what the matrix is called.
void table(std::string& out, const PageView& view, const Matrix& m, int digits,
           const std::string& name) {
  out += fmt::format("\n| {} |", escape(name));
  for (std::int64_t c = view.part.cols.begin; c < view.part.cols.end; ++c) {
    out += fmt::format(" {} |", escape(view.page.col_label(c)));
  }
  if (view.cut_cols) out += " … |";
  out += "\n|---|";
  for (std::int64_t c = 0; c < view.part.cols.size() + (view.cut_cols ? 1 : 0); ++c) out += "--:|";
  out += "\n";
  for (std::size_t r = 0; r < m.values.size(); ++r) {
    out += fmt::format(
        "| {} |", escape(view.page.row_label(view.part.rows.begin + static_cast<std::int64_t>(r))));
    for (std::size_t c = 0; c < m.values[r].size(); ++c) {
      out += fmt::format(" {} |", format_number(m.values[r][c], digits, m.whole[c]));
    }
    out += view.cut_cols ? " … |\n" : "\n";
  }
  if (view.cut_rows) {
    out += "| … |";
    for (std::int64_t c = 0; c < view.part.cols.size() + (view.cut_cols ? 1 : 0); ++c)
      out += " … |";
    out += "\n";
  }
}

}  // namespace

std::string write_markdown(const Explanation& explanation, const WriteOptions& options) {
  check_selection(explanation, options.selection);
  const Language language = options.language;
  std::string out =
      fmt::format("# {}\n\n{}\n", escape(message(language, explanation.text + ".title")),
                  escape(message(language, explanation.text + ".intro")));
  for (std::size_t n = 0; n < explanation.steps.size(); ++n) {
    const Step& step = explanation.steps[n];
    out += fmt::format("\n## {}. {} ({})\n\n{}  {}: {}\n\n{}\n", n + 1,
                       escape(title_of(step, language)), code(step.name), code(step.formula),
                       message(language, "writer.shape"), code(shape_with_axes(step)),
                       escape(meaning_of(step, language)));
    const PageView view = view_page(step, options.selection);
    if (view.page.turned()) out += fmt::format("\n{}\n", message(language, "writer.turned"));
    for (const Matrix& m : view.matrices) {
      const std::string which = slice_of(step, m);
      if (!which.empty()) out += fmt::format("\n{}\n", code(which));
      table(out, view, m, options.digits, view.matrices.size() == 1 ? symbol_of(step) : "");
    }
    for (const Dims& index : entries_of(explanation, step, options)) {
      out += fmt::format("\n{}\n", code(format_expansion(step, index, options)));
    }
    for (const Remark& r : explanation.remarks) {
      if (r.step == step.name)
        out += fmt::format("\n> {}\n", escape(message(language, r.text, r.arguments)));
    }
  }
  for (const Remark& r : explanation.remarks) {
    if (r.step.empty())
      out += fmt::format("\n> {}\n", escape(message(language, r.text, r.arguments)));
  }
  return out;
}

}  // namespace qkv
