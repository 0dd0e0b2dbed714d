#include "explain/worksheet/workbook.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "explain/worksheet/words.h"
#include "explain/worksheet/zip.h"
#include "explain/writers/width.h"

namespace qkv::worksheet {

std::string column_name(std::size_t col) {
  std::string name;
  for (; col > 0; col = (col - 1) / 26) {
    name.insert(name.begin(), static_cast<char>('A' + (col - 1) % 26));
  }
  return name;
}

std::string cell_name(const Cell& cell) {
  return fmt::format("{}{}", column_name(cell.col), cell.row);
}

std::string range_name(const Cell& from, const Cell& to) {
  return from == to ? cell_name(from) : fmt::format("{}:{}", cell_name(from), cell_name(to));
}

Style answer_style(int decimals) {
  return static_cast<Style>(static_cast<int>(Style::answer) + decimals);
}

// --- a sheet --------------------------------------------------------------------------------

void SheetXml::text(const Cell& cell, Style style, std::string_view text) {
  put(cell, fmt::format("<c r=\"{}\" s=\"{}\" t=\"inlineStr\"><is><t xml:space=\"preserve\">{}</t>"
                        "</is></c>",
                        cell_name(cell), static_cast<int>(style), escape_xml(text)));
}

void SheetXml::number(const Cell& cell, Style style, double value) {
  put(cell, fmt::format("<c r=\"{}\" s=\"{}\"><v>{}</v></c>", cell_name(cell),
                        static_cast<int>(style), value));
}

void SheetXml::formula(const Cell& cell, Style style, std::string_view formula, double value) {
  put(cell, fmt::format("<c r=\"{}\" s=\"{}\"><f>{}</f><v>{}</v></c>", cell_name(cell),
                        static_cast<int>(style), escape_xml(formula), value));
}

void SheetXml::formula(const Cell& cell, Style style, std::string_view formula,
                       std::string_view value) {
  put(cell, fmt::format("<c r=\"{}\" s=\"{}\" t=\"str\"><f>{}</f><v>{}</v></c>", cell_name(cell),
                        static_cast<int>(style), escape_xml(formula), escape_xml(value)));
}

void SheetXml::empty(const Cell& cell, Style style) {
  put(cell, fmt::format("<c r=\"{}\" s=\"{}\"/>", cell_name(cell), static_cast<int>(style)));
}

void SheetXml::paragraph(const Cell& cell, std::size_t last_col, Style style,
                         std::string_view content) {
  // Programs do not fit the height of a row to merged cells: it is estimated, letters
  // being about as wide as digits.
  constexpr double kLine = 15.5, kDefaultWidth = 9;
  double width = 0;
  for (std::size_t col = cell.col; col <= last_col; ++col) {
    width += widths_.contains(col) ? widths_.at(col) : kDefaultWidth;
    if (col > cell.col) empty({cell.row, col}, style);
  }
  text(cell, style, content);
  merged_.push_back(range_name(cell, {cell.row, last_col}));
  const auto lines = wrap(content, static_cast<std::size_t>(std::max(width, 10.0))).size();
  row_height(cell.row, kLine * static_cast<double>(std::max<std::size_t>(lines, 1)) + 2);
}

void SheetXml::right_or_wrong(const Cell& from, const Cell& to, std::string_view right,
                              std::string_view wrong) {
  const std::size_t priority = 2 * conditional_.size() + 1;
  conditional_.push_back(fmt::format(
      "<conditionalFormatting sqref=\"{}\">"
      "<cfRule type=\"expression\" dxfId=\"0\" priority=\"{}\"><formula>{}</formula>"
      "</cfRule><cfRule type=\"expression\" dxfId=\"1\" priority=\"{}\"><formula>{}"
      "</formula></cfRule></conditionalFormatting>",
      range_name(from, to), priority, escape_xml(right), priority + 1, escape_xml(wrong)));
}

void SheetXml::offer(const Cell& from, const Cell& to, std::string_view choice) {
  validations_.push_back(
      fmt::format("<dataValidation type=\"list\" allowBlank=\"1\" showErrorMessage=\"0\" "
                  "sqref=\"{}\"><formula1>\"{}\"</formula1></dataValidation>",
                  range_name(from, to), escape_xml(choice)));
}

std::string SheetXml::xml() const {
  std::string out =
      "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n"
      "<worksheet xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\">"
      "<sheetPr><pageSetUpPr fitToPage=\"1\"/></sheetPr>"
      "<sheetViews><sheetView showGridLines=\"0\" workbookViewId=\"0\"/></sheetViews>"
      "<sheetFormatPr defaultRowHeight=\"16\" customHeight=\"1\"/><cols>";
  for (const auto& [col, width] : widths_) {
    out +=
        fmt::format("<col min=\"{0}\" max=\"{0}\" width=\"{1}\" customWidth=\"1\"/>", col, width);
  }
  out += "</cols><sheetData>";
  for (const auto& [row, cells] : rows_) {
    out += fmt::format("<row r=\"{}\"", row);
    if (const auto height = heights_.find(row); height != heights_.end()) {
      out += fmt::format(" ht=\"{}\" customHeight=\"1\"", height->second);
    }
    out += ">";
    for (const auto& [col, cell] : cells) out += cell;
    out += "</row>";
  }
  out += "</sheetData>";
  if (!merged_.empty()) {
    out += fmt::format("<mergeCells count=\"{}\">", merged_.size());
    for (const std::string& range : merged_) out += fmt::format("<mergeCell ref=\"{}\"/>", range);
    out += "</mergeCells>";
  }
  for (const std::string& each : conditional_) out += each;
  if (!validations_.empty()) {
    out += fmt::format("<dataValidations count=\"{}\">", validations_.size());
    for (const std::string& each : validations_) out += each;
    out += "</dataValidations>";
  }
  return out +
         "<pageMargins left=\"0.5\" right=\"0.5\" top=\"0.6\" bottom=\"0.6\" header=\"0.3\" "
         "footer=\"0.3\"/><pageSetup paperSize=\"9\" fitToHeight=\"0\"/></worksheet>";
}

// --- the workbook ---------------------------------------------------------------------------

namespace {

constexpr std::string_view kDeclaration =
    "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";

// Index by index as in Style.
struct Look {
  int font, fill, border;
  const char* alignment;
};
constexpr const char* kWrapped = "<alignment vertical=\"top\" wrapText=\"1\"/>";
constexpr const char* kRight = "<alignment horizontal=\"right\"/>";
constexpr const char* kCentered = "<alignment horizontal=\"center\"/>";
constexpr Look kLooks[] = {
    {0, 0, 0, ""},         // plain
    {1, 0, 0, ""},         // title
    {2, 0, 2, ""},         // heading
    {3, 0, 0, ""},         // step
    {4, 0, 0, ""},         // formula
    {0, 0, 0, kWrapped},   // text
    {3, 0, 0, kWrapped},   // advice
    {0, 4, 0, kWrapped},   // hint
    {5, 0, 0, kRight},     // label
    {6, 0, 0, ""},         // corner
    {0, 2, 1, kRight},     // given
    {0, 3, 1, kRight},     // blank
    {3, 0, 0, kCentered},  // mark
    {3, 0, 0, ""},         // score
    {0, 0, 1, kRight},     // answer
};
static_assert(std::size(kLooks) == static_cast<std::size_t>(Style::answer) + 1);

constexpr std::string_view kFontsFillsBorders =
    "<fonts count=\"7\">"
    "<font><sz val=\"11\"/><name val=\"Calibri\"/></font>"
    "<font><b/><sz val=\"17\"/><name val=\"Calibri\"/></font>"
    "<font><b/><sz val=\"14\"/><color rgb=\"FF2F5D8C\"/><name val=\"Calibri\"/></font>"
    "<font><b/><sz val=\"11\"/><name val=\"Calibri\"/></font>"
    "<font><sz val=\"11\"/><color rgb=\"FF2F5D8C\"/><name val=\"Cambria\"/></font>"
    "<font><b/><sz val=\"10\"/><color rgb=\"FF5B6570\"/><name val=\"Calibri\"/></font>"
    "<font><b/><sz val=\"10\"/><color rgb=\"FF2F5D8C\"/><name val=\"Calibri\"/></font>"
    "</fonts><fills count=\"5\">"
    "<fill><patternFill patternType=\"none\"/></fill>"
    "<fill><patternFill patternType=\"gray125\"/></fill>"
    "<fill><patternFill patternType=\"solid\"><fgColor rgb=\"FFEDEFF2\"/></patternFill></fill>"
    "<fill><patternFill patternType=\"solid\"><fgColor rgb=\"FFFFF8DC\"/></patternFill></fill>"
    "<fill><patternFill patternType=\"solid\"><fgColor rgb=\"FFF3F6FA\"/></patternFill></fill>"
    "</fills><borders count=\"3\">"
    "<border><left/><right/><top/><bottom/><diagonal/></border>"
    "<border><left style=\"thin\"><color rgb=\"FF9AA5B1\"/></left>"
    "<right style=\"thin\"><color rgb=\"FF9AA5B1\"/></right>"
    "<top style=\"thin\"><color rgb=\"FF9AA5B1\"/></top>"
    "<bottom style=\"thin\"><color rgb=\"FF9AA5B1\"/></bottom><diagonal/></border>"
    "<border><left/><right/><top/><bottom style=\"medium\"><color rgb=\"FF2F5D8C\"/></bottom>"
    "<diagonal/></border></borders>"
    "<cellStyleXfs count=\"1\"><xf numFmtId=\"0\" fontId=\"0\" fillId=\"0\" borderId=\"0\"/>"
    "</cellStyleXfs>";

constexpr std::string_view kRightAndWrong =
    "<dxfs count=\"2\"><dxf><font><color rgb=\"FF1B5E20\"/></font>"
    "<fill><patternFill patternType=\"solid\"><bgColor "
    "rgb=\"FFC8E6C9\"/></patternFill></fill></dxf>"
    "<dxf><font><color rgb=\"FFB71C1C\"/></font>"
    "<fill><patternFill patternType=\"solid\"><bgColor "
    "rgb=\"FFFFCDD2\"/></patternFill></fill></dxf>"
    "</dxfs>";

std::string styles() {
  constexpr int kFirstFormat = 164;  // below are the built-in ones
  std::string formats, looks;
  for (int decimals = 1; decimals <= kMaxDigits; ++decimals) {
    formats += fmt::format("<numFmt numFmtId=\"{}\" formatCode=\"0.{:0<{}}\"/>",
                           kFirstFormat + decimals, "", decimals);
  }
  const auto add = [&](const Look& look, int format) {
    looks += fmt::format(
        "<xf numFmtId=\"{}\" fontId=\"{}\" fillId=\"{}\" borderId=\"{}\" xfId=\"0\" "
        "applyNumberFormat=\"1\" applyFont=\"1\" applyFill=\"1\" applyBorder=\"1\" "
        "applyAlignment=\"1\">{}</xf>",
        format, look.font, look.fill, look.border, look.alignment);
  };
  for (const Look& look : kLooks) add(look, 0);
  for (int decimals = 1; decimals <= kMaxDigits; ++decimals) {
    add(kLooks[static_cast<int>(Style::answer)], kFirstFormat + decimals);
  }
  return fmt::format(
      "{}<styleSheet xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\">"
      "<numFmts count=\"{}\">{}</numFmts>{}<cellXfs count=\"{}\">{}</cellXfs>"
      "<cellStyles count=\"1\"><cellStyle name=\"Normal\" xfId=\"0\" builtinId=\"0\"/></cellStyles>"
      "{}</styleSheet>",
      kDeclaration, kMaxDigits, formats, kFontsFillsBorders, std::size(kLooks) + kMaxDigits, looks,
      kRightAndWrong);
}

constexpr std::string_view kPackage = "http://schemas.openxmlformats.org/package/2006";
constexpr std::string_view kOffice =
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

std::string content_types(std::size_t sheets) {
  constexpr std::string_view kSheetMl =
      "application/vnd.openxmlformats-officedocument.spreadsheetml";
  std::string out = fmt::format(
      "{0}<Types xmlns=\"{1}/content-types\"><Default Extension=\"rels\" "
      "ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/>"
      "<Default Extension=\"xml\" ContentType=\"application/xml\"/>"
      "<Override PartName=\"/docProps/core.xml\" "
      "ContentType=\"application/vnd.openxmlformats-package.core-properties+xml\"/>"
      "<Override PartName=\"/xl/workbook.xml\" ContentType=\"{2}.sheet.main+xml\"/>"
      "<Override PartName=\"/xl/styles.xml\" ContentType=\"{2}.styles+xml\"/>",
      kDeclaration, kPackage, kSheetMl);
  for (std::size_t n = 1; n <= sheets; ++n) {
    out += fmt::format(
        "<Override PartName=\"/xl/worksheets/sheet{}.xml\" ContentType=\"{}.worksheet+xml\"/>", n,
        kSheetMl);
  }
  return out + "</Types>";
}

std::string root_relations() {
  return fmt::format(
      "{0}<Relationships xmlns=\"{1}/relationships\">"
      "<Relationship Id=\"rId1\" Type=\"{2}/officeDocument\" Target=\"xl/workbook.xml\"/>"
      "<Relationship Id=\"rId2\" Type=\"{1}/relationships/metadata/core-properties\" "
      "Target=\"docProps/core.xml\"/></Relationships>",
      kDeclaration, kPackage, kOffice);
}

std::string properties(std::string_view title, std::string_view language) {
  return fmt::format(
      "{}<cp:coreProperties xmlns:cp=\"{}/metadata/core-properties\" "
      "xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><dc:title>{}</dc:title>"
      "<dc:creator>qkv</dc:creator><dc:language>{}</dc:language></cp:coreProperties>",
      kDeclaration, kPackage, escape_xml(title), language);
}

// rId1 is the styles, rId2 the first sheet.
std::string workbook_relations(std::size_t sheets) {
  std::string out = fmt::format(
      "{}<Relationships xmlns=\"{}/relationships\">"
      "<Relationship Id=\"rId1\" Type=\"{}/styles\" Target=\"styles.xml\"/>",
      kDeclaration, kPackage, kOffice);
  for (std::size_t n = 1; n <= sheets; ++n) {
    out += fmt::format(
        "<Relationship Id=\"rId{}\" Type=\"{}/worksheet\" Target=\"worksheets/sheet{}.xml\"/>",
        n + 1, kOffice, n);
  }
  return out + "</Relationships>";
}

std::string sheet_list(const std::vector<NamedSheet>& sheets) {
  std::string out = fmt::format(
      "{}<workbook xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\" "
      "xmlns:r=\"{}\"><sheets>",
      kDeclaration, kOffice);
  for (std::size_t n = 1; n <= sheets.size(); ++n) {
    out += fmt::format("<sheet name=\"{}\" sheetId=\"{}\" r:id=\"rId{}\"/>",
                       escape_xml(sheets[n - 1].name), n, n + 1);
  }
  // What is cached is right, but a program that calculates should do so when it opens the file.
  return out + "</sheets><calcPr calcId=\"0\" fullCalcOnLoad=\"1\"/></workbook>";
}

}  // namespace

std::string workbook(std::string_view title, std::string_view language,
                     const std::vector<NamedSheet>& sheets) {
  std::vector<ZipMember> members = {
      {"[Content_Types].xml", content_types(sheets.size())},
      {"_rels/.rels", root_relations()},
      {"docProps/core.xml", properties(title, language)},
      {"xl/workbook.xml", sheet_list(sheets)},
      {"xl/_rels/workbook.xml.rels", workbook_relations(sheets.size())},
      {"xl/styles.xml", styles()},
  };
  for (std::size_t n = 1; n <= sheets.size(); ++n) {
    members.push_back({fmt::format("xl/worksheets/sheet{}.xml", n), sheets[n - 1].sheet.xml()});
  }
  return zip(members);
}

}  // namespace qkv::worksheet
