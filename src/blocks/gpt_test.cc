#include "qkv/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qkv/vit.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

using ::testing::ElementsAre;

// Note 002: "Your journey starts", softmax(X·Xᵀ)·X, and the true digits of it.
TEST(SimpleAttention, NumbersOfTheNote) {
  const Tensor x = tensor_of({0.4, 0.1, 0.8, 0.5, 0.8, 0.6, 0.5, 0.8, 0.6}, {3, 3});
  Tensor z(DType::f64, {3, 3});
  Trace trace;
  simple_attention_forward(x, z, {.observer = trace.observer()});
  EXPECT_THAT(trace.names, ElementsAre("input", "scores", "weights", "output"));
  EXPECT_EQ(trace.shape("weights"), "[1, 1, 3, 3]");
  expect_values(trace.at("scores"), {0.81, 0.76, 0.76, 0.76, 1.25, 1.25, 0.76, 1.25, 1.25}, 1e-15);
  expect_values(trace.at("weights"),
                {0.34454, 0.32773, 0.32773, 0.23449, 0.38276, 0.38276, 0.23449, 0.38276, 0.38276},
                1e-5);
  expect_values(
      z, {0.465546, 0.558825, 0.668907, 0.476551, 0.635859, 0.646897, 0.476551, 0.635859, 0.646897},
      1e-5);
}

TEST(SimpleAttention, CausalShowsOnlyWhatHasBeenSaid) {
  const Tensor x = tensor_of({0.4, 0.1, 0.8, 0.5, 0.8, 0.6, 0.5, 0.8, 0.6}, {1, 3, 3});
  Tensor z(DType::f64, {1, 3, 3});
  Trace trace;
  simple_attention_forward(
      x, z, {.attention = {.causal = Causal::aligned}, .observer = trace.observer()});
  EXPECT_THAT(trace.names, ElementsAre("input", "scores", "masked", "weights", "output"));
  const double w10 = std::exp(0.76) / (std::exp(0.76) + std::exp(1.25)), w11 = 1 - w10;
  // The last row sees all three tokens, as without causality.
  expect_values(trace.at("weights"), {1, 0, 0, w10, w11, 0, 0.23449, 0.38276, 0.38276}, 1e-5);
  EXPECT_EQ(trace.at("masked").view().at({0, 0, 0, 1}), -HUGE_VAL);
  expect_values(z.view().select(1, 0), {0.4, 0.1, 0.8}, 1e-15);
  expect_values(z.view().select(1, 1),
                {0.4 * w10 + 0.5 * w11, 0.1 * w10 + 0.8 * w11, 0.8 * w10 + 0.6 * w11}, 1e-15);
}

TEST(SimpleAttention, Refuses) {
  Tensor x = random_tensor({3, 3}, 1), out(DType::f64, {3, 3});
  const auto refused = [&](const char* subject, const TensorView& in, const MutableTensorView& to) {
    expect_refused(out, "simple_attention_forward", subject,
                   [&] { simple_attention_forward(in, to); });
  };
  refused("x", {}, out);
  refused("x", x.view().select(0, 0), out);
  refused("out", x, x);
  refused("out", x, out.view().slice(0, 0, 2));
  const Tensor whole = Tensor(DType::i32, {3, 3});
  refused("x", whole, out);
}

struct Gpt {
  static constexpr std::int64_t d = 6, heads = 2;
  Tensor x = random_tensor({2, 5, d}, 1);
  Tensor w = random_tensor({d, 3 * d}, 2), b = random_tensor({3 * d}, 3);  // Conv1D: (in, out)
  Tensor pw = random_tensor({d, d}, 4), pb = random_tensor({d}, 5);
  Tensor out{DType::f64, {2, 5, d}};
  GptWeights weights = GptWeights::from_arrays(w, b, pw, pb, heads);
};

TEST(Gpt, Conv1dAndLinearAreTheSameWeights) {
  Gpt g;
  const Tensor lw = Tensor::copy_of(g.w.view().transpose(0, 1));
  const Tensor lpw = Tensor::copy_of(g.pw.view().transpose(0, 1));
  Tensor out(DType::f64, {2, 5, g.d});
  gpt_forward(g.weights, g.x, g.out);
  gpt_forward(GptWeights::from_arrays(lw, g.b, lpw, g.pb, g.heads), g.x, out);
  EXPECT_TRUE(same_bits(out, g.out));
}

TEST(Gpt, StepsAndShapes) {
  Gpt g;
  Trace trace;
  gpt_forward(g.weights, g.x, g.out, {.observer = trace.observer()});
  EXPECT_THAT(trace.names, ElementsAre("input", "qkv", "query", "key", "value", "scores", "masked",
                                       "weights", "heads", "concat", "output"));
  EXPECT_EQ(trace.shape("qkv"), "[2, 5, 18]");
  EXPECT_EQ(trace.shape("query"), "[2, 2, 5, 3]");
  EXPECT_EQ(trace.shape("weights"), "[2, 2, 5, 5]");
  EXPECT_EQ(trace.shape("concat"), "[2, 5, 6]");
  // [Q | K | V], heads in order inside each.
  EXPECT_EQ(trace.at("key").view().at({1, 1, 4, 2}), trace.at("qkv").view().at({1, 4, 6 + 3 + 2}));
}

TEST(Gpt, LaterTokensDoNotReachEarlierOnes) {
  Gpt g;
  gpt_forward(g.weights, g.x, g.out);
  Tensor x = g.x.clone(), out(DType::f64, {2, 5, g.d});
  for (std::int64_t c = 0; c < g.d; ++c) x.view().set({0, 3, c}, std::nan(""));
  gpt_forward(g.weights, x, out);
  EXPECT_EQ(max_difference(out.view().select(0, 0).slice(0, 0, 3),
                           g.out.view().select(0, 0).slice(0, 0, 3)),
            0);
  EXPECT_EQ(max_difference(out.view().select(0, 1), g.out.view().select(0, 1)), 0);
  EXPECT_TRUE(std::isnan(out.view().at({0, 3, 0})));
}

TEST(Gpt, WithoutCausalityItIsAVit) {
  Gpt g;
  Tensor out(DType::f64, {2, 5, g.d});
  const VitWeights vit{g.weights.c_attn, g.weights.c_proj, {}, {}, g.heads};
  vit_forward(vit, g.x, out, {.attention = {.causal = Causal::aligned}});
  gpt_forward(g.weights, g.x, g.out);
  EXPECT_TRUE(same_bits(out, g.out));
}

TEST(Gpt, Refuses) {
  Gpt g;
  const Tensor none, wrong = random_tensor({6, 17}, 1), square = random_tensor({5, 5}, 1);
  const auto no_arrays = [&](const char* subject, const Tensor& w, const Tensor& pw) {
    expect_refused(none, "GptWeights::from_arrays", subject,
                   [&] { GptWeights::from_arrays(w, g.b, pw, g.pb, 2); });
  };
  no_arrays("c_attn.weight", wrong, g.pw);
  no_arrays("c_attn.weight", none, g.pw);
  no_arrays("c_proj.weight", g.w, square);
  const auto refused = [&](const char* subject, const GptWeights& w,
                           const BlockOptions& options = {}) {
    expect_refused(g.out, "gpt_forward", subject, [&] { gpt_forward(w, g.x, g.out, options); });
  };
  GptWeights w = g.weights;
  w.heads = 4;
  refused("c_attn.weight", w);
  w.heads = -1;
  refused("heads", w);
  w = g.weights;
  w.c_proj.bias = g.b.view();
  refused("c_proj.bias", w);
  const Tensor lengths = tensor_of({5, 6}, {2}, DType::i64);
  refused("key_lengths[1]", g.weights, {.attention = {.key_lengths = lengths.view()}});
  expect_refused(g.out, "gpt_forward", "out", [&] { gpt_forward(g.weights, g.out, g.out); });
}

}  // namespace
}  // namespace qkv::testing
