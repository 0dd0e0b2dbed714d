// attention_forward among threads, forks and very large arrays.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "qkv/attention.h"
#include "qkv/cpu.h"
#include "tests/attention_cases.h"

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
