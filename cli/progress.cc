#include "cli/progress.h"

#include <fmt/format.h>

#include <chrono>
#include <system_error>
#include <utility>

namespace qkv::cli {

Progress::Progress(Context& context, std::string what) : context_(context), what_(std::move(what)) {
  if (!context_.progress) return;
  try {
    thread_ = std::thread([this] { show(); });
  } catch (const std::system_error&) {
    // No thread to be had: the work goes on without the line.
  }
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  done_.notify_all();
  thread_.join();
}

void Progress::show() {
  std::unique_lock<std::mutex> lock(mutex_);
  int seconds = 0;
  while (!done_.wait_for(lock, std::chrono::seconds(1), [this] { return stop_; })) {
    context_.err << fmt::format("\rqkv: {} … {} s", what_, ++seconds) << std::flush;
  }
  // Back to the line's start and clear it: nothing of it stays on the screen.
  if (seconds > 0) context_.err << "\r\x1b[K" << std::flush;
}

}  // namespace qkv::cli
