// Which calls go to the decode kernel, and that a sequence keeps its bits wherever it is.

#include "ops/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "kernels/attention/decode.h"
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

// Keys in one run, and in many that begin and end anywhere, each in memory of its own.
TEST(Decode, RunsMayBeginAnywhere) {
  constexpr std::int64_t kLength = 96, kBegin = 3, kEnd = 91, kRows = 12;
  std::mt19937 random(4);
  for (const DecodeKernel& kernel : decode_kernels()) {
    if (std::ranges::find(simd_targets(), kernel.target) == simd_targets().end()) continue;
    for (const auto& [D, Dv] : {std::pair{5, 3}, {64, 64}, {128, 128}, {70, 200}}) {
      std::vector<std::int8_t> keys, values;
      for (std::int64_t n = 0; n < kLength * D; ++n)
        keys.push_back(static_cast<std::int8_t>(random() % 255 - 127));
      for (std::int64_t n = 0; n < kLength * Dv; ++n)
        values.push_back(static_cast<std::int8_t>(random() % 255 - 127));
      const Tensor q = normal({kRows, decode_padded(D)}, 5), scales = normal({2, kLength}, 6);
      std::vector<float> query(q.as<float>().begin(), q.as<float>().end()), scale;
      for (std::int64_t n = 0; n < kRows * decode_padded(D); ++n) {
        query[static_cast<std::size_t>(n)] *= n % decode_padded(D) < D ? 0.1f : 0.0f;
      }
      for (const float x : scales.as<float>()) scale.push_back(std::abs(x) * 0.01f);
      std::vector<KeyRange> visible(kRows, {kBegin, kEnd});
      visible[4] = {kBegin + 6, kEnd};  // four, one, three, one, two, one
      visible[8] = visible[11] = {kBegin, kEnd - 9};
      std::vector<float> partial[2];
      for (const int cut : {0, 1}) {
        std::vector<std::vector<std::int8_t>> memory;
        std::vector<DecodeRun> runs;
        for (std::int64_t at = kBegin, end = 0; at < kEnd; at = end) {
          end = cut == 0 ? kEnd
                         : std::min<std::int64_t>(kEnd,
                                                  at + 1 + static_cast<std::int64_t>(random() % 9));
          memory.emplace_back(keys.begin() + at * D, keys.begin() + end * D);
          memory.emplace_back(values.begin() + at * Dv, values.begin() + end * Dv);
          runs.push_back({memory[memory.size() - 2].data(), memory.back().data(), scale.data() + at,
                          scale.data() + kLength + at, at, end});
        }
        std::vector<float> scores(static_cast<std::size_t>(decode_scratch(kRows, kLength)));
        std::vector<std::int32_t> integers(
            static_cast<std::size_t>(decode_integers(kRows, D, Dv) / 4));
        partial[cut].resize(static_cast<std::size_t>(kRows * decode_partial(Dv)));
        DecodeUnit u;
        u.length = kLength;
        u.runs = runs;
        u.storage = KVStorage::int8;
        u.D = u.key_stride = D;
        u.Dv = u.value_stride = Dv;
        u.rows = kRows;
        u.query = query.data();
        u.visible = visible.data();
        u.scores = scores.data();
        if (kernel.target == SimdTarget::avx512 && cpu_has("avx512vnni")) {
          u.integers = reinterpret_cast<std::byte*>(integers.data());
        }
        u.partial = partial[cut].data();
        kernel.run(u);
      }
      for (std::int64_t r = 0; r < kRows; ++r) {
        const auto at = static_cast<std::size_t>(r * decode_partial(Dv));
        EXPECT_EQ(std::memcmp(&partial[0][at], &partial[1][at], static_cast<std::size_t>(Dv) * 4),
                  0)
            << name_of(kernel.target) << " " << D << " " << Dv << " row " << r;
        EXPECT_NE(partial[0][at], 0);
        const auto rest = at + static_cast<std::size_t>(decode_padded(Dv));  // m and l
        EXPECT_EQ(partial[0][rest], partial[1][rest]);
        EXPECT_EQ(partial[0][rest + 1], partial[1][rest + 1]);
      }
    }
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
