#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <ostream>

#include "cli/command.h"

namespace qkv::cli {
namespace {

// CLI::IsMember describes itself as "{a,b,c}", which becomes part of the type's name.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

// The subcommand of a command line: its first word that is no flag.
const CLI::App* find_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    if (word.starts_with("-")) continue;
    const auto named = [&](const CLI::App* command) { return command->check_name(word); };
    const std::vector<const CLI::App*> found = app.get_subcommands(named);
    return found.empty() ? nullptr : found.front();
  }
  return nullptr;
}

CommandInfo describe_app(const CLI::App& app) {
  CommandInfo command{app.get_name(), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string> choices = choices_of(*option);
    if (option->get_positional()) {
      command.words.insert(command.words.end(), choices.begin(), choices.end());
      continue;
    }
    FlagInfo flag{{},
                  option->get_description(),
                  choices,
                  option->get_items_expected_max() > 0,
                  option->get_group().empty()};
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    command.flags.push_back(std::move(flag));
  }
  return command;
}

}  // namespace

// ---------------------------------------------------------------- Option

Option& Option::required(bool yes) {
  option_->required(yes);
  return *this;
}

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::group(const std::string& title) {
  option_->group(title);
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::words(int count) {
  option_->expected(count);
  return *this;
}

Option& Option::one_a_flag() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::delimiter(char between) {
  option_->delimiter(between);
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& choices) {
  option_->check(CLI::IsMember(choices));
  return *this;
}

Option& Option::suggests(const std::vector<std::string>& words) {
  option_->check(CLI::Validator([](std::string&) { return std::string(); },
                                "{" + CLI::detail::join(words, ",") + "}"));
  return *this;
}

Option& Option::between(int least, int most) {
  option_->check(CLI::Range(least, most).description(""));
  return *this;
}

Option& Option::check(std::function<std::string(const std::string&)> fault) {
  option_->check(std::move(fault), "", "");
  return *this;
}

// ---------------------------------------------------------------- Command

Command Command::add_command(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help));
}

template <typename T>
Option Command::option(const std::string& names, T& target, const std::string& help) {
  return Option(app_->add_option(names, target, help));
}

template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, int&, const std::string&);
template Option Command::option(const std::string&, std::int64_t&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);
template Option Command::option(const std::string&, std::optional<std::int64_t>&,
                                const std::string&);
template Option Command::option(const std::string&, std::optional<double>&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::int64_t>&, const std::string&);

Option Command::flag(const std::string& names, bool& target, const std::string& help) {
  return Option(app_->add_flag(names, target, help));
}

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::action(std::function<void()> action) { app_->callback(std::move(action)); }

bool Command::given(const std::string& flag) const { return app_->count(flag) > 0; }

std::vector<std::string> Command::given_flags() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->count() > 0 && !option->get_lnames().empty()) {
      names.push_back("--" + option->get_lnames().front());
    }
  }
  return names;
}

CommandInfo Command::describe() const { return describe_app(*app_); }

std::vector<CommandInfo> Command::describe_commands() const {
  std::vector<CommandInfo> commands;
  for (const CLI::App* command : app_->get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(describe_app(*command));
  }
  return commands;
}

// ---------------------------------------------------------------- CommandLine

CommandLine::CommandLine(const std::string& name, const std::string& help,
                         const std::string& version)
    : Command(nullptr), owned_(std::make_unique<CLI::App>(help, name)) {
  app_ = owned_.get();
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}

CommandLine::CommandLine(CommandLine&&) noexcept = default;
CommandLine::~CommandLine() = default;

void CommandLine::parse(const std::vector<std::string>& arguments, std::ostream& out) {
  try {
    // CLI11 takes the words from the back.
    app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    const CLI::App* command = find_command(*app_, arguments);
    out << (command ? command->help(app_->get_name()) : app_->help());
  } catch (const CLI::CallForVersion&) {
    out << app_->version() << '\n';
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace qkv::cli
