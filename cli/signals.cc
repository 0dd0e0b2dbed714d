#include "cli/signals.h"

#include <csignal>
#include <initializer_list>

#include "io/temporaries.h"

namespace qkv::cli {
namespace {

// SA_RESETHAND has put the default action back, so that raising it again ends the program.
extern "C" void end_by(int signal) {
  io::remove_temporaries();
  ::raise(signal);
}

}  // namespace

void clean_up_on_signals() {
  struct sigaction action = {};
  action.sa_handler = end_by;
  // The other ones wait meanwhile: a second Ctrl-C does not stop the cleaning.
  ::sigfillset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) {
    struct sigaction old;
    if (::sigaction(signal, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) {
      ::sigaction(signal, &action, nullptr);
    }
  }
  // A file that grows past a limit (ulimit -f) is an error of that write, not the end.
  ::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace qkv::cli
