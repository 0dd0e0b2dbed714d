#pragma once

// Repeated calls: how long they take, and where the time goes.

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "qkv/block_plan.h"
#include "qkv/linear.h"

namespace qkv::cli {

// --repeat, --profile, --plan and --storage.
class TimingFlags {
 public:
  void add_to(Command& command);

  int repeat() const noexcept { return repeat_; }
  bool profile() const noexcept { return profile_; }
  bool plan() const noexcept { return plan_; }
  // Whether anything asks for a prepared block.
  bool prepared() const noexcept {
    return repeat_ > 1 || profile_ || plan_ || storage_ != "as-given";
  }
  PrepareOptions prepare_options() const;

 private:
  int repeat_ = 1;
  bool profile_ = false, plan_ = false;
  std::string storage_ = "as-given";
};

// Milliseconds of calls, after one that is not counted if there are several.
struct Timing {
  double median = 0, best = 0;
};
Timing repeat_calls(int count, BlockProfile* profile, const std::function<void()>& call);

// A table of the steps, of `calls` calls.
std::string to_string(const BlockProfile& profile, int calls);

}  // namespace qkv::cli
