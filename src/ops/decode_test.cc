// Which calls go to the decode kernel, and that a sequence keeps its bits wherever it is.

#include "ops/decode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "qkv/plan.h"

namespace qkv {
namespace {

Tensor normal(const Dims& shape, unsigned seed) {
  Tensor x(DType::f32, shape);
  std::mt19937 random(seed);
  std::normal_distribution<float> numbers;
  for (float& value : x.as<float>()) value = numbers(random);
  return x;
}

AttentionKernel planned(std::int64_t Tq, std::int64_t Tk, const AttentionOptions& options = {}) {
  return plan_attention({1, 4, 2, Tq, Tk, 16, 16}, options).kernel;
}

TEST(Decode, IsForFewQueriesOverManyKeys) {
  EXPECT_EQ(planned(1, 256), AttentionKernel::decode);
  EXPECT_EQ(planned(8, 1000), AttentionKernel::decode);
  EXPECT_EQ(planned(9, 1000), AttentionKernel::fused);
  EXPECT_EQ(planned(1, 255), AttentionKernel::fused);
  EXPECT_EQ(planned(1, 1000, {.accumulate = Accumulate::f64}), AttentionKernel::fused);
  EXPECT_EQ(planned(1, 1000, {.kernel = AttentionKernel::fused}), AttentionKernel::fused);
  const Tensor bias(DType::f32, {1, 1000});
  EXPECT_EQ(planned(1, 1000, {.bias = bias}), AttentionKernel::fused);
}

bool same(const TensorView& a, const TensorView& b) {
  const Tensor x = Tensor::copy_of(a), y = Tensor::copy_of(b);
  return std::memcmp(x.view().data(), y.view().data(),
                     static_cast<std::size_t>(x.size()) * sizeof(float)) == 0;
}

// Packed, some of the sequences for decode and some not: each as it is alone.
TEST(Decode, PackedSequencesHaveTheBitsThatTheyHaveAlone) {
  const std::vector<std::int64_t> q_starts = {0, 1, 21, 24, 24, 26},
                                  k_starts = {0, 300, 600, 700, 1000, 2000};
  const Tensor q = normal({1, 4, 26, 16}, 1), k = normal({1, 2, 2000, 16}, 2),
               v = normal({1, 2, 2000, 16}, 3);
  Tensor out(DType::f32, {1, 4, 26, 16}), lse(DType::f32, {1, 4, 26});
  AttentionOptions options;
  options.query_starts = TensorView::of(q_starts);
  options.key_starts = TensorView::of(k_starts);
  options.causal = Causal::bottom_right;
  attention_forward(q, k, v, out, options, {.lse = lse});
  for (std::size_t s = 0; s + 1 < q_starts.size(); ++s) {
    const std::int64_t n = q_starts[s + 1] - q_starts[s];
    Tensor alone(DType::f32, {1, 4, n, 16}), alone_lse(DType::f32, {1, 4, n});
    attention_forward(q.view().slice(2, q_starts[s], q_starts[s + 1]),
                      k.view().slice(2, k_starts[s], k_starts[s + 1]),
                      v.view().slice(2, k_starts[s], k_starts[s + 1]), alone,
                      {.causal = Causal::bottom_right}, {.lse = alone_lse});
    EXPECT_TRUE(same(alone, out.view().slice(2, q_starts[s], q_starts[s + 1]))) << s;
    EXPECT_TRUE(same(alone_lse, lse.view().slice(2, q_starts[s], q_starts[s + 1]))) << s;
  }
}

// Padded: keys past the length change neither the kernel nor the chunks.
TEST(Decode, PaddedSequencesHaveTheBitsThatTheyHaveAlone) {
  const std::vector<std::int64_t> lengths = {3000, 100, 700};
  const Tensor q = normal({3, 4, 2, 16}, 1), k = normal({3, 2, 3000, 16}, 2),
               v = normal({3, 2, 3000, 16}, 3);
  Tensor out(DType::f32, {3, 4, 2, 16});
  attention_forward(q, k, v, out, {.key_lengths = TensorView::of(lengths)});
  for (std::int64_t b = 0; b < 3; ++b) {
    const std::int64_t n = lengths[static_cast<std::size_t>(b)];
    Tensor alone(DType::f32, {1, 4, 2, 16});
    attention_forward(q.view().slice(0, b, b + 1), k.view().slice(0, b, b + 1).slice(2, 0, n),
                      v.view().slice(0, b, b + 1).slice(2, 0, n), alone);
    EXPECT_TRUE(same(alone, out.view().slice(0, b, b + 1))) << b;
  }
}

}  // namespace
}  // namespace qkv
