#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"

// Completion scripts, made from the program's own subcommands and options, so that they are never
// behind. Choices (Option::one_of) are completed to their words, everything else to files.

namespace qkv::cli {
namespace {

std::vector<CommandInfo> offered_commands(const Command& app) {
  std::vector<CommandInfo> commands = app.describe_commands();
  for (CommandInfo& command : commands) {
    std::erase_if(command.flags, [](const FlagInfo& flag) { return flag.hidden; });
  }
  return commands;
}

std::vector<std::string> names_of(const std::vector<CommandInfo>& commands) {
  std::vector<std::string> names;
  for (const CommandInfo& command : commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> names_of(const std::vector<FlagInfo>& flags) {
  std::vector<std::string> names;
  for (const FlagInfo& flag : flags)
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash_command(const CommandInfo& command) {
  std::string text = fmt::format("    {})\n", command.name);
  std::string cases;
  for (const FlagInfo& flag : command.flags) {
    if (!flag.takes_value) continue;
    // Without choices: files, by -o default.
    const std::string words =
        flag.choices.empty() ? "return" : "words=" + shell_quoted(joined(flag.choices));
    cases += fmt::format("        {}) {} ;;\n", fmt::join(flag.names, "|"), words);
  }
  text += fmt::format("      words={}\n", shell_quoted(joined(command.words)));
  text += fmt::format("      if [[ $current == -* ]]; then words={}; fi\n",
                      shell_quoted(joined(names_of(command.flags))));
  if (!cases.empty()) text += "      case $before in\n" + cases + "      esac\n";
  return text + "      ;;\n";
}

std::string bash_script(const Command& app) {
  const std::vector<CommandInfo> commands = offered_commands(app);
  std::string text =
      "# bash completion of qkv: source <(qkv completion bash)\n"
      "_qkv() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
      "  if [[ $current == = ]]; then current=; fi\n"
      "  if [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const CommandInfo& command : commands) text += bash_command(command);
  std::vector<std::string> first = names_of(commands);
  for (const std::string& flag : names_of(app.describe().flags)) first.push_back(flag);
  text += fmt::format("  esac\n  if (( COMP_CWORD == 1 )); then words={}; fi\n",
                      shell_quoted(joined(first)));
  return text +
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _qkv qkv\n";
}

// Inside _arguments, "[", "]" and ":" end a description.
std::string zsh_help(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_value(const std::vector<std::string>& choices) {
  return choices.empty() ? std::string(":file:_files")
                         : fmt::format(":choice:({})", fmt::join(choices, " "));
}

std::string zsh_script(const Command& app) {
  std::string text =
      "#compdef qkv\n# zsh completion of qkv: source <(qkv completion zsh)\n"
      "_qkv() {\n  if (( CURRENT == 2 )); then\n    local -a commands=(\n";
  const std::vector<CommandInfo> commands = offered_commands(app);
  for (const CommandInfo& command : commands) {
    text += fmt::format("      {}\n",
                        shell_quoted(fmt::format("{}:{}", command.name, zsh_help(command.help))));
  }
  text +=
      "    )\n    _describe command commands\n    return\n  fi\n  local command=$words[2]\n"
      "  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const CommandInfo& command : commands) {
    text += fmt::format("    {}) _arguments", command.name);
    for (const FlagInfo& flag : command.flags) {
      for (const std::string& name : flag.names) {
        text +=
            fmt::format(" \\\n      {}",
                        shell_quoted(fmt::format("{}[{}]{}", name, zsh_help(flag.help),
                                                 flag.takes_value ? zsh_value(flag.choices) : "")));
      }
    }
    text += fmt::format(" \\\n      {} ;;\n", shell_quoted("*" + zsh_value(command.words)));
  }
  return text +
         "  esac\n}\n"
         // Loaded by zsh from a folder of its $fpath, the file is the body of _qkv.
         "if [[ $funcstack[1] == _qkv ]]; then _qkv; else compdef _qkv qkv; fi\n";
}

std::string fish_flag(const CommandInfo& command, const FlagInfo& flag) {
  std::string text =
      fmt::format("complete -c qkv -n '__fish_seen_subcommand_from {}'", command.name);
  for (const std::string& name : flag.names) {
    const bool is_long = name.starts_with("--");
    text += fmt::format(" {} {}", is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1));
  }
  if (flag.takes_value && flag.choices.empty()) text += " -r -F";
  if (!flag.choices.empty()) {
    text += fmt::format(" -x -a {}", shell_quoted(joined(flag.choices)));
  }
  return text + fmt::format(" -d {}\n", shell_quoted(flag.help));
}

std::string fish_script(const Command& app) {
  std::string text = "# fish completion of qkv: qkv completion fish | source\n";
  for (const CommandInfo& command : offered_commands(app)) {
    text += fmt::format("complete -c qkv -f -n __fish_use_subcommand -a {} -d {}\n", command.name,
                        shell_quoted(command.help));
    if (!command.words.empty()) {
      text += fmt::format("complete -c qkv -f -n '__fish_seen_subcommand_from {}' -a {}\n",
                          command.name, shell_quoted(joined(command.words)));
    }
    for (const FlagInfo& flag : command.flags) text += fish_flag(command, flag);
  }
  return text;
}

}  // namespace

void add_completion_command(Command& app, Context& context) {
  auto shell = std::make_shared<std::string>();
  Command command =
      app.add_command("completion", "a script that completes qkv's commands in a shell");
  command.option("SHELL", *shell, "which shell").required().one_of({"bash", "zsh", "fish"});
  command.footer(examples({"source <(qkv completion bash)       # in ~/.bashrc",
                           "source <(qkv completion zsh)        # in ~/.zshrc",
                           "qkv completion fish | source        # in config.fish"}));
  command.action([shell, app, &context] {
    context.out << (*shell == "bash"  ? bash_script(app)
                    : *shell == "zsh" ? zsh_script(app)
                                      : fish_script(app));
  });
}

}  // namespace qkv::cli
