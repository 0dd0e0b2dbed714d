#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "cli/command.h"

namespace qkv::cli {

// While it lives, and once it has lived for a second: one line on context.err that says what is
// going on and for how long. Nothing where err is no terminal.
class Progress {
 public:
  Progress(Context& context, std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void show();

  Context& context_;
  std::string what_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace qkv::cli
