#pragma once

// The parser of the command line, as the subcommands see it. CLI11 does the work in
// cli/command_line.cc, the only file that includes it: it takes the compiler twenty seconds.

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace qkv::cli {

// An option or a positional argument while it is described: option(…).required().type_name("FILE").
class Option {
 public:
  Option& required(bool yes = true);
  Option& type_name(const std::string& name);  // of the value, for help: FILE
  Option& group(const std::string& title);     // under which help lists it; "": not at all
  Option& show_default();
  Option& words(int count);                                 // takes exactly so many
  Option& one_a_flag();                                     // a word each time that it is given
  Option& delimiter(char between);                          // of several in one word: a,b
  Option& suggests(const std::vector<std::string>& words);  // for completion; others are fine too
  Option& one_of(const std::vector<std::string>& choices);
  Option& between(int least, int most);
  // `fault` says what is wrong with a word, or nothing.
  Option& check(std::function<std::string(const std::string&)> fault);

 private:
  friend class Command;
  explicit Option(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

// What completion and messages have to know about a command.
struct FlagInfo {
  std::vector<std::string> names;  // "--output", "-o"
  std::string help;
  std::vector<std::string> choices;
  bool takes_value;
  bool hidden;  // help does not list it, so nothing should offer it
};
struct CommandInfo {
  std::string name, help;
  std::vector<FlagInfo> flags;
  std::vector<std::string> words;  // that a positional argument may be
};

// A command of a CommandLine, which owns it: to be copied like a pointer.
class Command {
 public:
  Command add_command(const std::string& name, const std::string& help);

  // `names` as "--output,-o", or "FILE" for a positional argument. Parsing writes `target`, which
  // may be a string, an int, int64 or double, an optional of the latter two, or a vector of strings
  // or of int64.
  template <typename T>
  Option option(const std::string& names, T& target, const std::string& help);
  Option flag(const std::string& names, bool& target, const std::string& help);

  void footer(const std::string& text);          // the end of its help
  void action(std::function<void()> action);     // what it does, once all is parsed
  bool given(const std::string& flag) const;     // it stood on the command line
  std::vector<std::string> given_flags() const;  // all that did, as "--output"
  CommandInfo describe() const;
  std::vector<CommandInfo> describe_commands() const;

 protected:
  explicit Command(CLI::App* app) : app_(app) {}

  CLI::App* app_;
};

// A program of several commands, of which a command line names one.
class CommandLine : public Command {
 public:
  CommandLine(const std::string& name, const std::string& help, const std::string& version);
  CommandLine(CommandLine&&) noexcept;
  ~CommandLine();

  // Runs the command's action, or writes help or the version to `out`. Throws UsageError, and what
  // the action throws.
  void parse(const std::vector<std::string>& arguments, std::ostream& out);

 private:
  std::unique_ptr<CLI::App> owned_;
};

}  // namespace qkv::cli
