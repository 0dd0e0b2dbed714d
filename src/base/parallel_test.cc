#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "qkv/error.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

TEST(Threads, EveryItemOnce) {
  for (int threads : {0, 1, 2, 5, 16}) {
    std::vector<std::atomic<int>> calls(1000);
    parallel_for(1000, threads,
                 [&](std::int64_t item, int) { ++calls[static_cast<std::size_t>(item)]; });
    for (const auto& count : calls) ASSERT_EQ(count, 1);
  }
  parallel_for(0, 4, [](std::int64_t, int) { FAIL(); });
  parallel_for(-5, 4, [](std::int64_t, int) { FAIL(); });
}

TEST(Threads, WorkersAreNumberedAndDoNotOverlap) {
  const int workers = worker_count(1000, 4);
  EXPECT_EQ(workers, 4);
  EXPECT_EQ(worker_count(3, 4), 3);
  EXPECT_EQ(worker_count(0, 4), 1);
  std::vector<std::atomic<int>> busy(4);
  std::atomic<bool> clash{false};
  parallel_for(1000, 4, [&](std::int64_t, int worker) {
    if (busy[static_cast<std::size_t>(worker)]++ != 0) clash = true;
    --busy[static_cast<std::size_t>(worker)];
  });
  EXPECT_FALSE(clash);
}

TEST(Threads, RangesHaveEveryItemOnce) {
  for (int threads : {0, 1, 2, 5, 40}) {
    for (std::int64_t count : {0, 1, 3, 39, 1000}) {
      for (std::int64_t shared : {std::int64_t{0}, count / 3, count}) {
        std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
        parallel_ranges(count, shared, threads,
                        [&](std::int64_t item, int) { ++calls[static_cast<std::size_t>(item)]; });
        for (const auto& times : calls) ASSERT_EQ(times, 1) << count << " on " << threads;
      }
    }
  }
}

TEST(Threads, RangesComeInOrderAndSharedItemsLast) {
  // One worker goes through its own range, and then through what is shared.
  std::vector<std::int64_t> seen;
  parallel_ranges(10, 4, 1, [&](std::int64_t item, int) { seen.push_back(item); });
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  // With two, nobody is at a shared item while one of the others has not been begun.
  std::atomic<int> begun{0};
  std::atomic<bool> early{false};
  parallel_ranges(100, 20, 2, [&](std::int64_t item, int) {
    if (item < 80) ++begun;
    if (item >= 80 && begun < 78) early = true;  // the last ones may be about to count
  });
  EXPECT_FALSE(early);
}

TEST(Threads, RangesPassOnAnException) {
  for (int threads : {1, 2, 5}) {
    EXPECT_THROW(parallel_ranges(100, 10, threads,
                                 [](std::int64_t item, int) {
                                   if (item == 37) throw std::runtime_error("37");
                                 }),
                 std::runtime_error);
  }
}

TEST(Threads, NestedRunsSerially) {
  std::atomic<int> total{0};
  parallel_for(8, 4, [&](std::int64_t, int) {
    EXPECT_EQ(worker_count(100, 4), 1);
    parallel_for(10, 4, [&](std::int64_t, int worker) {
      EXPECT_EQ(worker, 0);
      ++total;
    });
  });
  EXPECT_EQ(total, 80);
  EXPECT_EQ(worker_count(100, 4), 4);
}

TEST(Threads, ExceptionsReachTheCaller) {
  for (int threads : {1, 4}) {
    EXPECT_THROW(parallel_for(100, threads,
                              [](std::int64_t item, int) {
                                if (item == 50) throw std::runtime_error("50");
                              }),
                 std::runtime_error);
    EXPECT_EQ(worker_count(100, 4), 4);  // not left inside
  }
}

TEST(Threads, AnInterruptCheckIsAskedAndMayEndTheWork) {
  struct Count {
    int asked = 0, most = 1 << 30;
    static void check(void* self) {
      auto& count = *static_cast<Count*>(self);
      if (++count.asked > count.most) throw std::runtime_error("interrupted");
    }
  };
  for (int threads : {1, 4}) {
    // Only the calling thread is asked: the others wait until it has had two items.
    const auto caller = std::this_thread::get_id();
    std::atomic<int> done{0}, of_caller{0};
    const auto slow = [&](std::int64_t, int) {
      if (std::this_thread::get_id() == caller) ++of_caller;
      do {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      } while (std::this_thread::get_id() != caller && of_caller < 2);
      ++done;
    };
    Count outer, inner;
    const InterruptCheck asks_outer(&Count::check, &outer);
    {
      const InterruptCheck asks_inner(&Count::check, &inner);
      parallel_for(20, threads, slow);
      EXPECT_GT(inner.asked, 0);
      EXPECT_EQ(outer.asked, 0);
    }
    outer.most = 2;
    done = of_caller = 0;
    EXPECT_THROW(parallel_for(1000, threads, slow), std::runtime_error);
    EXPECT_LT(done, 1000);
    EXPECT_EQ(outer.asked, 3);
  }
}

TEST(Threads, ConcurrentCallers) {
  std::atomic<int> total{0};
  {
    std::vector<std::jthread> callers;
    for (int c = 0; c < 4; ++c) {
      callers.emplace_back([&] {
        for (int n = 0; n < 50; ++n) parallel_for(20, 3, [&](std::int64_t, int) { ++total; });
      });
    }
  }
  EXPECT_EQ(total, 4 * 50 * 20);
}

TEST(Threads, TheNumberCanBeSet) {
  EXPECT_GE(num_threads(), 1);
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  EXPECT_EQ(worker_count(100, 0), 3);
  set_num_threads(0);
  EXPECT_GE(num_threads(), 1);
  EXPECT_THROW(set_num_threads(-1), Error);
}

// Runs fn in a child and expects it to end by itself with success.
template <typename Fn>
void expect_child_survives(Fn&& fn) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // a child that hangs is killed, and the test fails
    _exit(fn() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Threads, AForkedChildRunsOn) {
  std::atomic<int> total{0};
  const auto work = [&] { parallel_for(100, 4, [&](std::int64_t, int) { ++total; }); };
  work();  // the parent has threads now, which the child will not
  expect_child_survives([&] {
    total = 0;
    work();
    return total == 100;
  });
}

TEST(Threads, OneCpuOfAffinityIsEnough) {
  expect_child_survives([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) return false;
    std::atomic<int> total{0};
    parallel_for(100, 4, [&](std::int64_t, int) { ++total; });
    return total == 100;
  });
}

}  // namespace
}  // namespace qkv
