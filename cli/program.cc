#include "cli/program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
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

// The subcommand of a command line: its first word that is no flag.
CLI::App* find_command(CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    if (word.starts_with("-")) continue;
    const auto named = [&](const CLI::App* command) { return command->check_name(word); };
    const std::vector<CLI::App*> found = app.get_subcommands(named);
    return found.empty() ? nullptr : found.front();
  }
  return nullptr;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// CLI11 reports what is missing before what is unknown, so that a misspelt --blok would be "--block
// is required". What is unknown comes first here, with the nearest name.
void refuse_unknown_words(CLI::App& app, const std::vector<std::string>& arguments) {
  CLI::App* command = find_command(app, arguments);
  bool command_seen = false;
  for (const std::string& word : arguments) {
    if (word == "--") return;
    if (!word.starts_with("-")) {
      if (!command_seen && !command) {
        throw UsageError(
            fmt::format("unknown command '{}'{}", word, did_you_mean(word, command_names(app))));
      }
      command_seen = true;
    } else if (word.starts_with("--")) {
      const std::string flag = word.substr(0, word.find('='));
      CLI::App& owner = command_seen ? *command : app;
      if (owner.get_option_no_throw(flag)) continue;
      throw UsageError(fmt::format("{}: unknown option '{}'{}", owner.get_name(), flag,
                                   did_you_mean(flag, flag_names(owner))));
    }
  }
}

Status parse(CLI::App& app, const std::vector<std::string>& arguments, Context& context) {
  refuse_unknown_words(app, arguments);
  try {
    // CLI11 takes the words from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    const CLI::App* command = find_command(app, arguments);
    context.out << (command ? *command : app).help(command ? "qkv" : "");
  } catch (const CLI::CallForVersion&) {
    context.out << app.version() << '\n';
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return context.status;
}

}  // namespace

std::string examples(std::initializer_list<std::string_view> lines) {
  std::string text = "Examples:";
  for (const std::string_view line : lines) text += fmt::format("\n  {}", line);
  return text + "\n";
}

// One line a subcommand; its function is in cli/<name>.cc.
std::shared_ptr<CLI::App> make_program(Context& context) {
  auto app = std::make_shared<CLI::App>("Exact attention on a CPU, that shows its work.", "qkv");
  app->set_version_flag("--version", std::string("qkv ") + version());
  app->require_subcommand(1);
  add_explain_command(*app, context);
  add_check_command(*app, context);
  add_worksheet_command(*app, context);
  add_run_command(*app, context);
  add_attention_command(*app, context);
  add_info_command(*app, context);
  add_completion_command(*app, context);
  app->footer(kFooter);  // last: subcommands would inherit it
  return app;
}

Status run_program(const std::vector<std::string>& arguments, Context& context) {
  const auto report = [&](Status status, std::string_view what) {
    context.err << "qkv: " << what << std::endl;
    return status;
  };
  try {
    const std::shared_ptr<CLI::App> app = make_program(context);
    return parse(*app, arguments, context);
  } catch (const UsageError& error) {
    return report(Status::usage, fmt::format("{} (see qkv --help)", error.what()));
  } catch (const Error& error) {
    return report(error.kind() == ErrorKind::io ? Status::system : Status::usage, error.what());
  } catch (const std::bad_alloc&) {
    return report(Status::system, "out of memory");
  } catch (const std::exception& error) {
    return report(Status::system, error.what());
  }
}

}  // namespace qkv::cli
