#pragma once

// Several threads that start at once, and the time until the last one is done.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace qkv::bench {

using Clock = std::chrono::steady_clock;

// Seconds that work(thread) takes on `threads` threads of its own, from the first start to the last
// end. Starting the threads does not count.
template <typename Work>
double seconds_together(int threads, const Work& work) {
  struct Span {
    Clock::time_point begin, end;
  };
  std::vector<Span> spans(static_cast<std::size_t>(threads));
  std::atomic<int> ready{0};
  const auto run = [&](int t) {
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
