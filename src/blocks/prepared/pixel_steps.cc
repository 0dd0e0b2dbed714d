#include "blocks/prepared/pixel_steps.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <span>
#include <thread>

#include "base/parallel.h"

namespace qkv {
namespace {

// [B, C, H, W] as rows [B, H, W, C], which is how products see an image.
template <typename View>
View rows(const View& image) {
  return image.has_value() ? image.permute({0, 2, 3, 1}) : image;
}

// The piece of pixels that threads share. Its steps are cut, by outputs, into shares of about the
// same cost, one for each thread, which follow each other: what a step reads is written first.
//
// The outputs of a step are dealt out from the last to the first: a C2PSA's blocks begin with the
// second half of what cv1 gives, and nobody reads the first one before cv2, whose share is the last
// one, too.
class SharedPiece {
 public:
  SharedPiece(std::span<const PixelStep> steps, PixelRange piece, const Scope& scope)
      : steps_(steps), piece_(piece), scope_(scope) {
    for (const PixelStep& s : steps_) cost_ += cost_of_output(s) * s.linear->out();
  }

  // The shares up to this one, if nobody has begun them. Those that others have begun are waited
  // for only where one's own needs them: who has begun one is at it, so nobody waits for ever.
  void run(int share, Laps::Clock& clock) {
    int next = next_.load(std::memory_order_relaxed);
    while (next <= share) {
      if (!next_.compare_exchange_weak(next, next + 1, std::memory_order_relaxed)) continue;
      for (int looks = 0; done_.load(std::memory_order_acquire) < next;) {
        if (looks < kLooks) {
          ++looks;
        } else {
          std::this_thread::yield();
        }
      }
      const Done done{done_, ++next};
      compute(next - 1, clock);
    }
  }

 private:
  // Said also where a share throws: others wait for it.
  struct Done {
    std::atomic<int>& so_far;
    int count;
    ~Done() { so_far.store(count, std::memory_order_release); }
  };

  // Before who waits lets others have the core: some microseconds.
  static constexpr int kLooks = 1 << 12;
  // Outputs that are not divided: tiles are full.
  static constexpr std::int64_t kOutputs = 32;

  // A step without inputs has outputs, too.
  static std::int64_t cost_of_output(const PixelStep& s) {
    return std::max<std::int64_t>(s.linear->in(), 1);
  }

  void compute(int share, Laps::Clock& clock) const {
    std::int64_t before = 0;
    for (const PixelStep& s : steps_) {
      const std::int64_t last = first_output(s, before, share);
      const std::int64_t first = first_output(s, before, share + 1);
      before += cost_of_output(s) * s.linear->out();
      if (first == last) continue;
      product(s, first, last);
      clock.lap(s.name);
    }
  }

  // Of a step before which there are steps of that cost, the outputs from here on belong to shares
  // before this one.
  std::int64_t first_output(const PixelStep& s, std::int64_t before, int share) const {
    const std::int64_t out = s.linear->out();
    const std::int64_t of_step = cost_ * share / scope_.threads - before;
    const std::int64_t count = std::clamp<std::int64_t>(of_step / cost_of_output(s), 0, out);
    if (count == 0 || count == out) return out - count;
    const std::int64_t least = may_be_cut(s) ? std::min(kOutputs, out) : out;
    const std::int64_t whole = (count + least / 2) / least * least;
    return out - whole < least ? 0 : out - whole;
  }

  // As run_some_outputs wants it.
  bool may_be_cut(const PixelStep& s) const {
    const TensorView out = s.out.PixelImage::pixels(0, piece_, slot());
    return gives_some_outputs(*s.linear) && out.stride(1) == 1 && out.stride(2) != 1;
  }

  void product(const PixelStep& s, std::int64_t first, std::int64_t last) const {
    const TensorView x = s.x.pixels(0, piece_, slot());
    const MutableTensorView out = s.out.pixels(0, piece_, slot()).slice(2, first, last);
    TensorView residual = s.residual.pixels(0, piece_, slot());
    if (residual.has_value()) residual = residual.slice(2, first, last);
    const LinearEpilogue epilogue{s.activation, residual, true};
    if (last - first == s.linear->out()) {
      run_linear(*s.linear, x, out, scope_.dtype, 1, epilogue);
    } else {
      run_some_outputs(*s.linear, first, x, out, scope_.dtype, 1, epilogue);
    }
  }

  // Where images are apart: behind those of the threads.
  int slot() const { return scope_.threads; }

  std::span<const PixelStep> steps_;
  PixelRange piece_;
  const Scope& scope_;
  std::int64_t cost_ = 0;
  std::atomic<int> next_{0}, done_{0};
};

}  // namespace

void PixelSteps::add(const PixelStep& step) {
  assert(count_ < static_cast<int>(steps_.size()));
  steps_[static_cast<std::size_t>(count_++)] = step;
}

void PixelSteps::run() {
  if (count_ == 0) return;
  const auto end = steps_.begin() + count_;
  const bool flat = std::all_of(steps_.begin(), end, [](const PixelStep& s) {
    return s.x.is_flat() && s.out.is_flat() && s.residual.is_flat();
  });
  const PixelPieces pieces(steps_[0].x.size(), scope_.threads);
  if (flat && pieces.worth()) {
    run_together(pieces);
  } else {
    for (auto s = steps_.begin(); s != end; ++s) {
      run_linear(*s->linear, rows(s->x.plain()), rows(s->out.plain()), scope_.dtype, scope_.threads,
                 {s->activation, rows(s->residual.plain()), scope_.threads > 1});
      scope_.clock->lap(s->name);
    }
  }
  count_ = 0;
}

void PixelSteps::run_together(const PixelPieces& pieces) {
  const std::int64_t dealt = pieces.dealt(), images = pieces.all() / pieces.of_image();
  const int threads = scope_.threads;
  if (!pieces.has_shared()) {
    const int workers = worker_count(images * dealt, threads);
    parallel_ranges(images * dealt, 0, threads, [&](std::int64_t item, int worker) {
      Laps::Clock clock = scope_.clock->beside(workers);
      run_piece(item / dealt, pieces[item % dealt], worker, clock);
    });
  } else {
    // Each has its own pieces and a share of the last one, the later, the later that is: of two
    // threads, one begins with it and the other ends with it, and nobody waits.
    SharedPiece shared({steps_.data(), static_cast<std::size_t>(count_)}, pieces[dealt], scope_);
    const std::int64_t own = dealt / threads, all = own + 1;
    const int workers = worker_count(threads * all, threads);
    parallel_ranges(threads * all, 0, threads, [&](std::int64_t item, int worker) {
      Laps::Clock clock = scope_.clock->beside(workers);
      const std::int64_t whose = item / all, n = item % all;
      const std::int64_t place = (whose * own + (threads - 1) / 2) / (threads - 1);
      if (n == place) return shared.run(static_cast<int>(whose), clock);
      run_piece(0, pieces[whose * own + n - (n > place ? 1 : 0)], worker, clock);
    });
  }
  scope_.clock->skip();
}

void PixelSteps::run_piece(std::int64_t b, PixelRange piece, int worker, Laps::Clock& clock) const {
  for (int n = 0; n < count_; ++n) {
    const PixelStep& s = steps_[static_cast<std::size_t>(n)];
    run_linear(*s.linear, s.x.pixels(b, piece, worker), s.out.pixels(b, piece, worker),
               scope_.dtype, 1,
               {s.activation, s.residual.pixels(b, piece, worker), !s.out.is_apart()});
    clock.lap(s.name);
  }
}

}  // namespace qkv
