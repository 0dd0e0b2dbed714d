#include "explain/check/check.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cli/command.h"
#include "cli/language.h"
#include "cli/text.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

struct CheckArguments {
  std::string note, language, color = "auto", format = "text";
  bool json = false;
};

[[noreturn]] void refuse_file(const std::string& path, std::string_view found) {
  throw Error(ErrorKind::io, "check", printable(path), "a note that can be read", found);
}

// All of a stream, or one byte more than a note may have.
std::string read_all(std::istream& in, const std::string& path) {
  std::string text;
  std::string piece(std::size_t{1} << 16, '\0');
  while (text.size() <= kMaxNoteSize &&
         (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0)) {
    text.append(piece, 0, static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad()) refuse_file(path, std::strerror(errno));
  return text;
}

std::string read_note(const std::string& path) {
  if (path == "-") return read_all(std::cin, "stdin");
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) refuse_file(path, "a directory");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse_file(path, std::strerror(errno));
  return read_all(in, path);
}

Status check(const CheckArguments& args, Context& context) {
  const std::string text = read_note(args.note);
  const std::string name = args.note == "-" ? "stdin" : printable(args.note);
  const CheckReport report = check_note(text);
  if (args.json || args.format == "json") {
    context.out << check_report_json(report, name, language_for(args.language));
  } else {
    const bool color = args.color == "always" || (args.color == "auto" && context.color);
    context.out << check_report_text(report, name, language_for(args.language), color);
  }
  return report.count(Verdict::differs) > 0 ? Status::no : Status::ok;
}

}  // namespace

void add_check_command(Command& app, Context& context) {
  auto args = std::make_shared<CheckArguments>();
  Command command =
      app.add_command("check", "recomputes the numbers of somebody's Markdown note on attention");
  command.option("NOTE", args->note, "a Markdown file, or - for stdin")
      .required()
      .type_name("FILE");
  command.option("--format", args->format, "how to write the report")
      .one_of({"text", "json"})
      .show_default();
  command.flag("--json", args->json, "the same as --format json");
  command.option("--lang", args->language, "language of the words (default: the environment's)")
      .one_of({"en", "vi", "ko", "zh"});
  command.option("--color", args->color, "colour of the verdicts")
      .one_of({"auto", "always", "never"})
      .show_default();
  command.footer(
      "Finds matrices (X, Wq, Q, scores, weights, Z, …), equations and shapes in code, tables, "
      "LaTeX\n"
      "and prose, recomputes what follows from what, and says of each whether it agrees.\n"
      "Exit status: 0 nothing differs, 1 something differs, 2 wrong usage or no text, 3 no such "
      "file.\n"
      "\n" +
      examples(
          {"qkv check note.md", "qkv check note.md --lang vi", "qkv check - --json < note.md"}));
  command.action([args, &context] { context.status = check(*args, context); });
}

}  // namespace qkv::cli
