#include "explain/worksheet/worksheet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/language.h"
#include "cli/suggest.h"
#include "explain/explain.h"
#include "io/file_writer.h"

namespace qkv::cli {
namespace {

struct WorksheetArguments {
  std::string example;
  bool random = false;
  std::string seed;  // as text: what is no seed is refused with its range
  worksheet::ExerciseOptions exercise;
  std::string language, format, output, key = "end";
  int digits = 4;
  bool no_hints = false;
};

std::uint64_t parse_seed(const std::string& text) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  std::uint64_t seed = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, seed);
  if (error != std::errc() || end != last || seed > kLargest) {
    throw UsageError(fmt::format("worksheet: --seed is a whole number from 0 to {}, found '{}'",
                                 kLargest, text));
  }
  return seed;
}

// A short one, to be read off the sheet and typed again.
std::uint64_t fresh_seed() { return std::random_device()() % 1'000'000; }

// What is wrong with a name, or nothing.
std::string fault_of_example(const std::string& name) {
  const auto among = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::vector<std::string>& small = worksheet::worksheet_examples();
  if (among(small)) return "";
  if (among(example_names())) {
    return fmt::format("'{}' is too large to do by hand; choose one of {}", name,
                       fmt::join(small, ", "));
  }
  const std::string suggestion = did_you_mean(name, small);
  return suggestion.empty()
             ? fmt::format("unknown example '{}'; choose one of {}", name, fmt::join(small, ", "))
             : fmt::format("unknown example '{}'{}", name, suggestion);
}

void check_usage(const Command& command, const WorksheetArguments& args) {
  if (args.random && !args.example.empty()) {
    throw UsageError(
        fmt::format("worksheet: EXAMPLE or --random, not both (found '{}')", args.example));
  }
  if (!args.random && args.example.empty()) {
    throw UsageError(fmt::format("worksheet: needs an EXAMPLE ({}) or --random",
                                 fmt::join(worksheet::worksheet_examples(), ", ")));
  }
  for (const char* name :
       {"--seed", "--tokens", "--width", "--head-width", "--heads", "--causal"}) {
    if (!args.random && command.given(name)) {
      throw UsageError(fmt::format("worksheet: {} is for --random", name));
    }
  }
}

// What was asked for, or what the file's name says.
std::string format_of(const WorksheetArguments& args) {
  if (!args.format.empty()) return args.format;
  if (args.output.empty() || args.output == "-") return "markdown";
  const std::string extension = std::filesystem::path(args.output).extension().string();
  if (extension == ".md" || extension == ".markdown") return "markdown";
  if (extension == ".html" || extension == ".htm") return "html";
  if (extension == ".xlsx") return "xlsx";
  throw UsageError(
      fmt::format("worksheet: cannot tell the format of '{}': name it .md, .html or .xlsx, or say "
                  "--format",
                  args.output));
}

std::string written(const WorksheetArguments& args, const std::string& format) {
  worksheet::WriteOptions options;
  options.language = language_for(args.language);
  options.hints = !args.no_hints;
  options.key = args.key == "none"   ? worksheet::Key::none
                : args.key == "only" ? worksheet::Key::only
                                     : worksheet::Key::end;
  worksheet::ExerciseOptions exercise = args.exercise;
  if (args.random) exercise.seed = args.seed.empty() ? fresh_seed() : parse_seed(args.seed);
  const worksheet::Worksheet sheet = args.random
                                         ? worksheet::exercise_worksheet(exercise, args.digits)
                                         : worksheet::example_worksheet(args.example, args.digits);
  if (format == "html") return worksheet::write_html(sheet, options);
  if (format == "xlsx") return worksheet::write_xlsx(sheet, options);
  return worksheet::write_markdown(sheet, options);
}

void run(const WorksheetArguments& args, Context& context) {
  const std::string format = format_of(args);
  const bool to_file = !args.output.empty() && args.output != "-";
  if (format == "xlsx" && !to_file && isatty(STDOUT_FILENO) != 0) {
    throw UsageError("worksheet: a workbook is no text for a terminal: say --output FILE.xlsx");
  }
  const std::string bytes = written(args, format);
  if (!to_file) {
    context.out << bytes;
    return;
  }
  io::FileWriter file(args.output);
  file.write(io::as_bytes(bytes));
  file.commit();
}

}  // namespace

void add_worksheet_command(Command& app, Context& context) {
  auto args = std::make_shared<WorksheetArguments>();
  Command command =
      app.add_command("worksheet", "the steps of an example with blanks, and an answer key");
  command.option("EXAMPLE", args->example, "a worked example")
      .check(fault_of_example)                   // words the fault
      .one_of(worksheet::worksheet_examples());  // for help and completion
  command.flag("--random", args->random, "an exercise on small integers instead");
  command.option("--seed", args->seed, "which exercise; without it, another one each time")
      .type_name("N");
  command.option("--tokens", args->exercise.tokens, "rows of X, 2 to 6").type_name("N");
  command.option("--width", args->exercise.width, "columns of X, 2 to 6").type_name("N");
  command.option("--head-width", args->exercise.head_width, "d_k = d_v of a head, 1 to 4")
      .type_name("N");
  command.option("--heads", args->exercise.heads, "1 to 3").type_name("N");
  command.flag("--causal", args->exercise.causal, "a token sees only itself and earlier ones");
  command.option("--lang", args->language, "language of the sheet (default: the environment's)")
      .one_of({"en", "vi", "ko", "zh"});
  command
      .option("--format", args->format,
              "markdown (default), html or xlsx; without it, by the name of --output")
      .one_of({"markdown", "html", "xlsx"});
  command.option("--output,-o", args->output, "file to write; stdout without it").type_name("FILE");
  command.option("--key", args->key, "answer key: at the end, none, or only the key")
      .one_of({"end", "none", "only"});
  command.option("--digits", args->digits, "decimals to round to, 1 to 8")
      .between(worksheet::kMinDigits, worksheet::kMaxDigits);
  command.flag("--no-hints", args->no_hints, "no entry is written out");
  command.footer(examples({
      "qkv worksheet pixels --lang vi --format html > sheet.html",
      "qkv worksheet --random --seed 7 --output exercise.xlsx",
      "qkv worksheet --random --seed 7 --heads 2 --causal --key only",
  }));
  command.action([args, command, &context] {
    check_usage(command, *args);
    run(*args, context);
  });
}

}  // namespace qkv::cli
