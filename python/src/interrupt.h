#pragma once

// Ctrl-C in a long call: the engine asks between pieces of work whether a signal is waiting.

#include <nanobind/nanobind.h>

#include <chrono>

#include "base/parallel.h"

namespace qkv::python {

// Made without the GIL, around a call of the engine. Python's handlers run every now and then;
// what they raise (KeyboardInterrupt) leaves the call, whose outputs are then half written.
class SignalWatch {
 public:
  SignalWatch() noexcept : check_(&SignalWatch::look, this) {}

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kEvery{50};

  static void look(void* self) {
    auto& next = static_cast<SignalWatch*>(self)->next_;
    const Clock::time_point now = Clock::now();
    if (next == Clock::time_point()) next = now + kEvery;
    if (now < next) return;
    const nanobind::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    next = Clock::now() + kEvery;
  }

  Clock::time_point next_;  // not set before the first look: short calls have none
  InterruptCheck check_;
};

}  // namespace qkv::python
