#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "qkv/version.h"

namespace qkv::cli {
namespace {

void print_build(std::ostream& out) {
  out << "qkv " << version() << '\n';
#if QKV_THREADS_OPENMP
  out << "threads: OpenMP\n";
#else
  out << "threads: std::thread\n";
#endif
}

}  // namespace

void add_info_command(CLI::App& app, Context& context) {
  app.add_subcommand("info", "what this build is, and what it can do on this machine")
      ->callback([&context] { print_build(context.out); });
}

}  // namespace qkv::cli
