#include "qkv/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

const std::vector<float> kLogits{0.5F, 2, -1, 2, 1, -HUGE_VALF};

std::map<std::int32_t, int> drawn(const SamplerOptions& options, int times) {
  Sampler sampler(options);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < times; ++i) ++counts[sampler(TensorView::of(kLogits))];
  return counts;
}

std::set<std::int32_t> tokens_of(const std::map<std::int32_t, int>& counts) {
  std::set<std::int32_t> tokens;
  for (const auto& [token, count] : counts) tokens.insert(token);
  return tokens;
}

TEST(Sampler, ColdIsTheMostLikelyFirstOfEquals) {
  EXPECT_EQ(tokens_of(drawn({.temperature = 0}, 20)), std::set<std::int32_t>{1});
  EXPECT_EQ(tokens_of(drawn({.top_k = 1}, 20)), std::set<std::int32_t>{1});
  EXPECT_EQ(tokens_of(drawn({.top_p = 1e-9}, 20)), std::set<std::int32_t>{1});
}

// Shares of 1/√n are met by 4 standard deviations, as a fair draw misses once in 16,000 times; the
// seed is fixed, so it is met or not, always.
TEST(Sampler, SharesAreThoseOfTheSoftmax) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    const int times = 20000;
    auto counts = drawn({.temperature = temperature, .seed = 7}, times);
    double total = 0;
    for (const float logit : kLogits) total += std::exp(logit / temperature);
    for (std::size_t i = 0; i < kLogits.size(); ++i) {
      const double share = std::exp(kLogits[i] / temperature) / total;
      const double deviation = std::sqrt(share * (1 - share) / times);
      EXPECT_NEAR(counts[static_cast<std::int32_t>(i)] / static_cast<double>(times), share,
                  4 * deviation);
    }
  }
}

TEST(Sampler, CutsAtTopKAndTopP) {
  EXPECT_EQ(tokens_of(drawn({.temperature = 5, .top_k = 3}, 2000)),
            (std::set<std::int32_t>{1, 3, 4}));
  // Shares at temperature 1: 1 and 3 have 0.38 each, 4 has 0.14, 0 has 0.085, 2 has 0.019.
  EXPECT_EQ(tokens_of(drawn({.top_p = 0.5}, 2000)), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(tokens_of(drawn({.top_p = 0.8}, 2000)), (std::set<std::int32_t>{1, 3, 4}));
  EXPECT_EQ(tokens_of(drawn({.top_k = 2, .top_p = 0.9}, 2000)), (std::set<std::int32_t>{1, 3}));
}

TEST(Sampler, TheSeedDecides) {
  const auto sequence = [](std::uint64_t seed) {
    Sampler sampler({.temperature = 2, .seed = seed});
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 30; ++i) tokens.push_back(sampler(TensorView::of(kLogits)));
    return tokens;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampler, Refuses) {
  const Tensor none(DType::f32, {1});
  const auto refused = [&](const char* subject, const SamplerOptions& options) {
    expect_refused(none, "Sampler", subject, [&] { Sampler{options}; });
  };
  refused("temperature", {.temperature = -1});
  refused("temperature", {.temperature = std::nan("")});
  refused("top_k", {.top_k = -1});
  refused("top_p", {.top_p = 0});
  refused("top_p", {.top_p = 1.1});
  Sampler sampler;
  const std::vector<float> nan{1, std::nanf("")}, low{-HUGE_VALF, -HUGE_VALF};
  expect_refused(none, "Sampler", "logits", [&] { sampler(TensorView::of(nan)); });
  expect_refused(none, "Sampler", "logits", [&] { sampler(TensorView::of(low)); });
  expect_refused(none, "Sampler", "logits", [&] { sampler(TensorView()); });
}

}  // namespace
}  // namespace qkv::testing
