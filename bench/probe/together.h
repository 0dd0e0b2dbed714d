#pragma once

// Several threads that start at once, and the time until the last one is done.

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace qkv::bench {

using Clock = std::chrono::steady_clock;

// While it lives, the calling thread runs on one CPU: the n-th of those that it may use. A
// scheduler that knows no shared cache between two CPUs leaves a new thread beside its maker for
// milliseconds.
class OnOneCpu {
 public:
#if defined(__linux__)
  explicit OnOneCpu(int n) {
    known_ = pthread_getaffinity_np(pthread_self(), sizeof(before_), &before_) == 0;
    if (!known_ || CPU_COUNT(&before_) < 1) return;
    n %= CPU_COUNT(&before_);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &before_) == 0 || n-- > 0) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      (void)pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
      return;
    }
  }
  ~OnOneCpu() {
    if (known_) (void)pthread_setaffinity_np(pthread_self(), sizeof(before_), &before_);
  }
#else
  explicit OnOneCpu(int /*n*/) {}
#endif
  OnOneCpu(const OnOneCpu&) = delete;
  OnOneCpu& operator=(const OnOneCpu&) = delete;

 private:
#if defined(__linux__)
  cpu_set_t before_;
  bool known_ = false;
#endif
};

// Seconds that work(thread) takes on `threads` threads of its own, from the first start to the last
// end. Starting the threads does not count.
template <typename Work>
double seconds_together(int threads, const Work& work) {
  struct Span {
    Clock::time_point begin, end;
  };
  std::vector<Span> spans(static_cast<std::size_t>(threads));
  std::atomic<int> ready{0};
  // Others inherit the caller's CPUs as they are before it settles on its own.
  const auto run = [&](int t) {
    const OnOneCpu here(t);
    ready.fetch_add(1);
    while (ready.load() < threads) std::this_thread::yield();
    spans[static_cast<std::size_t>(t)].begin = Clock::now();
    work(t);
    spans[static_cast<std::size_t>(t)].end = Clock::now();
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(run, t);
    run(0);
  }
  Span all = spans.front();
  for (const Span& span : spans) {
    all.begin = std::min(all.begin, span.begin);
    all.end = std::max(all.end, span.end);
  }
  return std::chrono::duration<double>(all.end - all.begin).count();
}

}  // namespace qkv::bench
