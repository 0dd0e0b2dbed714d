#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace qkv::cli {

// The program with all its subcommands, for parsing and for whoever wants to list them.
CommandLine make_program(Context& context);

// Runs a command line (without the program's name). Errors become one line on context.err and a
// status.
Status run_program(const std::vector<std::string>& arguments, Context& context);

}  // namespace qkv::cli
