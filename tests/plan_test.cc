// Plans: what they say, and that running by one changes nothing.

#include "qkv/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/attention/fused.h"
#include "ops/attention_check.h"
#include "qkv/error.h"
#include "tests/attention_cases.h"
#include "tests/engines.h"

namespace qkv::testing {
namespace {

using ::testing::HasSubstr;

AttentionShape shape_of(const AttentionCase& c) {
  return {c.B, c.Hq, c.Hkv, c.Tq, c.Tk, c.D, c.Dv, c.dtype};
}

TEST(Plan, RunsWithTheBitsOfThePlainCall) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const AttentionCase c(seed);
    SCOPED_TRACE(c.description);
    const AttentionPlan plan = plan_attention(shape_of(c), c.options);
    attention_forward(c.query->view(), c.key->view(), c.value->view(), c.out->view(), c.options);
    const Tensor plain = Tensor::copy_of(c.out->view());
    c.out->poison();
    std::vector<std::byte> memory(static_cast<std::size_t>(plan.workspace) + 64, std::byte{0xff});
    void* aligned = memory.data();
    std::size_t room = memory.size();
    std::align(64, static_cast<std::size_t>(plan.workspace), aligned, room);
    attention_forward(plan, c.query->view(), c.key->view(), c.value->view(), c.out->view(),
                      c.options, {}, {static_cast<std::byte*>(aligned), room});
    const Tensor planned = Tensor::copy_of(c.out->view());
    ASSERT_EQ(std::memcmp(plain.view().data(), planned.view().data(),
                          static_cast<std::size_t>(plain.size()) * size_of(plain.dtype())),
              0);
  }
}

// The workspace is enough for any layout of what was planned, on any number of threads.
TEST(Plan, ItsWorkspaceIsEnough) {
  const auto channel_first = [](const Tensor& t) { return t.view().transpose(2, 3); };
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    for (const std::int64_t T : {1, 17, 64, 65, 70, 80, 197, 256, 400}) {
      for (const std::int64_t Dv : {24, 64}) {
        const Tensor qk(dtype, {1, 2, T, 64}), v(dtype, {1, 2, T, Dv});
        const Tensor qk_t(dtype, {1, 2, 64, T}), v_t(dtype, {1, 2, Dv, T});
        const TensorView keys[] = {qk.view(), channel_first(qk_t)};
        const TensorView values[] = {v.view(), channel_first(v_t)};
        Tensor out(dtype, v.shape()), out_t(dtype, v_t.shape());
        const MutableTensorView outs[] = {out.view(), out_t.view().transpose(2, 3)};
        for (const int threads : {1, 2, 3, 4, 7}) {
          const AttentionOptions options{.kernel = AttentionKernel::fused, .threads = threads};
          const AttentionPlan plan = plan_attention({1, 2, 2, T, T, 64, Dv, dtype}, options);
          for (int n = 0; n < 8; ++n) {
            const AttentionProblem p = check_attention(qk.view(), keys[n & 1], values[n >> 1 & 1],
                                                       outs[n >> 2], options, {});
            const int used = fused_threads(p, threads);
            const FusedSplit split = split_fused(p, *find_fused_kernel(p, plan.target), used);
            EXPECT_LE(fused_workspace(p, split, used), plan.workspace)
                << name_of(dtype) << " T " << T << " Dv " << Dv << ", " << threads
                << " threads, layout " << n;
          }
        }
      }
    }
  }
}

TEST(Plan, CountsWhatIsVisible) {
  const AttentionShape shape{2, 4, 2, 5, 5, 8, 16};
  EXPECT_EQ(plan_attention(shape).visible, 2 * 4 * 25);
  EXPECT_EQ(plan_attention(shape).flops, std::int64_t{2} * 2 * 4 * 25 * 24);
  EXPECT_EQ(plan_attention(shape, {.causal = Causal::aligned}).visible, 2 * 4 * 15);
  EXPECT_EQ(plan_attention(shape, {.window = {1, 0}}).visible, 2 * 4 * 9);
  const std::int64_t lengths[] = {0, 3};
  EXPECT_EQ(plan_attention(shape, {.key_lengths = TensorView::of(lengths)}).visible, 4 * 15);
  const std::int64_t prefix[] = {2, 5};
  EXPECT_EQ(
      plan_attention(shape, {.causal = Causal::aligned, .prefix = TensorView::of(prefix)}).visible,
      4 * (16 + 25));
  // Query and output, key and value.
  EXPECT_EQ(plan_attention(shape).bytes, 4 * (2 * 4 * 5 * 24 + 2 * 2 * 5 * 24));
}

TEST(Plan, IsForTheTargetThatWasAskedFor) {
  for (const SimdTarget target : simd_targets()) {
    const AttentionPlan plan = plan_attention({1, 2, 2, 100, 100, 64, 64}, {}, {target, 1});
    EXPECT_EQ(plan.target, target);
    EXPECT_EQ(plan.threads, 1);
    EXPECT_EQ(plan.kernel, AttentionKernel::fused);
    EXPECT_THAT(to_string(plan), HasSubstr(std::string(name_of(target))));
  }
}

TEST(Plan, SaysWhereTimeIsLost) {
  EXPECT_THAT(to_string(plan_attention({1, 1, 1, 1, 100, 64, 64})), HasSubstr("no query"));
  AttentionOptions reference;
  reference.kernel = AttentionKernel::reference;
  EXPECT_THAT(to_string(plan_attention({1, 1, 1, 9, 9, 8, 8}, reference)), HasSubstr("reference"));
}

// Less than 4 MB a thread, however long.
TEST(Plan, TakesLittleMemory) {
  for (const std::int64_t T : {1024, 16384, 1 << 20}) {
    for (const int threads : {1, 2}) {
      const AttentionPlan plan =
          plan_attention({1, 12, 12, T, T, 64, 64}, {.causal = Causal::aligned}, {{}, threads});
      EXPECT_LT(plan.workspace, threads * (std::int64_t{4} << 20)) << T;
    }
  }
}

TEST(Plan, RefusesWhatDoesNotFit) {
  EXPECT_THROW(plan_attention({1, 3, 2, 4, 4, 8, 8}), Error);   // heads
  EXPECT_THROW(plan_attention({1, 1, 1, -4, 4, 8, 8}), Error);  // a negative extent
  EXPECT_THROW(plan_attention({1, 1, 1, 4, 4, 0, 8}), Error);
  EXPECT_THROW(plan_attention({1 << 30, 1 << 30, 1, 1 << 30, 4, 8, 8}), Error);
  const AttentionPlan plan = plan_attention({1, 1, 1, 4, 4, 8, 8});
  Tensor q(DType::f32, {1, 1, 5, 8}), k(DType::f32, {1, 1, 4, 8}), v = k.clone();
  Tensor out(DType::f32, {1, 1, 5, 8});
  EXPECT_THROW(attention_forward(plan, q, k, v, out), Error);
}

}  // namespace
}  // namespace qkv::testing
