// Pieces of images: each pixel in one, and each in memory that is nobody else's.

#include "blocks/prepared/pixel_image.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/cpu.h"

namespace qkv::testing {
namespace {

TEST(PixelPieces, CoverEachPixelOnce) {
  for (std::int64_t width = 0; width <= 700; width += width < 70 ? 1 : 13) {
    for (const std::int64_t images : {0, 1, 2, 3, 8}) {
      for (const int threads : {1, 2, 3, 5, 17}) {
        SCOPED_TRACE(::testing::Message()
                     << images << " images of 3 x " << width << " on " << threads);
        const PixelPieces pieces({images, 3, width}, threads);
        EXPECT_EQ(pieces.all(), images * pieces.of_image());
        EXPECT_EQ(pieces.worth(), pieces.of_image() > 1);
        EXPECT_EQ(pieces.of_image(), pieces.dealt() + (pieces.has_shared() ? 1 : 0));
        std::int64_t next = 0;
        for (std::int64_t n = 0; n < pieces.of_image(); ++n) {
          EXPECT_EQ(pieces[n].begin, next);
          EXPECT_LE(pieces[n].count(),
                    n < pieces.dealt() ? pieces.most_pixels() : pieces.shared_pixels());
          // (A product of one pixel would have no lanes.)
          EXPECT_GE(pieces[n].count(), pieces.worth() ? 2 : 0);
          next = pieces[n].end;
        }
        EXPECT_EQ(next, 3 * width);
        // As many for each thread, unless images are.
        EXPECT_TRUE(!pieces.worth() || images % threads == 0 || pieces.dealt() % threads == 0);
        EXPECT_TRUE(!pieces.has_shared() || (pieces.worth() && images == 1));
      }
    }
  }
}

// What is left of a lone image after as many vectors for each thread is shared, if it is little.
TEST(PixelPieces, ShareWhatIsLeft) {
  struct Case {
    std::int64_t H, W;
    int threads;
    std::int64_t shared, shared_of_half_vectors;  // pixels
  };
  const bool halves = cpu_splits_wide_vectors();
  for (const Case& c : {Case{20, 20, 2, 16, 0}, Case{20, 20, 4, 16, 16}, Case{20, 20, 5, 0, 0},
                        Case{20, 20, 3, 16, 16}, Case{40, 40, 2, 0, 0}, Case{16, 20, 3, 32, 8},
                        Case{7, 27, 2, 0, 0}, Case{20, 20, 1, 0, 0}}) {
    SCOPED_TRACE(::testing::Message() << c.H << " x " << c.W << " on " << c.threads);
    const PixelPieces pieces({1, c.H, c.W}, c.threads);
    EXPECT_EQ(pieces.shared_pixels(), halves ? c.shared_of_half_vectors : c.shared);
  }
}

// Elements of a view, as distances from some begin.
std::vector<std::int64_t> places(const TensorView& view, const void* begin) {
  std::vector<std::int64_t> found;
  const auto first = static_cast<const float*>(view.data()) - static_cast<const float*>(begin);
  for (std::int64_t pixel = 0; pixel < view.dim(1); ++pixel) {
    for (std::int64_t c = 0; c < view.dim(2); ++c) {
      found.push_back(first + pixel * view.stride(1) + c * view.stride(2));
    }
  }
  return found;
}

TEST(PixelImage, InPiecesEachHasItsOwnMemory) {
  constexpr std::int64_t B = 2, C = 5, H = 11, W = 33, kRoom = B * (C + kChannelsBetween) * H * W;
  Tensor memory(DType::f32, {kRoom});
  const auto all = MutablePixelImage::in_pieces(
      MutableTensorView(memory.view().data(), DType::f32, {B, C, H, W}));
  const MutablePixelImage low = all.channels_of(0, 2), high = all.channels_of(2, 5);
  const PixelPieces pieces(all.size(), 3);
  ASSERT_TRUE(pieces.worth());
  std::set<std::int64_t> taken;
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t n = 0; n < pieces.of_image(); ++n) {
      const auto whole = places(all.pixels(b, pieces[n], 0), memory.view().data());
      for (const std::int64_t at : whole) {
        EXPECT_GE(at, 0);
        EXPECT_LT(at, kRoom);
        EXPECT_TRUE(taken.insert(at).second) << "image " << b << ", piece " << n;
      }
      // Some of its channels are where they are in it, whoever asks.
      auto parts = places(low.pixels(b, pieces[n], 1), memory.view().data());
      const auto rest = places(high.pixels(b, pieces[n], 2), memory.view().data());
      parts.insert(parts.end(), rest.begin(), rest.end());
      EXPECT_EQ(std::set(parts.begin(), parts.end()), std::set(whole.begin(), whole.end()));
    }
  }
  EXPECT_EQ(taken.size(), static_cast<std::size_t>(B * C * H * W));
}

TEST(PixelImage, ApartEachThreadHasItsOwnMemory) {
  constexpr std::int64_t C = 3, H = 20, W = 20;
  const PixelPieces pieces({1, H, W}, 2);
  ASSERT_TRUE(pieces.worth());
  ASSERT_TRUE(pieces.has_shared() || cpu_splits_wide_vectors());
  const std::int64_t apart = C * pieces.most_pixels();
  Tensor memory(DType::f32, {2 * apart + C * pieces.shared_pixels()});
  const auto image =
      MutablePixelImage::apart(MutableTensorView(memory.view().data(), DType::f32, {1, C, H, W}),
                               apart * static_cast<std::int64_t>(sizeof(float)));
  const auto end_of = [&](int worker) {
    return worker < 2 ? (worker + 1) * apart : memory.size();  // the last is of the shared piece
  };
  for (int worker = 0; worker < (pieces.has_shared() ? 3 : 2); ++worker) {
    for (std::int64_t n = worker < 2 ? 0 : pieces.dealt();
         n < (worker < 2 ? pieces.dealt() : pieces.of_image()); ++n) {
      for (const std::int64_t at :
           places(image.pixels(0, pieces[n], worker), memory.view().data())) {
        EXPECT_GE(at, worker * apart);
        EXPECT_LT(at, end_of(worker));
      }
    }
  }
}

}  // namespace
}  // namespace qkv::testing
