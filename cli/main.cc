#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "qkv/version.h"

namespace {

void print_info() {
  std::printf("qkv %s\n", qkv::version());
#if QKV_THREADS_OPENMP
  std::printf("threads: OpenMP\n");
#else
  std::printf("threads: std::thread\n");
#endif
#if QKV_WITH_NPZ
  std::printf("npz: yes\n");
#else
  std::printf("npz: no (built without libzip)\n");
#endif
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Exact attention on a CPU, that shows its work."};
  app.name("qkv");
  app.set_version_flag("--version", std::string("qkv ") + qkv::version());
  app.require_subcommand(1);
  app.add_subcommand("info", "what this build is, and what it can do on this machine")
      ->callback(print_info);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
