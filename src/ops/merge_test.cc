// merge_attention: parts of the keys, put together, are attention over all of them.

#include "qkv/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "qkv/attention.h"
#include "qkv/error.h"

namespace qkv {
namespace {

Tensor normal(const Dims& shape, unsigned seed) {
  Tensor x(DType::f32, shape);
  std::mt19937 random(seed);
  std::normal_distribution<float> numbers;
  for (float& value : x.as<float>()) value = numbers(random);
  return x;
}

TEST(MergeAttention, PartsAreTheWhole) {
  const Tensor q = normal({2, 4, 3, 8}, 1), k = normal({2, 2, 50, 8}, 2),
               v = normal({2, 2, 50, 6}, 3);
  const Tensor sinks = normal({4}, 4);
  Tensor whole(DType::f64, {2, 4, 3, 6}), whole_lse(DType::f64, {2, 4, 3});
  attention_forward(q, k, v, whole, {.sinks = sinks, .accumulate = Accumulate::f64},
                    {.lse = whole_lse});
  // Of different lengths, one of them empty; the second carries the sink.
  const std::vector<std::int64_t> cuts = {0, 7, 7, 33, 50};
  std::vector<Tensor> outs, lses;
  std::vector<AttentionPart> parts;
  for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
    outs.emplace_back(DType::f64, Dims{2, 4, 3, 6});
    lses.emplace_back(DType::f64, Dims{2, 4, 3});
  }
  for (std::size_t n = 0; n < outs.size(); ++n) {
    AttentionOptions options;
    options.accumulate = Accumulate::f64;
    if (n == 1) options.sinks = sinks;
    attention_forward(q, k.view().slice(2, cuts[n], cuts[n + 1]),
                      v.view().slice(2, cuts[n], cuts[n + 1]), outs[n], options, {.lse = lses[n]});
    parts.push_back({outs[n], lses[n]});
  }
  Tensor out(DType::f64, {2, 4, 3, 6}), lse(DType::f64, {2, 4, 3});
  merge_attention(parts, out, lse);
  // A few dozen roundings of 2⁻⁵³ on numbers of size about 1.
  for (std::size_t n = 0; n < 144; ++n) {
    EXPECT_NEAR(out.as<double>()[n], whole.as<double>()[n], 1e-14);
  }
  for (std::size_t n = 0; n < 24; ++n) {
    EXPECT_NEAR(lse.as<double>()[n], whole_lse.as<double>()[n], 1e-14);
  }
  // Into one of the parts, one after the other.
  for (std::size_t n = 1; n < parts.size(); ++n) {
    const AttentionPart two[] = {parts[0], parts[n]};
    merge_attention(two, outs[0], lses[0]);
  }
  for (std::size_t n = 0; n < 144; ++n) {
    EXPECT_NEAR(outs[0].as<double>()[n], whole.as<double>()[n], 1e-14);
  }
}

TEST(MergeAttention, NothingAndNaN) {
  Tensor out = normal({1, 1, 2, 3}, 1), lse = normal({1, 1, 2}, 2);
  merge_attention({}, out, lse);
  EXPECT_EQ(out.view().at({0, 0, 1, 2}), 0);
  EXPECT_EQ(lse.view().at({0, 0, 1}), -HUGE_VAL);
  // Rows that see nothing in any part; a NaN beside them stays where it is.
  Tensor a = normal({1, 1, 2, 3}, 3), a_lse(DType::f32, {1, 1, 2});
  a_lse.view().set({0, 0, 0}, -HUGE_VAL);
  a_lse.view().set({0, 0, 1}, std::nan(""));
  const AttentionPart parts[] = {{a, a_lse}, {a, a_lse}};
  merge_attention(parts, out, lse);
  EXPECT_EQ(out.view().at({0, 0, 0, 0}), 0);
  EXPECT_TRUE(std::isnan(out.view().at({0, 0, 1, 0})));
}

TEST(MergeAttention, RefusesWhatDoesNotFit) {
  Tensor out(DType::f32, {1, 1, 2, 3}), lse(DType::f32, {1, 1, 2}), wide(DType::f32, {1, 1, 2, 4});
  const AttentionPart wrong[] = {{wide, lse}};
  EXPECT_THROW(merge_attention(wrong, out), Error);
  const AttentionPart none[] = {{out, {}}};
  EXPECT_THROW(merge_attention(none, out), Error);
  const AttentionPart shifted[] = {{wide.view().slice(3, 1, 4), lse}};
  EXPECT_THROW(merge_attention(shifted, wide.view().slice(3, 0, 3)), Error);
  EXPECT_THROW(merge_attention({}, {}), Error);
}

}  // namespace
}  // namespace qkv
