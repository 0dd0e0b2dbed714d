#include <fmt/format.h>

#include <string>

#include "explain/worksheet/words.h"
#include "explain/worksheet/worksheet.h"

namespace qkv::worksheet {
namespace {

constexpr std::string_view kBlank = "____";

// Labels come from users' tokens: no sign of theirs may end a cell or begin markup.
std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("\\`*_{}[]<>#|~&!").find(c) != std::string_view::npos) result += '\\';
    result += c == '\n' || c == '\r' ? ' ' : c;
  }
  return result;
}

// In a code span nothing is escaped; backticks are not there to be escaped either.
std::string code(std::string_view text) {
  const char* fence = text.find('`') == std::string_view::npos ? "`" : "``";
  return fmt::format("{0}{1}{0}", fence, text);
}

class Writer {
 public:
  Writer(const Worksheet& sheet, const WriteOptions& options)
      : sheet_(sheet), options_(options), words_(options.language) {}

  std::string write() {
    const bool key_only = options_.key == Key::only;
    line("# {}", words_(key_only ? "key_heading" : "heading", {words_.title(sheet_)}));
    if (!key_only) line("{}: {:_<28} {}: {:_<14}", words_("name"), "", words_("date"), "");
    line("{}", words_.intro(sheet_));
    if (!key_only) {
      line("{}", words_("instructions"));
      line("## {}", words_("given"));
      for (const Part& part : sheet_.parts) {
        if (part.given) write_part(part, 0, false);
      }
      line("## {}", words_("steps"));
      write_steps(false);
    }
    if (options_.key != Key::none) {
      if (!key_only) line("---\n\n## {}", words_("key"));
      line("{}", words_("key_note"));
      write_steps(true);
    }
    out_.pop_back();
    return std::move(out_);
  }

 private:
  // One paragraph.
  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_ += fmt::format(format, std::forward<Arguments>(arguments)...);
    out_ += "\n\n";
  }

  void write_steps(bool answers) {
    int step = 0;
    for (const Part& part : sheet_.parts) {
      if (!part.given) write_part(part, ++step, answers);
    }
  }

  void write_part(const Part& part, int step, bool answers) {
    const std::string title = words_.title(part);
    line("### {}", step == 0 ? title : fmt::format("{}. {}", step, title));
    line("{} &nbsp; {}: {}", code(part.formula), words_("shape"), code(part.shape));
    if (!answers) {
      line("{}", words_.meaning(part));
      const std::string advice = words_.advice(sheet_, part);
      if (!advice.empty()) line("{}", advice);
      if (part.hint && options_.hints) {
        line("{}: {}", words_("hint"), code(hint_of(sheet_, part, words_)));
      }
    }
    for (const Grid& grid : part.grids) write_grid(part, grid, answers);
    if (!answers) return;
    for (const Remark& remark : part.remarks) line("{}", words_.remark(remark));
  }

  void write_grid(const Part& part, const Grid& grid, bool answers) {
    std::string header = fmt::format("| {} |", escape(words_.caption(part, grid)));
    std::string rule = "|:--|";
    for (const std::string& col : grid.cols) {
      header += fmt::format(" {} |", escape(col));
      rule += "--:|";
    }
    out_ += header + "\n" + rule + "\n";
    for (std::size_t r = 0; r < grid.rows.size(); ++r) {
      const std::string& label = grid.rows[r];
      out_ += label.empty() ? "| |" : fmt::format("| **{}** |", escape(label));
      for (std::size_t c = 0; c < grid.cols.size(); ++c) {
        const Entry& entry = grid.at(r, c);
        const bool blank = !answers && entry.kind != Entry::Kind::given;
        out_ += fmt::format(" {} |", blank ? std::string(kBlank) : number(entry, part));
      }
      out_ += "\n";
    }
    out_ += "\n";
  }

  const Worksheet& sheet_;
  WriteOptions options_;
  Words words_;
  std::string out_;
};

}  // namespace

std::string write_markdown(const Worksheet& sheet, const WriteOptions& options) {
  return Writer(sheet, options).write();
}

}  // namespace qkv::worksheet
