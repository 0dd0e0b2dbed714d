#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace qkv {

// How many workers parallel_for will use for `count` items: what a caller sizes scratch by.
// `threads` as in parallel_for.
int worker_count(std::int64_t count, int threads) noexcept;

// A callable that someone else owns, passed on without an allocation.
class ItemFunction {
 public:
  template <typename Fn>
  requires(!std::is_same_v<std::remove_cvref_t<Fn>, ItemFunction>)
      ItemFunction(Fn&& fn)  // NOLINT: implicit on purpose, a lambda is passed straight in
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(fn)))),
        call_([](void* object, std::int64_t item, int worker) {
          (*static_cast<std::remove_reference_t<Fn>*>(object))(item, worker);
        }) {}

  void operator()(std::int64_t item, int worker) const { call_(object_, item, worker); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, int);
};

// While one lives, parallel_for and parallel_ranges ask `check` between the items of the thread
// that made it and calls them: it may throw, as fn may. For a binding that has to look at signals.
// They nest.
class InterruptCheck {
 public:
  InterruptCheck(void (*check)(void*), void* argument) noexcept;
  ~InterruptCheck();
  InterruptCheck(const InterruptCheck&) = delete;
  InterruptCheck& operator=(const InterruptCheck&) = delete;

  void operator()() const { check_(argument_); }

 private:
  void (*check_)(void*);
  void* argument_;
  const InterruptCheck* outer_;
};

// Calls fn(item, worker) once for every item in [0, count), on up to `threads` threads
// (0: num_threads()). `worker` is in [0, worker_count(count, threads)), and no two calls with the
// same worker overlap. Items are handed out one by one, so uneven ones balance; which worker gets
// which item is not fixed, so fn's result must not depend on it.
//
// Runs serially where threads would be wrong: inside another parallel_for, and in a child that
// was forked (the parent's threads do not exist there). The first exception of fn is rethrown
// after all workers have stopped; items not yet begun are dropped then.
void parallel_for(std::int64_t count, int threads, ItemFunction fn);

// The same, but each worker has a range of neighbouring items of its own, the same one in every
// call with as many items, shared items and threads: with threads that stay (OpenMP), what it wrote
// in one call is still in its core's cache when it reads that in the next. Who is done takes from
// the ranges of others and, last of all, from the `shared` items at the end, which belong to
// nobody: small ones, so that all workers end together.
void parallel_ranges(std::int64_t count, std::int64_t shared, int threads, ItemFunction fn);

}  // namespace qkv
