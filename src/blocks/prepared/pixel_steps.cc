#include "blocks/prepared/pixel_steps.h"

#include <algorithm>
#include <cassert>

#include "base/parallel.h"

namespace qkv {
namespace {

// [B, C, H, W] as rows [B, H, W, C], which is how products see an image.
template <typename View>
View rows(const View& image) {
  return image.has_value() ? image.permute({0, 2, 3, 1}) : image;
}

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
  const int workers = worker_count(pieces.all(), scope_.threads);
  parallel_ranges(pieces.all(), 0, scope_.threads, [&](std::int64_t item, int worker) {
    const std::int64_t b = item / pieces.of_image();
    const PixelRange piece = pieces[item % pieces.of_image()];
    Laps::Clock clock = scope_.clock->beside(workers);
    for (int n = 0; n < count_; ++n) {
      const PixelStep& s = steps_[static_cast<std::size_t>(n)];
      run_linear(*s.linear, s.x.pixels(b, piece, worker), s.out.pixels(b, piece, worker),
                 scope_.dtype, 1,
                 {s.activation, s.residual.pixels(b, piece, worker), !s.out.is_apart()});
      clock.lap(s.name);
    }
  });
  scope_.clock->skip();
}

}  // namespace qkv
