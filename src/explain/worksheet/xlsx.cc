// A worksheet as a workbook. Both sheets have the same layout, so that an entry and its answer
// stand in cells of the same name, and a formula that is right on one sheet is right on the other.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "explain/worksheet/words.h"
#include "explain/worksheet/workbook.h"
#include "explain/worksheet/worksheet.h"

namespace qkv::worksheet {
namespace {

constexpr std::size_t kTitleRow = 1, kIntroRow = 2, kInstructionsRow = 3, kScoreRow = 4;
constexpr std::size_t kLabelCol = 1, kFirstCol = 2;  // of every grid

// Rows of one part. 0: there is no such row.
struct PartRows {
  std::size_t heading = 0;  // of what follows: "Given", "Steps"
  std::size_t title = 0, meaning = 0, advice = 0, hint = 0;
  std::vector<std::size_t> grids;  // their header rows; the formula stands below the title
};

struct Layout {
  std::vector<PartRows> parts;
  std::size_t mark_col = 0;  // first column of the marks
  std::size_t last_col = 0;  // of text
  std::size_t last_row = 0;

  Cell cell(const Place& p) const {
    return {parts[p.part].grids[p.grid] + 1 + p.row, kFirstCol + p.col};
  }
  std::string name(const Place& p) const { return cell_name(cell(p)); }
};

Layout lay_out(const Worksheet& sheet, const WriteOptions& options, const Words& words) {
  Layout layout;
  std::size_t row = kScoreRow + 2, widest = 0;
  bool given = false;
  for (const Part& part : sheet.parts) {
    PartRows rows;
    if (layout.parts.empty() || part.given != given) rows.heading = row++;
    given = part.given;
    rows.title = row;
    rows.meaning = row + 2;
    row += 3;
    if (!words.advice(sheet, part).empty() || !part.remarks.empty()) rows.advice = row++;
    if (part.hint && options.hints) rows.hint = row++;
    for (const Grid& grid : part.grids) {
      rows.grids.push_back(row);
      row += 1 + grid.rows.size();
      widest = std::max(widest, grid.cols.size());
    }
    ++row;
    layout.parts.push_back(std::move(rows));
  }
  constexpr std::size_t kLeastColumns = 10;  // for text to have room
  layout.mark_col = kFirstCol + widest + 1;
  layout.last_col = std::max(layout.mark_col + widest - 1, kLeastColumns);
  layout.last_row = row;
  return layout;
}

// What both sheets have.
class Sheet {
 public:
  Sheet(const Worksheet& sheet, const WriteOptions& options, const Layout& layout)
      : sheet_(sheet), options_(options), layout_(layout), words_(options.language) {}

 protected:
  void write_frame(std::string_view title, std::string_view instructions) {
    constexpr double kLabelWidth = 13, kWidth = 9.5;
    xml_.column_width(kLabelCol, kLabelWidth);
    for (std::size_t col = kFirstCol; col <= layout_.last_col; ++col) {
      xml_.column_width(col, kWidth);
    }
    xml_.text({kTitleRow, 1}, Style::title, words_(title, {words_.title(sheet_)}));
    xml_.row_height(kTitleRow, 26);
    xml_.paragraph({kIntroRow, 1}, layout_.last_col, Style::text, words_.intro(sheet_));
    xml_.paragraph({kInstructionsRow, 1}, layout_.last_col, Style::advice, instructions);
  }

  void write_headings(std::size_t n, int step) {
    const Part& part = sheet_.parts[n];
    const PartRows& rows = layout_.parts[n];
    if (rows.heading != 0) {
      for (std::size_t col = 1; col <= layout_.last_col; ++col) {
        xml_.empty({rows.heading, col}, Style::heading);
      }
      xml_.text({rows.heading, 1}, Style::heading, words_(part.given ? "given" : "steps"));
      xml_.row_height(rows.heading, 22);
    }
    const std::string title = words_.title(part);
    xml_.text({rows.title, 1}, Style::step,
              part.given ? title : fmt::format("{}. {}", step, title));
    xml_.text({rows.title + 1, 1}, Style::formula,
              fmt::format("{}      {} {}", part.formula, words_("shape"), part.shape));
    xml_.paragraph({rows.meaning, 1}, layout_.last_col, Style::text, words_.meaning(part));
  }

  void write_labels(std::size_t n, std::size_t g) {
    const Part& part = sheet_.parts[n];
    const Grid& grid = part.grids[g];
    const std::size_t header = layout_.parts[n].grids[g];
    xml_.text({header, kLabelCol}, Style::corner, words_.caption(part, grid));
    for (std::size_t c = 0; c < grid.cols.size(); ++c) {
      xml_.text({header, kFirstCol + c}, Style::label, grid.cols[c]);
    }
    for (std::size_t r = 0; r < grid.rows.size(); ++r) {
      xml_.text({header + 1 + r, kLabelCol}, Style::label, grid.rows[r]);
    }
  }

  // visit(place, entry) for every entry of a part.
  template <typename Visit>
  void for_each_entry(std::size_t n, Visit&& visit) {
    for (std::size_t g = 0; g < sheet_.parts[n].grids.size(); ++g) {
      const Grid& grid = sheet_.parts[n].grids[g];
      for (std::size_t r = 0; r < grid.rows.size(); ++r) {
        for (std::size_t c = 0; c < grid.cols.size(); ++c) visit(Place{n, g, r, c}, grid.at(r, c));
      }
    }
  }

  std::string formula_of(const Entry& entry) const {
    return spreadsheet_formula(entry.how, [this](const Place& p) { return layout_.name(p); });
  }

  const Worksheet& sheet_;
  const WriteOptions& options_;
  const Layout& layout_;
  Words words_;
  SheetXml xml_;
};

class ExerciseSheet : Sheet {
 public:
  using Sheet::Sheet;

  SheetXml write() && {
    write_frame("heading", words_(marked() ? "xlsx.instructions" : "xlsx.instructions_no_key"));
    if (marked()) write_score();
    int step = 0;
    for (std::size_t n = 0; n < sheet_.parts.size(); ++n) {
      const Part& part = sheet_.parts[n];
      write_headings(n, part.given ? 0 : ++step);
      write_advice(n);
      for (std::size_t g = 0; g < part.grids.size(); ++g) {
        write_labels(n, g);
        if (!part.given && marked()) write_colours(n, g);
        if (part.has_hidden) xml_.offer(first_of(n, g), last_of(n, g), kMinusInfinity);
      }
      for_each_entry(n, [&](const Place& p, const Entry& entry) { write_entry(p, entry); });
    }
    return std::move(xml_);
  }

 private:
  bool marked() const { return options_.key == Key::end; }

  Cell first_of(std::size_t n, std::size_t g) const { return layout_.cell({n, g, 0, 0}); }
  Cell last_of(std::size_t n, std::size_t g) const {
    const Grid& grid = sheet_.parts[n].grids[g];
    return layout_.cell({n, g, grid.rows.size() - 1, grid.cols.size() - 1});
  }

  void write_score() {
    const std::string marks =
        range_name({kScoreRow + 1, layout_.mark_col}, {layout_.last_row, layout_.last_col});
    const std::size_t blanks = sheet_.blanks();
    xml_.text({kScoreRow, 1}, Style::score, words_("xlsx.correct"));
    xml_.formula({kScoreRow, 2}, Style::score,
                 fmt::format("COUNTIF({},\"✓\")&\" / {}\"", marks, blanks),
                 fmt::format("0 / {}", blanks));
  }

  void write_advice(std::size_t n) {
    const Part& part = sheet_.parts[n];
    const PartRows& rows = layout_.parts[n];
    std::string advice = words_.advice(sheet_, part);
    if (part.has_hidden) advice += " " + words_("xlsx.minus_infinity");
    if (rows.advice != 0) {
      xml_.paragraph({rows.advice, 1}, layout_.last_col, Style::advice, advice);
      if (advice.empty()) xml_.row_height(rows.advice, 4);
    }
    if (rows.hint == 0) return;
    // Cells rather than numbers: the hint stays right when what is given is changed.
    xml_.paragraph(
        {rows.hint, 1}, layout_.last_col, Style::hint,
        fmt::format("{}: {} ({})  ={}", words_("xlsx.hint"), entry_name(sheet_, *part.hint, words_),
                    layout_.name(*part.hint), formula_of(sheet_.at(*part.hint))));
  }

  void write_entry(const Place& p, const Entry& entry) {
    const Cell cell = layout_.cell(p);
    if (entry.kind == Entry::Kind::given) return xml_.number(cell, Style::given, entry.value);
    xml_.empty(cell, Style::blank);
    if (!marked()) return;
    const std::string name = cell_name(cell);
    const std::string right =
        entry.kind == Entry::Kind::hidden
            ? fmt::format("OR({0}=\"{1}\",LOWER({0})=\"inf\")", name, kMinusInfinity)
            : fmt::format("IF(ISNUMBER({0}),ABS({0}-'{1}'!{0})<={2},FALSE)", name,
                          words_("sheet.key"), bound(sheet_.parts[p.part].tolerance));
    xml_.formula({cell.row, layout_.mark_col + p.col}, Style::mark,
                 fmt::format("IF({}=\"\",\"\",IF({},\"✓\",\"✗\"))", name, right), "");
  }

  // The cells to fill in turn green or red, by the marks of the same sheet: rules that look into
  // another sheet are newer than the format.
  void write_colours(std::size_t n, std::size_t g) {
    const Part& part = sheet_.parts[n];
    const Cell first = first_of(n, g);
    const std::string mark = cell_name({first.row, layout_.mark_col});
    xml_.right_or_wrong(first, last_of(n, g), fmt::format("{}=\"✓\"", mark),
                        fmt::format("{}=\"✗\"", mark));
    xml_.text({first.row - 1, layout_.mark_col}, Style::corner,
              part.exact ? words_("xlsx.exact") : words_("xlsx.accepted", {bound(part.tolerance)}));
  }
};

class KeySheet : Sheet {
 public:
  using Sheet::Sheet;

  SheetXml write() && {
    write_frame("key_heading", words_("xlsx.key_note"));
    int step = 0;
    for (std::size_t n = 0; n < sheet_.parts.size(); ++n) {
      const Part& part = sheet_.parts[n];
      const PartRows& rows = layout_.parts[n];
      write_headings(n, part.given ? 0 : ++step);
      if (rows.advice != 0) write_remarks(part, rows.advice);
      if (rows.hint != 0) {
        xml_.empty({rows.hint, 1}, Style::plain);
        xml_.row_height(rows.hint, 4);
      }
      for (std::size_t g = 0; g < part.grids.size(); ++g) write_labels(n, g);
      for_each_entry(n, [&](const Place& p, const Entry& entry) { write_entry(p, entry); });
    }
    return std::move(xml_);
  }

 private:
  void write_remarks(const Part& part, std::size_t row) {
    std::string text;
    for (const Remark& remark : part.remarks) {
      if (!text.empty()) text += " ";
      text += words_.remark(remark);
    }
    xml_.paragraph({row, 1}, layout_.last_col, Style::text, text);
    if (text.empty()) xml_.row_height(row, 4);
  }

  void write_entry(const Place& p, const Entry& entry) {
    const Cell cell = layout_.cell(p);
    const Style style = answer_style(sheet_.parts[p.part].decimals);
    switch (entry.kind) {
      case Entry::Kind::given:
        if (options_.key == Key::only) return xml_.number(cell, Style::given, entry.value);
        return xml_.formula(cell, Style::given,
                            fmt::format("'{}'!{}", words_("sheet.exercise"), cell_name(cell)),
                            entry.value);
      case Entry::Kind::made: return xml_.formula(cell, style, formula_of(entry), entry.value);
      case Entry::Kind::hidden: return xml_.text(cell, style, kMinusInfinity);
    }
  }
};

}  // namespace

std::string write_xlsx(const Worksheet& sheet, const WriteOptions& options) {
  const Words words(options.language);
  const Layout layout = lay_out(sheet, options, words);
  std::vector<NamedSheet> sheets;
  if (options.key != Key::only) {
    sheets.push_back({words("sheet.exercise"), ExerciseSheet(sheet, options, layout).write()});
  }
  if (options.key != Key::none) {
    sheets.push_back({words("sheet.key"), KeySheet(sheet, options, layout).write()});
  }
  return workbook(words.title(sheet), code_of(options.language), sheets);
}

}  // namespace qkv::worksheet
