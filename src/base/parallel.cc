#include "base/parallel.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "qkv/error.h"
#include "qkv/threads.h"

#if QKV_THREADS_OPENMP
#include <omp.h>
#endif

namespace qkv {
namespace {

std::atomic<int> chosen_threads{0};  // 0: the default

// True while this thread works inside a parallel_for: a nested one runs serially.
thread_local bool inside_parallel = false;

// What this thread's calls have to ask between items, if anything.
thread_local const InterruptCheck* interrupt_check = nullptr;

// A forked child has none of its parent's threads, and OpenMP's runtime does not know: it would
// wait for them for ever.
std::atomic<bool> forked_child{false};

void note_fork() noexcept {
  forked_child.store(true, std::memory_order_relaxed);
  inside_parallel = false;
}

// Registered when the library is loaded: before the first fork that could matter.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, note_fork);

int default_threads() noexcept {
#if QKV_THREADS_OPENMP
  return std::max(1, omp_get_max_threads());
#else
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    return std::max(1, CPU_COUNT(&allowed));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
#endif
}

bool must_run_serially() noexcept {
  if (inside_parallel || forked_child.load(std::memory_order_relaxed)) return true;
#if QKV_THREADS_OPENMP
  return omp_in_parallel() != 0;  // the caller's own OpenMP region
#else
  return false;
#endif
}

// Hands out items to workers and keeps the first exception.
class Queue {
 public:
  // The last `shared` items are handed out one by one, those before them from ranges.
  Queue(std::int64_t count, std::int64_t shared, int workers, ItemFunction fn)
      : ranges_(count > shared ? std::min(workers, kMostRanges) : 0), fn_(fn) {
    const std::int64_t own = count - shared;
    for (int r = 0; r < ranges_; ++r) {
      part_[r].next.store(own * r / ranges_, std::memory_order_relaxed);
      part_[r].end = own * (r + 1) / ranges_;
    }
    part_[ranges_].next.store(own, std::memory_order_relaxed);
    part_[ranges_].end = count;
  }

  void work(int worker) noexcept {
    const bool was_inside = std::exchange(inside_parallel, true);
    const InterruptCheck* check = interrupt_check;  // another worker's thread has none
    try {
      for (int r = 0; r < ranges_; ++r) take_from(part_[(worker + r) % ranges_], worker, check);
      take_from(part_[ranges_], worker, check);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      for (int r = 0; r <= ranges_; ++r) {
        part_[r].next.store(part_[r].end, std::memory_order_relaxed);
      }
    }
    inside_parallel = was_inside;
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static constexpr int kMostRanges = 32;
  // A line of its own, and the one beside it, which comes along: only thieves disturb its worker.
  struct alignas(128) Part {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };

  void take_from(Part& part, int worker, const InterruptCheck* check) {
    for (;;) {
      const std::int64_t item = part.next.fetch_add(1, std::memory_order_relaxed);
      if (item >= part.end) return;
      if (check != nullptr && item > 0) (*check)();
      fn_(item, worker);
    }
  }

  const int ranges_;
  Part part_[kMostRanges + 1];  // the last one in use is everybody's
  const ItemFunction fn_;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

void run(std::int64_t count, std::int64_t shared, int threads, ItemFunction fn) {
  if (count <= 0) return;
  const int workers = worker_count(count, threads);
  Queue queue(count, shared, workers, fn);
  if (workers == 1) {
    queue.work(0);
  } else {
#if QKV_THREADS_OPENMP
#pragma omp parallel num_threads(workers)
    queue.work(omp_get_thread_num());
#else
    std::vector<std::jthread> others;
    others.reserve(static_cast<std::size_t>(workers) - 1);
    try {
      for (int w = 1; w < workers; ++w) others.emplace_back([&queue, w] { queue.work(w); });
    } catch (const std::system_error&) {
      // No more threads to be had: the ones that started do the work.
    }
    queue.work(0);
    others.clear();  // joins
#endif
  }
  queue.rethrow();
}

}  // namespace

InterruptCheck::InterruptCheck(void (*check)(void*), void* argument) noexcept
    : check_(check), argument_(argument), outer_(std::exchange(interrupt_check, this)) {}

InterruptCheck::~InterruptCheck() { interrupt_check = outer_; }

int num_threads() noexcept {
  const int chosen = chosen_threads.load(std::memory_order_relaxed);
  return chosen > 0 ? chosen : default_threads();
}

void set_num_threads(int threads) {
  if (threads < 0) {
    throw Error(ErrorKind::value, "set_num_threads", "threads", "0 (default) or more",
                fmt::format("{}", threads));
  }
  chosen_threads.store(threads, std::memory_order_relaxed);
}

int worker_count(std::int64_t count, int threads) noexcept {
  if (must_run_serially()) return 1;
  const std::int64_t most = threads > 0 ? threads : num_threads();
  return static_cast<int>(std::clamp<std::int64_t>(count, 1, most));
}

void parallel_for(std::int64_t count, int threads, ItemFunction fn) {
  run(count, count, threads, fn);
}

void parallel_ranges(std::int64_t count, std::int64_t shared, int threads, ItemFunction fn) {
  run(count, shared, threads, fn);
}

}  // namespace qkv
