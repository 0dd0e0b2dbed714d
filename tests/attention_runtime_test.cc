// attention_forward among threads, forks and very large arrays.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "qkv/attention.h"
#include "qkv/cpu.h"
#include "tests/attention_cases.h"
#include "tests/engines.h"

namespace qkv::testing {
namespace {

struct Inputs {
  Tensor q{DType::f32, {2, 3, 33, 17}}, k{DType::f32, {2, 3, 65, 17}}, v{DType::f32, {2, 3, 65, 9}};
  Inputs() {
    Random random(3);
    for (Tensor* t : {&q, &k, &v}) fill_normal(t->view(), random);
  }
  Tensor run(int threads) const {
    Tensor out(DType::f32, {2, 3, 33, 9});
    AttentionOptions options;
    options.causal = Causal::bottom_right;
    options.threads = threads;
    attention_forward(q, k, v, out, options);
    return out;
  }
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.view().data(), b.view().data(),
                     static_cast<std::size_t>(a.size()) * size_of(a.dtype())) == 0;
}

TEST(AttentionThreads, SameBitsInAHundredRepeats) {
  const Inputs inputs;
  const Tensor expected = inputs.run(1);
  for (int n = 0; n < 100; ++n) ASSERT_TRUE(same_bits(inputs.run(1 + n % 5), expected)) << n;
}

// Long enough that a head is several units, and the last units go in pieces.
TEST(AttentionThreads, ALongSequenceHasTheBitsOfItsParts) {
  constexpr std::int64_t kTokens = 613;
  Tensor q(DType::f32, {1, 3, kTokens, 20}), k(DType::f32, {1, 3, kTokens, 20}),
      v(DType::f32, {1, 3, kTokens, 11});
  Random random(7);
  for (Tensor* t : {&q, &k, &v}) fill_normal(t->view(), random);
  for (const SimdTarget target : simd_targets()) {
    for (const std::int64_t window : {-1, 100}) {
      AttentionOptions options;
      options.causal = Causal::aligned;
      options.window.left = window;
      options.target = target;
      const auto run = [&](std::int64_t first, std::int64_t count, int threads) {
        Tensor out(DType::f32, {1, 3, count, 11});
        options.threads = threads;
        options.offset = first;
        attention_forward(q.view().slice(2, first, first + count), k, v, out, options);
        return out;
      };
      const Tensor whole = run(0, kTokens, 1);
      for (const int threads : {2, 3, 7}) {
        EXPECT_TRUE(same_bits(run(0, kTokens, threads), whole)) << threads << " threads";
      }
      for (const std::int64_t first : {0, 17, 300, 571}) {
        for (const std::int64_t count : {9, 31, 42}) {
          const Tensor expected = Tensor::copy_of(whole.view().slice(2, first, first + count));
          EXPECT_TRUE(same_bits(run(first, count, 1), expected)) << count << " from " << first;
        }
      }
    }
  }
}

TEST(AttentionThreads, ConcurrentCallersDoNotDisturbEachOther) {
  const Inputs inputs;
  const Tensor expected = inputs.run(1);
  std::vector<int> right(4);
  {
    std::vector<std::jthread> callers;
    for (std::size_t c = 0; c < right.size(); ++c) {
      callers.emplace_back([&, c] {
        for (int n = 0; n < 10; ++n) right[c] += same_bits(inputs.run(2), expected);
      });
    }
  }
  for (int count : right) EXPECT_EQ(count, 10);
}

TEST(AttentionThreads, AForkedChildComputesTheSame) {
  const Inputs inputs;
  const Tensor expected = inputs.run(2);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    _exit(same_bits(inputs.run(2), expected) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// A product that overflows to -inf is a score like any other: only masks hide.
struct Infinite {
  static constexpr std::int64_t kTokens = 330;  // several blocks of keys, of the fused kernel
  Tensor q{DType::f32, {1, 2, kTokens, 1}}, k{DType::f32, {1, 2, kTokens, 1}},
      v{DType::f32, {1, 2, kTokens, 1}};
  Tensor out{DType::f32, {1, 2, kTokens, 1}}, weights{DType::f32, {1, 2, kTokens, kTokens}},
      lse{DType::f32, {1, 2, kTokens}};
  Infinite() {
    for (float& x : q.as<float>()) x = 1e20f;
    for (float& x : k.as<float>()) x = 1e-20f;
    for (float& x : v.as<float>()) x = 1;
  }
  void run(const Engine& engine, int threads) {
    AttentionOptions options;
    options.causal = Causal::aligned;
    options.scale = 1;
    options.kernel = engine.kernel;
    options.target = engine.target;
    options.threads = threads;
    AttentionStages stages;
    stages.weights = weights;
    stages.lse = lse;
    attention_forward(q, k, v, out, options, stages);
  }
  float weight(std::int64_t i, std::int64_t j) const {
    return static_cast<float>(weights.view().at({0, 1, i, j}));
  }
};

TEST(AttentionInfinite, AScoreOfMinusInfinityIsNotHidden) {
  for (const Engine& engine : engines()) {
    SCOPED_TRACE(engine.name);
    for (const int threads : {1, 2, 3}) {
      Infinite a;
      for (float& x : a.k.as<float>()) x = -1e20f;
      a.run(engine, threads);
      for (const float x : a.out.as<float>()) ASSERT_TRUE(std::isnan(x));
      for (const float x : a.lse.as<float>()) ASSERT_TRUE(std::isnan(x));
      for (std::int64_t i = 0; i < Infinite::kTokens; ++i) {
        ASSERT_TRUE(std::isnan(a.weight(i, i)) && std::isnan(a.weight(i, 0)));
        ASSERT_EQ(i + 1 < Infinite::kTokens ? a.weight(i, i + 1) : 0, 0);
      }
    }
  }
}

TEST(AttentionInfinite, ItsValueIsStillRead) {
  for (const Engine& engine : engines()) {
    SCOPED_TRACE(engine.name);
    for (const int threads : {1, 2, 3}) {
      Infinite a;
      a.k.as<float>()[Infinite::kTokens + 70] = -1e20f;
      a.v.as<float>()[Infinite::kTokens + 70] = std::numeric_limits<float>::quiet_NaN();
      a.run(engine, threads);
      for (std::int64_t i = 0; i < Infinite::kTokens; ++i) {
        ASSERT_EQ(std::isnan(a.out.view().at({0, 1, i, 0})), i >= 70) << i;
        ASSERT_EQ(a.weight(i, 70), 0) << i;
      }
    }
  }
}

TEST(AttentionInfinite, TheWeightOfANanIsNan) {
  for (const Engine& engine : engines()) {
    SCOPED_TRACE(engine.name);
    Infinite a;
    a.k.as<float>()[Infinite::kTokens + 1] = std::numeric_limits<float>::quiet_NaN();
    a.run(engine, 1);
    EXPECT_EQ(a.weight(0, 0), 1);
    EXPECT_EQ(a.weight(0, 1), 0);
    for (const std::int64_t j : {0, 1, 2}) EXPECT_TRUE(std::isnan(a.weight(2, j))) << j;
  }
}

// What was asked for twice is the same number: weights of a row add up to what an output of ones
// is.
// (Not decode's, whose weights come from the fused kernel.)
TEST(AttentionInfinite, WeightsAgreeWithTheOutputBesideASink) {
  for (const Engine& engine : engines()) {
    SCOPED_TRACE(engine.name);
    if (engine.kernel == AttentionKernel::decode) continue;
    for (const float size : {10.0f, 1000.0f, 50000.0f}) {
      Tensor q(DType::f32, {1, 1, 5, 1}), k(DType::f32, {1, 1, 200, 1}),
          v(DType::f32, {1, 1, 200, 1});
      Tensor out(DType::f32, {1, 1, 5, 1}), weights(DType::f32, {1, 1, 5, 200}),
          sink(DType::f32, {1});
      for (float& x : q.as<float>()) x = 1;
      for (float& x : k.as<float>()) x = size;
      for (float& x : v.as<float>()) x = 1;
      sink.as<float>()[0] = size + 2;
      AttentionOptions options;
      options.scale = 1;
      options.sinks = sink.view();
      options.kernel = engine.kernel;
      options.target = engine.target;
      AttentionStages stages;
      stages.weights = weights;
      attention_forward(q, k, v, out, options, stages);
      double sum = 0;
      for (std::int64_t j = 0; j < 200; ++j) sum += weights.view().at({0, 0, 3, j});
      // The output is a sum of 200 roundings; each weight has those of exp and of the quotient.
      EXPECT_NEAR(sum, out.view().at({0, 0, 3, 0}), (90 + 8) * 0x1p-24) << size;
    }
  }
}

TEST(AttentionLarge, IndicesPassTwoToThe31) {
  // Three tokens, 2^31 + 7 elements apart, in address space of which only their pages exist.
  constexpr std::int64_t kStep = (std::int64_t{1} << 31) + 7;
  constexpr std::size_t kBytes = (3 * kStep + 64) * sizeof(float);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space of " << kBytes << " bytes here";
  const MutableTensorView far(memory, DType::f32, {1, 1, 3, 2}, {0, 0, kStep, 1});
  const MutableTensorView far_out(static_cast<float*>(memory) + 8, DType::f32, {1, 1, 3, 2},
                                  {0, 0, kStep, 1});
  Tensor near(DType::f32, {1, 1, 3, 2}), near_out(DType::f32, {1, 1, 3, 2});
  Random random(5);
  fill_normal(near.view(), random);
  copy(near, far);
  attention_forward(near, near, near, near_out);
  attention_forward(far, far, far, far_out);
  EXPECT_TRUE(same_bits(Tensor::copy_of(far_out), near_out));
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace qkv::testing
