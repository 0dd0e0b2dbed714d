#include <fmt/format.h>

#include <string>
#include <utility>

#include "explain/worksheet/words.h"
#include "explain/worksheet/worksheet.h"

namespace qkv::worksheet {
namespace {

// No fonts, scripts or pictures from elsewhere. A blank is large enough for handwriting, a step is
// not torn over two pages where that can be helped, and the key begins a page.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "Noto Sans", "Noto Sans CJK KR", "Noto Sans CJK SC",
       "Malgun Gothic", "Microsoft YaHei", sans-serif;
       color: #1a1d21; background: #fff; max-width: 52rem; margin: 2rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem;
     border-bottom: 2px solid #2f5d8c; }
h3 { font-size: 1.05rem; margin: 0 0 .2rem; }
h3 .step { display: inline-block; min-width: 1.5em; padding: 0 .3em; margin-right: .5em;
           border-radius: 1em; background: #2f5d8c; color: #fff; text-align: center;
           font-size: .9em; }
p { margin: .3rem 0; }
.who { display: flex; gap: 1.5rem; margin: 0 0 1rem; }
.who span { flex: 2; border-bottom: 1px solid #555; padding-bottom: .1rem; }
.who span + span { flex: 1; }
.side-by-side { display: flex; flex-wrap: wrap; gap: 0 2rem; }
.side-by-side .part { flex: 1 1 19rem; }
.side-by-side .several { flex-basis: 100%; }
.part { margin: 1.1rem 0; break-inside: avoid; }
.formula, .hint code { font-family: "Cambria Math", "STIX Two Math", "DejaVu Serif", serif; }
.formula { font-size: 1.05em; }
sup { line-height: 0; }
.shape { color: #5b6570; font-size: .85em; margin-left: 1em; }
.meaning { color: #39424c; }
.hint { background: #f3f6fa; border-left: 3px solid #8fb0d2; padding: .25rem .6rem;
        overflow-wrap: anywhere; }
.advice { font-weight: 600; font-size: .92em; }
.remark { color: #39424c; font-size: .92em; }
.grids { display: flex; flex-wrap: wrap; gap: .4rem 1.6rem; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: #5b6570; font-size: .85em; padding: .15rem .5rem; }
th.corner { text-align: left; color: #2f5d8c; }
tbody th { text-align: right; }
td { border: 1px solid #9aa5b1; padding: .2rem .55rem; text-align: right; min-width: 2.2em; }
td.given { background: #f1f2f4; }
td.blank { min-width: 4em; height: 1.9em; background: #fffdf4; }
.key td { background: #fff; }
@media (max-width: 40rem) { .part { overflow-x: auto; } }
@media print {
  body { font-size: 10.5pt; margin: 0; max-width: none; padding: 0; }
  .key { break-before: page; }
  h2, h3 { break-after: avoid; }
  td.given, td.blank, .hint, h3 .step { -webkit-print-color-adjust: exact;
                                        print-color-adjust: exact; }
}
@page { margin: 16mm; }
)css";

// Escaped, with the letter after ^ raised: "W^Q".
std::string mathematics(std::string_view text) {
  const std::string escaped = escape_xml(text);
  std::string result;
  for (std::size_t n = 0; n < escaped.size(); ++n) {
    if (escaped[n] != '^' || n + 1 == escaped.size()) {
      result += escaped[n];
    } else {
      result += fmt::format("<sup>{}</sup>", escaped[++n]);
    }
  }
  return result;
}

class Writer {
 public:
  Writer(const Worksheet& sheet, const WriteOptions& options)
      : sheet_(sheet), options_(options), words_(options.language) {}

  std::string write() {
    const bool key_only = options_.key == Key::only;
    const std::string heading =
        escape_xml(words_(key_only ? "key_heading" : "heading", {words_.title(sheet_)}));
    add("<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n",
        code_of(options_.language));
    add("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    add("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n", heading, kStyle,
        heading);
    if (!key_only) {
      add("<p class=\"who\"><span>{}:</span><span>{}:</span></p>\n", escape_xml(words_("name")),
          escape_xml(words_("date")));
    }
    paragraph("intro", words_.intro(sheet_));
    if (!key_only) write_exercise();
    if (options_.key != Key::none) write_key(key_only);
    add("</body>\n</html>\n");
    return std::move(out_);
  }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_ += fmt::format(format, std::forward<Arguments>(arguments)...);
  }

  void paragraph(std::string_view kind, std::string_view text) {
    if (!text.empty()) add("<p class=\"{}\">{}</p>\n", kind, escape_xml(text));
  }

  void write_exercise() {
    paragraph("advice", words_("instructions"));
    add("<section>\n<h2>{}</h2>\n<div class=\"side-by-side\">\n", escape_xml(words_("given")));
    for (const Part& part : sheet_.parts) {
      if (part.given) write_part(part, 0, false);
    }
    add("</div>\n</section>\n<section>\n<h2>{}</h2>\n", escape_xml(words_("steps")));
    write_steps(false);
    add("</section>\n");
  }

  void write_key(bool alone) {
    add("<section class=\"key\">\n");
    if (!alone) add("<h2>{}</h2>\n", escape_xml(words_("key")));
    paragraph("note", words_("key_note"));
    add("<div class=\"side-by-side\">\n");
    write_steps(true);
    add("</div>\n</section>\n");
  }

  void write_steps(bool answers) {
    int step = 0;
    for (const Part& part : sheet_.parts) {
      if (!part.given) write_part(part, ++step, answers);
    }
  }

  void write_part(const Part& part, int step, bool answers) {
    add("<section class=\"part{}\">\n<h3>", part.grids.size() > 2 ? " several" : "");
    if (step > 0) add("<span class=\"step\">{}</span>", step);
    add("{}</h3>\n<p><span class=\"formula\">{}</span><span class=\"shape\">{} {}</span></p>\n",
        escape_xml(words_.title(part)), mathematics(part.formula), escape_xml(words_("shape")),
        escape_xml(part.shape));
    if (!answers) {
      paragraph("meaning", words_.meaning(part));
      paragraph("advice", words_.advice(sheet_, part));
      if (part.hint && options_.hints) {
        add("<p class=\"hint\">{}: <code>{}</code></p>\n", escape_xml(words_("hint")),
            mathematics(hint_of(sheet_, part, words_)));
      }
    }
    add("<div class=\"grids\">\n");
    for (const Grid& grid : part.grids) write_grid(part, grid, answers);
    add("</div>\n");
    if (answers) {
      for (const Remark& remark : part.remarks) paragraph("remark", words_.remark(remark));
    }
    add("</section>\n");
  }

  void write_grid(const Part& part, const Grid& grid, bool answers) {
    add("<table>\n<thead><tr><th class=\"corner\">{}</th>",
        mathematics(words_.caption(part, grid)));
    for (const std::string& col : grid.cols) add("<th scope=\"col\">{}</th>", escape_xml(col));
    add("</tr></thead>\n<tbody>\n");
    for (std::size_t r = 0; r < grid.rows.size(); ++r) {
      add("<tr><th scope=\"row\">{}</th>", escape_xml(grid.rows[r]));
      for (std::size_t c = 0; c < grid.cols.size(); ++c) {
        const Entry& entry = grid.at(r, c);
        const bool given = entry.kind == Entry::Kind::given;
        if (!answers && !given) {
          add("<td class=\"blank\"></td>");
        } else {
          add("<td class=\"{}\">{}</td>", given ? "given" : "answer", number(entry, part));
        }
      }
      add("</tr>\n");
    }
    add("</tbody>\n</table>\n");
  }

  const Worksheet& sheet_;
  WriteOptions options_;
  Words words_;
  std::string out_;
};

}  // namespace

std::string write_html(const Worksheet& sheet, const WriteOptions& options) {
  return Writer(sheet, options).write();
}

}  // namespace qkv::worksheet
