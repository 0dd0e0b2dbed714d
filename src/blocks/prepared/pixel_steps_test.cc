// The piece of pixels that threads share: cut as it may be, computed once, by whomever.

#include "blocks/prepared/pixel_steps.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "qkv/prepared.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

// Sums of a few hundred numbers of size 1, in f64, in different orders.
constexpr double kClose = 1e-12;

// Weights of a C2PSA with so many channels in a half, and some more around it.
struct WideC2psa {
  explicit WideC2psa(std::int64_t channels) : all(2 * channels + 5) {
    const DetectorDims dims = detector_dims(channels, 1);
    pe = random_tensor({channels, 1, 3, 3}, 99, 0.3);
    const ConvWeights position{std::as_const(pe).view(), {}};
    weights = {conv(2 * channels, all),
               conv(all, 2 * channels),
               {{{conv(dims.channels, channels), conv(channels, channels), position, dims.heads,
                  dims.key_dim, dims.head_dim},
                 conv(2 * channels, channels),
                 conv(channels, 2 * channels)}}};
  }

  std::int64_t all;
  Tensor pe;
  std::deque<Tensor> held;
  C2psaWeights weights;

 private:
  ConvWeights conv(std::int64_t out, std::int64_t in) {
    held.push_back(random_tensor({out, in, 1, 1}, held.size(), 0.1));
    return {std::as_const(held.back()).view(), {}};
  }
};

// The piece that threads share is cut by outputs, where weights can be: no bit depends on where, or
// on who comes first.
TEST(PreparedC2psa, SharesOfAPieceChangeNoBit) {
  const WideC2psa w(80);
  for (const PrepareOptions& kept : {PrepareOptions{}, PrepareOptions{.storage = WeightStorage::i8},
                                     PrepareOptions{.storage = WeightStorage::bf16},
                                     PrepareOptions{.backend = LinearBackend::reference}}) {
    const PreparedC2psa prepared(w.weights, kept);
    for (const Dims& shape : {Dims{1, w.all, 20, 20}, Dims{1, w.all, 9, 37}}) {
      const Tensor x = random_tensor(shape, 14, 1, DType::f32);
      Tensor one(DType::f32, shape);
      prepared.forward(x, one, {.threads = 1});
      for (const int threads : {2, 3, 4, 7}) {
        for (int i = 0; i < (kept.backend == LinearBackend::reference ? 2 : 10); ++i) {
          Tensor out(DType::f32, shape);
          prepared.forward(x, out, {.threads = threads});
          ASSERT_TRUE(same_bits(out, one)) << to_string(shape) << " on " << threads;
        }
      }
    }
  }
}

// The same of every part, in f64, into 16 bits, and of channels that lie last: such an image has no
// lanes to be cut by, also where there are but a few pixels to share.
TEST(PreparedC2psa, SharesOfAPieceWhateverItIs) {
  const WideC2psa w(128);
  const auto check = [](const auto& prepared, const Dims& shape, DType dtype, DType out_dtype) {
    const Tensor x = random_tensor(shape, 14, 1, dtype);
    const Dims last_shape{shape[0], shape[2], shape[3], shape[1]};
    const Tensor x_last = Tensor::copy_of(x.view().permute({0, 2, 3, 1}));
    Tensor one(out_dtype, shape);
    prepared.forward(x, one, {.threads = 1});
    for (const int threads : {2, 3, 5}) {
      Tensor out(out_dtype, shape), last(out_dtype, last_shape);
      prepared.forward(x, out, {.threads = threads});
      EXPECT_TRUE(same_bits(out, one)) << to_string(shape) << " on " << threads;
      prepared.forward(x_last.view().permute({0, 3, 1, 2}), last.view().permute({0, 3, 1, 2}),
                       {.threads = threads});
      EXPECT_TRUE(same_bits(Tensor::copy_of(last.view().permute({0, 3, 1, 2})), one))
          << to_string(shape) << " on " << threads << ", channels last";
    }
  };
  const PsaBlockWeights& psa = w.weights.blocks[0];
  for (const WeightStorage storage : {WeightStorage::as_given, WeightStorage::bf16}) {
    const PrepareOptions kept{.storage = storage};
    for (const auto& [H, W] : {std::pair{20, 20}, {6, 67}, {2, 201}}) {
      for (const auto& [from, to] : {std::pair{DType::f32, DType::f32},
                                     {DType::f32, DType::bf16},
                                     {DType::f64, DType::f64}}) {
        check(PreparedDetector(psa.attention, kept), {1, 128, H, W}, from, to);
        check(PreparedPsaBlock(psa, kept), {1, 128, H, W}, from, to);
        check(PreparedC2psa(w.weights, kept), {1, w.all, H, W}, from, to);
      }
    }
  }
}

// A step without inputs gives its bias, also in the shared piece.
TEST(PreparedPsaBlock, NoHiddenChannels) {
  const WideC2psa w(128);
  PsaBlockWeights psa = w.weights.blocks[0];
  const Tensor none(DType::f64, {0, 128, 1, 1}), into(DType::f64, {128, 0, 1, 1});
  const Tensor bias = random_tensor({128}, 5);
  psa.expand = {none, {}};
  psa.reduce = {into, bias};
  const PreparedPsaBlock prepared(psa);
  const Dims shape{1, 128, 20, 20};
  const Tensor x = random_tensor(shape, 14);
  Tensor expected(DType::f64, shape);
  psa_block_forward(psa, x, expected);
  for (const int threads : {1, 2, 3, 4}) {
    Tensor out(DType::f64, shape);
    prepared.forward(x, out, {.threads = threads});
    EXPECT_LE(max_difference(out, expected), kClose) << threads;
  }
}

}  // namespace
}  // namespace qkv::testing
