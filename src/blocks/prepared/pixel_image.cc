#include "blocks/prepared/pixel_image.h"

#include "base/cpu.h"

namespace qkv {
namespace {

// Pixels of a vector on any target, and such that are not divided: half of them where half a vector
// costs half.
constexpr std::int64_t kVector = 16;
std::int64_t least_pixels() { return cpu_splits_wide_vectors() ? kVector / 2 : kVector; }

// Pixels that a thread takes through all steps at once: what they become in between stays in its
// second cache. (Of 256, the lines of a piece would meet in the same sets of the first one.)
constexpr std::int64_t kMostPixels = 240;

// Pieces that a thread has of so many images, at least. Of two, another one may take the second;
// but all weights are read for each.
std::int64_t pieces_of_thread(std::int64_t images, std::int64_t threads) {
  return images == 1 && threads == 2 && cpu_has_fast_caches() ? 1 : 2;
}

// A view that was made of a mutable one.
MutableTensorView writable(const TensorView& view) {
  return {const_cast<void*>(view.data()), view.dtype(), view.shape(), view.strides()};
}

}  // namespace

PixelPieces::PixelPieces(const ImageSize& size, int threads)
    : pixels_(size.H * size.W),
      least_(least_pixels()),
      parts_((pixels_ + least_ - 1) / least_),
      images_(size.B) {
  const std::int64_t images = std::max<std::int64_t>(images_, 1), workers = threads;
  if (workers < 2) return;
  const std::int64_t least = pieces_of_thread(images, workers) * workers;
  dealt_ = std::max((pixels_ + kMostPixels - 1) / kMostPixels, (least + images - 1) / images);
  if (images % workers != 0) dealt_ = (dealt_ + workers - 1) / workers * workers;
  if (pixels_ < 2 * kVector * dealt_) dealt_ = 1;
  // The shares of the last piece are done one after the other, beside the other pieces.
  const std::int64_t rest = parts_ % workers;
  const bool lone = images_ == 1 && dealt_ > 1 && 2 * rest <= parts_ / workers;
  // (A product of one pixel would have no lanes.)
  if (lone && pixels_ - (parts_ - rest) * least_ > 1) shared_ = rest;
}

bool PixelImage::is_flat() const {
  return !has_value() || is_in_pieces() || view_.stride(2) == view_.dim(3) * view_.stride(3);
}

TensorView PixelImage::pixels(std::int64_t b, PixelRange piece, int worker) const {
  if (!has_value()) return {};
  if (lies_ == Lies::plain) {
    return view_.slice(0, b, b + 1)
        .permute({0, 2, 3, 1})
        .flatten(1, 2)
        .slice(1, piece.begin, piece.end);
  }
  const std::int64_t size = static_cast<std::int64_t>(size_of(dtype())), count = piece.count();
  const std::int64_t N = view_.dim(2) * view_.dim(3);
  const std::int64_t elements =
      is_apart() ? 0 : (b * N + piece.begin) * (all_ + kChannelsBetween) + first_ * count;
  const auto* data =
      static_cast<const std::byte*>(view_.data()) + elements * size + worker * apart_;
  return {data, dtype(), {1, count, channels()}, {0, 1, count}};
}

MutablePixelImage MutablePixelImage::in_pieces(const MutableTensorView& memory) {
  MutablePixelImage image(memory);
  image.lies_ = Lies::in_pieces;
  image.all_ = memory.dim(1);
  return image;
}

MutablePixelImage MutablePixelImage::apart(const MutableTensorView& plain, std::int64_t bytes) {
  MutablePixelImage image(plain);
  image.lies_ = Lies::apart;
  image.apart_ = bytes;
  return image;
}

MutablePixelImage MutablePixelImage::channels_of(std::int64_t first, std::int64_t last) const {
  if (!is_in_pieces()) return MutablePixelImage(plain().slice(1, first, last));
  MutablePixelImage part(*this);
  part.first_ += first;
  Dims shape = view_.shape();
  shape[1] = last - first;
  part.view_ = TensorView(view_.data(), dtype(), shape);
  return part;
}

MutableTensorView MutablePixelImage::plain() const { return writable(PixelImage::plain()); }

MutableTensorView MutablePixelImage::pixels(std::int64_t b, PixelRange piece, int worker) const {
  return writable(PixelImage::pixels(b, piece, worker));
}

}  // namespace qkv
