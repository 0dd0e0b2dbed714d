#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/output.h"
#include "cli/program.h"
#include "cli/signals.h"

namespace {

using qkv::cli::Status;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no threads yet
  return value == nullptr ? std::string_view() : value;
}

// A terminal that can, and nobody who objects (no-color.org).
bool shows_color() {
  return ::isatty(STDOUT_FILENO) == 1 && environment("NO_COLOR").empty() &&
         environment("TERM") != "dumb";
}

// What becomes of a status when the results did not all reach stdout.
Status with_output(Status status, int error) {
  if (error == 0) return status;
  if (error == EPIPE) return Status::closed_pipe;  // the reader had enough: nothing to say
  std::cerr << "qkv: [stdout] write: expected to write all results, found "
            << std::generic_category().message(error) << std::endl;
  return Status::system;
}

}  // namespace

int main(int argc, char** argv) {
  qkv::cli::clean_up_on_signals();
  qkv::cli::DescriptorBuffer buffer(STDOUT_FILENO);
  std::ostream out(&buffer);
  qkv::cli::Context context{.out = out, .err = std::cerr};
  context.color = shows_color();
  context.progress = ::isatty(STDERR_FILENO) == 1;
  const Status status = qkv::cli::run_program(
      std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), context);
  out.flush();
  return static_cast<int>(with_output(status, buffer.error()));
}
