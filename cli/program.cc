#include "cli/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>

#include "cli/suggest.h"
#include "qkv/error.h"
#include "qkv/version.h"

namespace qkv::cli {
namespace {

constexpr const char* kFooter =
    "Exit status:\n"
    "  0    done\n"
    "  1    done, and the answer is no: a check found a difference\n"
    "  2    wrong usage or bad input: unknown flags, shapes that do not fit, files with wrong "
    "content\n"
    "  3    the system refused: no such file, no permission, disk full, out of memory\n"
    "  141  whoever read the output closed it early (128 + SIGPIPE); other signals likewise\n"
    "\n"
    "Results go to stdout, everything else to stderr. Files are replaced whole or not at all.\n"
    "NO_COLOR switches colours off. `qkv COMMAND --help` has examples of each command.\n";

std::vector<std::string> names_of(const std::vector<CommandInfo>& commands) {
  std::vector<std::string> names;
  for (const CommandInfo& command : commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> long_flags(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const FlagInfo& flag : command.flags) {
    for (const std::string& name : flag.names) {
      if (name.starts_with("--")) names.push_back(name);
    }
  }
  return names;
}

bool among(const std::string& word, const std::vector<std::string>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Where to read on: the help of the command that was meant, if it is one.
std::string help_for(const CommandLine& app, const std::vector<std::string>& arguments) {
  const std::vector<std::string> names = names_of(app.describe_commands());
  const bool named = !arguments.empty() && among(arguments.front(), names);
  return named ? fmt::format("qkv {} --help", arguments.front()) : "qkv --help";
}

// CLI11 reports what is missing before what is unknown, so that a misspelt --blok would be "--block
// is required". What is unknown comes first here, with the nearest name.
void refuse_unknown_words(const Command& app, const std::vector<std::string>& arguments) {
  const std::vector<CommandInfo> commands = app.describe_commands();
  CommandInfo owner = app.describe();  // of the flags: the program, then its command
  bool command_seen = false;
  for (const std::string& word : arguments) {
    if (word == "--") return;
    if (word.starts_with("--")) {
      const std::string flag = word.substr(0, word.find('='));
      const std::vector<std::string> flags = long_flags(owner);
      if (among(flag, flags)) continue;
      throw UsageError(
          fmt::format("{}: unknown option '{}'{}", owner.name, flag, did_you_mean(flag, flags)));
    }
    if (word.starts_with("-") || command_seen) continue;
    const std::vector<std::string> names = names_of(commands);
    const auto named = std::find(names.begin(), names.end(), word);
    if (named == names.end()) {
      throw UsageError(fmt::format("unknown command '{}'{}", word, did_you_mean(word, names)));
    }
    owner = commands[static_cast<std::size_t>(named - names.begin())];
    command_seen = true;
  }
}

}  // namespace

std::string examples(std::initializer_list<std::string_view> lines) {
  std::string text = "Examples:";
  for (const std::string_view line : lines) text += fmt::format("\n  {}", line);
  return text + "\n";
}

// One line a subcommand; its function is in cli/<name>.cc.
CommandLine make_program(Context& context) {
  CommandLine app("qkv", "Exact attention on a CPU, that shows its work.",
                  fmt::format("qkv {}", version()));
  add_explain_command(app, context);
  add_check_command(app, context);
  add_worksheet_command(app, context);
  add_generate_command(app, context);
  add_run_command(app, context);
  add_classify_command(app, context);
  add_attention_command(app, context);
  add_info_command(app, context);
  add_completion_command(app, context);
  app.footer(kFooter);  // last: subcommands would inherit it
  return app;
}

Status run_program(const std::vector<std::string>& arguments, Context& context) {
  const auto report = [&](Status status, std::string_view what) {
    context.err << "qkv: " << what << std::endl;
    return status;
  };
  CommandLine app = make_program(context);
  try {
    refuse_unknown_words(app, arguments);
    app.parse(arguments, context.out);
    return context.status;
  } catch (const UsageError& error) {
    return report(Status::usage,
                  fmt::format("{} (see {})", error.what(), help_for(app, arguments)));
  } catch (const Error& error) {
    return report(error.kind() == ErrorKind::io ? Status::system : Status::usage, error.what());
  } catch (const std::bad_alloc&) {
    return report(Status::system, "out of memory");
  } catch (const std::exception& error) {
    return report(Status::system, error.what());
  }
}

}  // namespace qkv::cli
