#pragma once

// Where the pixels of images lie, and how they are dealt out to threads.

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// Extents of a batch of images.
struct ImageSize {
  std::int64_t B = 0, H = 0, W = 0;
};

// Room that is left between the memory of one thread and that of the next, for as many channels. A
// CPU fetches on by the stride that it sees, and would take lines from the other core.
inline constexpr std::int64_t kChannelsBetween = 16;

struct PixelRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};

// How the pixels of images are dealt out to threads: an image in one piece or several for each, as
// many for each; or in one, if it is too small for that. Pixels of a few vectors that would make
// one thread's pieces larger than another's are a last piece, which the threads share.
class PixelPieces {
 public:
  PixelPieces(const ImageSize& size, int threads);

  bool worth() const { return dealt_ > 1; }
  std::int64_t of_image() const { return dealt_ + (has_shared() ? 1 : 0); }
  std::int64_t all() const { return images_ * of_image(); }
  PixelRange operator[](std::int64_t piece) const {
    return {begin(piece), piece + 1 < of_image() ? begin(piece + 1) : pixels_};
  }
  // Of an image, without the shared one, which is behind them. There is one of a lone image only.
  std::int64_t dealt() const { return dealt_; }
  bool has_shared() const { return shared_ > 0; }
  std::int64_t shared_pixels() const { return has_shared() ? (*this)[dealt_].count() : 0; }
  // In one of the others, at most.
  std::int64_t most_pixels() const { return (parts_ - shared_ + dealt_ - 1) / dealt_ * least_; }

 private:
  std::int64_t begin(std::int64_t piece) const {
    return (parts_ - shared_) * piece / dealt_ * least_;
  }

  std::int64_t pixels_, least_, parts_;  // the latter of `least_` pixels each, but for the last
  std::int64_t images_, dealt_ = 1, shared_ = 0;
};

// Images [B, C, H, W] that lie
//   plain       as a view says
//   in pieces   a piece of the pixels behind the other, each [C, pixels]: what a thread writes is
//               nobody else's, to the line, and so is what its CPU fetches beside it
//   apart       where a thread takes a piece through several steps, in memory of that thread's own,
//               [C, pixels], from one piece to the next, and behind that of the threads the shared
//               piece; else plain, in the same memory
class PixelImage {
 public:
  PixelImage() = default;                                // none
  PixelImage(const TensorView& plain) : view_(plain) {}  // NOLINT: implicit, as views are
  bool has_value() const { return view_.has_value(); }
  DType dtype() const { return view_.dtype(); }
  ImageSize size() const { return {view_.dim(0), view_.dim(2), view_.dim(3)}; }
  std::int64_t channels() const { return view_.dim(1); }
  bool is_in_pieces() const { return lies_ == Lies::in_pieces; }
  bool is_apart() const { return lies_ == Lies::apart; }
  // Whether pixels can be counted through: lines follow each other without a gap.
  bool is_flat() const;

  // All of it, [B, C, H, W]. Not in pieces.
  const TensorView& plain() const {
    assert(!is_in_pieces());
    return view_;
  }
  // Pixels of a piece of image b, one of PixelPieces, as [1, pixels, C]. `worker` says whose, where
  // each has its own; of the shared piece, it is the number of threads.
  TensorView pixels(std::int64_t b, PixelRange piece, int worker) const;

 protected:
  enum class Lies { plain, in_pieces, apart };

  TensorView view_;
  Lies lies_ = Lies::plain;
  // In pieces: of `all_` channels of a piece, those from first_ on. view_ says how many, and where
  // the first piece begins.
  std::int64_t first_ = 0, all_ = 0;
  std::int64_t apart_ = 0;  // bytes from one thread's memory to the next one's
};

// The same, to be written to.
class MutablePixelImage : public PixelImage {
 public:
  MutablePixelImage() = default;
  MutablePixelImage(const MutableTensorView& plain) : PixelImage(plain) {}  // NOLINT: as above
  // In dense memory, with room for kChannelsBetween channels more behind it.
  static MutablePixelImage in_pieces(const MutableTensorView& memory);
  static MutablePixelImage apart(const MutableTensorView& plain, std::int64_t bytes);

  MutablePixelImage channels_of(std::int64_t first, std::int64_t last) const;
  MutableTensorView plain() const;
  MutableTensorView pixels(std::int64_t b, PixelRange piece, int worker) const;
};

}  // namespace qkv
