#include "cli/timing.h"

#include <fmt/format.h>

#include "cli/summary.h"

namespace qkv::cli {

void TimingFlags::add_to(Command& command) {
  command
      .option("--repeat", repeat_, "calls, of which the median is told; weights are prepared once")
      .between(1, 1000000)
      .type_name("N");
  command.flag("--profile", profile_, "where the time goes, step by step");
  command.flag("--plan", plan_, "which kernels run, and the memory that they need");
  command.option("--storage", storage_, "how weights are kept: less memory, less exact")
      .one_of({"as-given", "f32", "bf16", "f16", "int8"})
      .show_default();
}

PrepareOptions TimingFlags::prepare_options() const {
  PrepareOptions options;
  if (storage_ == "f32") options.storage = WeightStorage::f32;
  if (storage_ == "bf16") options.storage = WeightStorage::bf16;
  if (storage_ == "f16") options.storage = WeightStorage::f16;
  if (storage_ == "int8") options.storage = WeightStorage::i8;
  return options;
}

Timing repeat_calls(int count, BlockProfile* profile, const std::function<void()>& call) {
  if (count > 1) {
    call();  // memory and caches
    if (profile != nullptr) profile->steps.clear();
  }
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const Stopwatch watch;
    call();
    times.push_back(watch.milliseconds());
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

std::string to_string(const BlockProfile& profile, int calls) {
  double all = 0;
  for (const BlockProfile::Step& step : profile.steps) all += step.seconds;
  std::string text = fmt::format("{:<16} {:>10} {:>7}\n", "step", "ms", "share");
  for (const BlockProfile::Step& step : profile.steps) {
    text += fmt::format("{:<16} {:>10.4f} {:>6.1f}%\n", step.name, step.seconds * 1e3 / calls,
                        all > 0 ? 100 * step.seconds / all : 0.0);
  }
  return text + fmt::format("{:<16} {:>10.4f}\n", "all", all * 1e3 / calls);
}

}  // namespace qkv::cli
