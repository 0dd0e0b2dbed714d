#pragma once

// What a subcommand is to the program. One file a subcommand, cli/<name>.cc, with one function that
// the list in cli/program.cc calls:
//
//   void add_check_command(Command& app, Context& context) {
//     auto args = std::make_shared<CheckArguments>();    // lives as long as the action
//     Command command = app.add_command("check", "compares two results");
//     command.option("--format", args->format, "…").one_of({"text", "json"});
//     command.option("FILE", args->file, "…").required().type_name("FILE");
//     command.footer(examples({"qkv check a.npy b.npy", …}));
//     command.action([args, &context] { context.status = check(*args, context); });
//   }
//
// Conventions, which completion and messages rely on:
//   - a choice among words is Option::one_of; a file has the type name FILE (or begins with it);
//   - results go to context.out, everything else (progress, warnings) to context.err;
//   - what is wrong is thrown: Error (of the library) or UsageError. Nothing prints its own
//     "error:", nothing calls exit. The frame words the message and chooses the status;
//   - write errors of context.out need no attention: the frame flushes and looks at the end.

#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cli/command_line.h"

namespace qkv::cli {

// How the program ends. `qkv --help` prints this list. A signal ends it as the shell expects, which
// shows 128 + its number; so does a reader that closed the pipe (141, without a message).
enum class Status : int {
  ok = 0,
  no = 1,      // it worked, and the answer is no: a check found a difference
  usage = 2,   // wrong usage or bad input: unknown flags, files with wrong content
  system = 3,  // the system refused: no such file, no permission, disk full, out of memory
  closed_pipe = 141,
};

// What is wrong with the command line itself (status usage).
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where a subcommand reads its surroundings and leaves its answer. Tests make their own.
struct Context {
  std::ostream& out;      // results
  std::ostream& err;      // progress and warnings
  bool color = false;     // out is a terminal, and NO_COLOR is not set
  bool progress = false;  // err is a terminal: a line that rewrites itself may be shown
  Status status = Status::ok;
};

// "Examples:" and the lines, for Command::footer.
std::string examples(std::initializer_list<std::string_view> lines);

// Each in cli/<name>.cc.
void add_attention_command(Command& app, Context& context);
void add_check_command(Command& app, Context& context);
void add_classify_command(Command& app, Context& context);
void add_completion_command(Command& app, Context& context);
void add_explain_command(Command& app, Context& context);
void add_generate_command(Command& app, Context& context);
void add_info_command(Command& app, Context& context);
void add_run_command(Command& app, Context& context);
void add_worksheet_command(Command& app, Context& context);

}  // namespace qkv::cli
