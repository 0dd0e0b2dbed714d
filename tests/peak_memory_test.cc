// What a prepared block needs beyond weights, input and output: its plan says it, and a call takes
// no more. A matrix of all scores would be many times that.

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "qkv/layers.h"
#include "qkv/prepared.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

// The most memory that the process has had since the last call with reset, in bytes; -1: unknown.
// (A sanitizer has memory of its own.)
std::int64_t peak_memory(bool reset) {
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (reset && !(std::ofstream("/proc/self/clear_refs") << "5" << std::flush)) return -1;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
#else
  static_cast<void>(reset);
#endif
  return -1;
}

// What the allocator and the threads' stacks round up.
constexpr std::int64_t kSlack = 2 << 20;

// `warm` makes threads and brings in the code, with a small input and another block.
template <typename Warm, typename Forward>
void expect_as_planned(const BlockPlan& plan, std::int64_t scores, Warm warm, Forward forward) {
  EXPECT_GT(plan.workspace, plan.kernel_workspace + plan.product_workspace);
  EXPECT_LT(plan.workspace, scores / 4);
  warm();
  const std::int64_t before = peak_memory(true);
  forward();
  const std::int64_t after = peak_memory(false);
  if (before < 0 || after < 0) GTEST_SKIP() << "the peak of memory is not to be had here";
  EXPECT_LE(after - before, plan.workspace + kSlack);
}

constexpr std::int64_t T = 1024, d = 64, kHeads = 8;
constexpr std::int64_t kScores = kHeads * T * T * 4;  // bytes

struct Weights {
  Tensor in = random_tensor({3 * d, d}, 1, 0.2, DType::f32),
         out = random_tensor({d, d}, 2, 0.2, DType::f32);
  Tensor norm = random_tensor({d}, 3, 1, DType::f32),
         wide = random_tensor({4 * d, d}, 4, 0.2, DType::f32);
  Tensor narrow = random_tensor({d, 4 * d}, 5, 0.2, DType::f32);
  Tensor x = random_tensor({1, T, d}, 6, 1, DType::f32), y = Tensor(DType::f32, {1, T, d});
  Tensor few = Tensor(DType::f32, {1, 8, d});

  TransformerWeights attention() const {
    return TransformerWeights::from_packed(in, {}, out, {}, kHeads);
  }
  template <class Layer>
  Layer layer() const {
    Layer w;
    w.norm1 = w.norm2 = {norm, {}, 1e-5};
    w.linear1 = {wide, {}};
    w.linear2 = {narrow, {}};
    return w;
  }
  TensorView start() const { return x.view().slice(1, 0, 8); }
};

TEST(PeakMemory, OfAttention) {
  Weights w;
  const PreparedAttention block(w.attention());
  expect_as_planned(
      block.plan({1, T, d}), kScores,
      [&] { PreparedAttention(w.attention()).forward(w.start(), w.few); },
      [&] { block.forward(w.x, w.y); });
}

TEST(PeakMemory, OfAnEncoderLayer) {
  Weights w;
  for (const WeightStorage storage : {WeightStorage::as_given, WeightStorage::i8}) {
    EncoderLayerWeights layer = w.layer<EncoderLayerWeights>();
    layer.attention = w.attention();
    layer.norm_first = true;
    PrepareOptions options;
    options.storage = storage;
    const PreparedEncoderLayer block(layer, options);
    expect_as_planned(
        block.plan({1, T, d}), kScores,
        [&] { PreparedEncoderLayer(layer, options).forward(w.start(), w.few); },
        [&] { block.forward(w.x, w.y); });
  }
}

TEST(PeakMemory, OfADecoderLayer) {
  Weights w;
  auto layer = w.layer<TransformerDecoderLayerWeights>();
  layer.self_attention = layer.cross_attention = w.attention();
  layer.norm3 = layer.norm1;
  const PreparedDecoderLayer block(layer);
  expect_as_planned(
      block.plan({1, T, d}, {1, T, d}), kScores,
      [&] { PreparedDecoderLayer(layer).forward(w.start(), w.start(), w.few); },
      [&] { block.forward(w.x, w.x, w.y); });
}

TEST(PeakMemory, OfTheDetectorsBlocks) {
  constexpr std::int64_t kSide = 40, kPixels = kSide * kSide, kImageHeads = 4;
  constexpr std::int64_t scores = kImageHeads * kPixels * kPixels * 4;
  const auto conv = [](std::int64_t out, std::int64_t in, std::uint64_t seed) {
    return random_tensor({out, in, 1, 1}, seed, 0.2, DType::f32);
  };
  const Tensor qkv = conv(128, 64, 1), proj = conv(64, 64, 2),
               pe = random_tensor({64, 1, 3, 3}, 3, 1, DType::f32);
  const Tensor expand = conv(128, 64, 4), reduce = conv(64, 128, 5), cv = conv(128, 128, 6);
  DetectorWeights attention{{qkv, {}}, {proj, {}}, {pe, {}}, kImageHeads, 8, 16};
  const C2psaWeights weights{{cv, {}}, {cv, {}}, {{attention, {expand, {}}, {reduce, {}}, true}}};
  const Tensor x = random_tensor({1, 128, kSide, kSide}, 7, 1, DType::f32);
  const Tensor small = random_tensor({1, 128, 4, 4}, 8, 1, DType::f32);
  Tensor y(DType::f32, x.shape()), small_y(DType::f32, small.shape());
  const PreparedC2psa block(weights);
  expect_as_planned(
      block.plan(x.shape()), scores, [&] { PreparedC2psa(weights).forward(small, small_y); },
      [&] { block.forward(x, y); });
}

}  // namespace
}  // namespace qkv::testing
