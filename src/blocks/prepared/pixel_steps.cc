#include "blocks/prepared/pixel_steps.h"

#include <algorithm>

#include "base/parallel.h"

namespace qkv {
namespace {

// Pixels of a vector, on any target, and vectors that a thread takes through all steps at once:
// what they become in between stays in its second cache.
constexpr std::int64_t kVector = 16, kMostVectors = 16;

// [B, C, H, W] as rows [B, H, W, C], which is how products see an image.
template <typename View>
View pixels(const View& image) {
  return image.has_value() ? image.permute({0, 2, 3, 1}) : image;
}

// The same as [1, pixels, C], pixels [begin, end) of image b.
template <typename View>
View pixels_of(const View& image, std::int64_t b, std::int64_t begin, std::int64_t end) {
  if (!image.has_value()) return image;
  return pixels(image).slice(0, b, b + 1).flatten(1, 2).slice(1, begin, end);
}

// Whether lines follow each other without a gap, so that pixels can be counted through.
bool is_flat(const TensorView& image) {
  return !image.has_value() || image.stride(2) == image.dim(3) * image.stride(3);
}

// Pieces of an image: several for each thread, as many for each; 1 if it is too small for that.
std::int64_t pieces_of(const TensorView& x, int workers) {
  const std::int64_t vectors = (x.dim(2) * x.dim(3) + kVector - 1) / kVector;
  const std::int64_t images = std::max<std::int64_t>(x.dim(0), 1);
  std::int64_t pieces = std::max((vectors + kMostVectors - 1) / kMostVectors,
                                 (2 * std::int64_t{workers} + images - 1) / images);
  if (images % workers != 0) pieces = (pieces + workers - 1) / workers * workers;
  return vectors < 2 * pieces ? 1 : pieces;
}

}  // namespace

void PixelSteps::add(const PixelStep& step) {
  if (count_ == static_cast<int>(steps_.size())) run();
  steps_[static_cast<std::size_t>(count_++)] = step;
}

void PixelSteps::run() {
  if (count_ == 0) return;
  const int workers = scope_.threads;
  const auto end = steps_.begin() + count_;
  const bool flat = std::all_of(steps_.begin(), end, [](const PixelStep& s) {
    return is_flat(s.x) && is_flat(s.out) && is_flat(s.residual);
  });
  const std::int64_t pieces =
      count_ > 1 && workers > 1 && flat ? pieces_of(steps_[0].x, workers) : 1;
  if (pieces > 1) {
    run_together(pieces);
  } else {
    for (auto s = steps_.begin(); s != end; ++s) {
      run_linear(*s->linear, pixels(s->x), pixels(s->out), scope_.dtype, scope_.threads,
                 {s->activation, pixels(s->residual), workers > 1});
      scope_.clock->lap(s->name);
    }
  }
  count_ = 0;
}

void PixelSteps::run_together(std::int64_t pieces) {
  const TensorView& x = steps_[0].x;
  const std::int64_t size = x.dim(2) * x.dim(3), vectors = (size + kVector - 1) / kVector;
  const std::int64_t items = x.dim(0) * pieces;
  const int workers = worker_count(items, scope_.threads);
  parallel_ranges(items, 0, scope_.threads, [&](std::int64_t item, int) {
    const std::int64_t b = item / pieces, piece = item % pieces;
    const std::int64_t begin = vectors * piece / pieces * kVector;
    const std::int64_t end = std::min(size, vectors * (piece + 1) / pieces * kVector);
    Laps::Clock clock = scope_.clock->beside(workers);
    for (int n = 0; n < count_; ++n) {
      const PixelStep& s = steps_[static_cast<std::size_t>(n)];
      run_linear(*s.linear, pixels_of(s.x, b, begin, end), pixels_of(s.out, b, begin, end),
                 scope_.dtype, 1, {s.activation, pixels_of(s.residual, b, begin, end), true});
      clock.lap(s.name);
    }
  });
  scope_.clock->skip();
}

}  // namespace qkv
