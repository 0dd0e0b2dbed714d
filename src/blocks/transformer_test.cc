#include "qkv/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

using ::testing::ElementsAre;

// Note 004: every shape at B = 32, T = 20, d_model = 512, h = 8.
TEST(Transformer, ShapesOfTheNote) {
  const Tensor x = random_tensor({32, 20, 512}, 1, 1, DType::f32);
  const Tensor w = random_tensor({512, 512}, 2, 0.04, DType::f32);
  const TransformerWeights weights{{w, {}}, {w, {}}, {w, {}}, {w, {}}, 8};
  Tensor out(DType::f32, {32, 20, 512});
  std::vector<std::string> steps;
  transformer_forward(weights, x, out,
                      {.observer = [&](std::string_view step, const TensorView& value) {
                        steps.push_back(std::string(step) + " " + to_string(value.shape()));
                      }});
  EXPECT_THAT(steps,
              ElementsAre("input [32, 20, 512]", "query_projection [32, 20, 512]",
                          "key_projection [32, 20, 512]", "value_projection [32, 20, 512]",
                          "query [32, 8, 20, 64]", "key [32, 8, 20, 64]", "value [32, 8, 20, 64]",
                          "scores [32, 8, 20, 20]", "weights [32, 8, 20, 20]",
                          "heads [32, 8, 20, 64]", "concat [32, 20, 512]", "output [32, 20, 512]"));
}

// Two heads of d_k = 2 and d_v = 3; the inputs have widths of their own.
struct Small {
  Tensor x = random_tensor({2, 3, 4}, 1), keys = random_tensor({2, 5, 6}, 2);
  Tensor values = random_tensor({2, 5, 7}, 3);
  Tensor wq = random_tensor({4, 4}, 4), bq = random_tensor({4}, 5);
  Tensor wk = random_tensor({4, 6}, 6), bk = random_tensor({4}, 7);
  Tensor wv = random_tensor({6, 7}, 8), bv = random_tensor({6}, 9);
  Tensor wo = random_tensor({9, 6}, 10), bo = random_tensor({9}, 11);
  Tensor out{DType::f64, {2, 3, 9}};
  TransformerWeights weights{{wq, bq}, {wk, bk}, {wv, bv}, {wo, bo}, 2};
};

// Element (b, t, o) of the output, written out from the definition.
double by_hand(const Small& s, std::int64_t b, std::int64_t t, std::int64_t o) {
  const auto project = [&](const Tensor& w, const Tensor& bias, const Tensor& in, std::int64_t row,
                           std::int64_t n) {
    double sum = bias.view().at({n});
    for (std::int64_t i = 0; i < w.dim(1); ++i) {
      sum += in.view().at({b, row, i}) * w.view().at({n, i});
    }
    return sum;
  };
  double result = s.bo.view().at({o});
  for (std::int64_t h = 0; h < 2; ++h) {
    double total = 0;
    std::vector<double> e(5);
    for (std::int64_t j = 0; j < 5; ++j) {
      double score = 0;
      for (std::int64_t d = h * 2; d < h * 2 + 2; ++d) {
        score += project(s.wq, s.bq, s.x, t, d) * project(s.wk, s.bk, s.keys, j, d);
      }
      e[static_cast<std::size_t>(j)] = std::exp(score / std::sqrt(2.0));
      total += e[static_cast<std::size_t>(j)];
    }
    for (std::int64_t j = 0; j < 5; ++j) {
      for (std::int64_t d = h * 3; d < h * 3 + 3; ++d) {
        result += s.wo.view().at({o, d}) * e[static_cast<std::size_t>(j)] / total *
                  project(s.wv, s.bv, s.values, j, d);
      }
    }
  }
  return result;
}

TEST(Transformer, CrossAttentionFromThreePlacesWithOwnWidths) {
  Small s;
  Trace trace;
  transformer_forward(s.weights, s.x, s.keys, s.values, s.out, {.observer = trace.observer()});
  EXPECT_EQ(trace.shape("key_input"), "[2, 5, 6]");
  EXPECT_EQ(trace.shape("value_input"), "[2, 5, 7]");
  EXPECT_EQ(trace.shape("query"), "[2, 2, 3, 2]");
  EXPECT_EQ(trace.shape("value"), "[2, 2, 5, 3]");
  EXPECT_EQ(trace.shape("scores"), "[2, 2, 3, 5]");
  EXPECT_EQ(trace.shape("heads"), "[2, 2, 3, 3]");
  EXPECT_EQ(trace.shape("concat"), "[2, 3, 6]");
  EXPECT_EQ(trace.shape("output"), "[2, 3, 9]");
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t o = 0; o < 9; ++o) {
        EXPECT_NEAR(s.out.view().at({b, t, o}), by_hand(s, b, t, o), 1e-12);
      }
    }
  }
}

TEST(Transformer, PackedInProjIsTheSeparateWeights) {
  const std::int64_t E = 6;
  const Tensor x = random_tensor({2, 4, E}, 1), memory = random_tensor({2, 5, E}, 2);
  const Tensor in = random_tensor({3 * E, E}, 3), in_bias = random_tensor({3 * E}, 4);
  const Tensor ow = random_tensor({E, E}, 5), ob = random_tensor({E}, 6);
  const auto packed = TransformerWeights::from_packed(in, in_bias, ow, ob, 3);
  EXPECT_EQ(packed.key.weight.data(), in.as<double>().data() + E * E);  // a view
  std::vector<Tensor> w, b;
  for (std::int64_t i = 0; i < 3; ++i) {
    w.push_back(Tensor::copy_of(in.view().slice(0, i * E, (i + 1) * E)));
    b.push_back(Tensor::copy_of(in_bias.view().slice(0, i * E, (i + 1) * E)));
  }
  const TransformerWeights apart{{w[0], b[0]}, {w[1], b[1]}, {w[2], b[2]}, {ow, ob}, 3};
  Tensor a(DType::f64, {2, 4, E}), c(DType::f64, {2, 4, E});
  transformer_forward(packed, x, a);
  transformer_forward(apart, x, c);
  EXPECT_TRUE(same_bits(a, c));
  transformer_forward(packed, x, memory, a);
  transformer_forward(apart, x, memory, memory, c);
  EXPECT_TRUE(same_bits(a, c));
  transformer_forward(packed, x, x, a);
  transformer_forward(packed, x, c);
  EXPECT_TRUE(same_bits(a, c));
}

// One key and value head for two query heads is the same as that head twice.
TEST(Transformer, GroupedHeads) {
  const Tensor x = random_tensor({1, 5, 6}, 1), wq = random_tensor({8, 6}, 2);
  const Tensor wk = random_tensor({2, 6}, 3), wv = random_tensor({3, 6}, 4);
  const Tensor wo = random_tensor({6, 12}, 5);
  Tensor wk4(DType::f64, {8, 6}), wv4(DType::f64, {12, 6});
  for (std::int64_t h = 0; h < 4; ++h) {
    copy(wk, wk4.view().slice(0, h * 2, h * 2 + 2));
    copy(wv, wv4.view().slice(0, h * 3, h * 3 + 3));
  }
  Tensor a(DType::f64, {1, 5, 6}), b(DType::f64, {1, 5, 6});
  transformer_forward({{wq, {}}, {wk, {}}, {wv, {}}, {wo, {}}, 4, 1}, x, a);
  transformer_forward({{wq, {}}, {wk4, {}}, {wv4, {}}, {wo, {}}, 4}, x, b);
  EXPECT_TRUE(same_bits(a, b));
}

TEST(Transformer, MaskHidesPaddingOfTheMemory) {
  Small s;
  const Tensor mask = tensor_of({1, 1, 1, 0, 0}, {5}, DType::boolean);
  const BlockOptions options{.attention = {.mask = mask.view()}};
  transformer_forward(s.weights, s.x, s.keys, s.values, s.out, options);
  Tensor shorter(DType::f64, {2, 3, 9});
  transformer_forward(s.weights, s.x, s.keys.view().slice(1, 0, 3), s.values.view().slice(1, 0, 3),
                      shorter);
  EXPECT_LE(max_difference(s.out, shorter), 1e-14);
}

TEST(Transformer, Refuses) {
  Small s;
  const auto refused = [&](const char* subject, const TransformerWeights& w, const TensorView& q,
                           const TensorView& k, const TensorView& v,
                           const BlockOptions& options = {}) {
    expect_refused(s.out, "transformer_forward", subject,
                   [&] { transformer_forward(w, q, k, v, s.out, options); });
  };
  TransformerWeights w = s.weights;
  w.heads = 3;
  refused("query.weight", w, s.x, s.keys, s.values);
  w.heads = 0;
  refused("heads", w, s.x, s.keys, s.values);
  w = s.weights;
  w.kv_heads = 3;
  refused("kv_heads", w, s.x, s.keys, s.values);
  w.kv_heads = 1;
  refused("key.weight", w, s.x, s.keys, s.values);
  w = s.weights;
  w.output.weight = s.wq.view();
  refused("output.weight", w, s.x, s.keys, s.values);
  w = s.weights;
  w.value.bias = s.bq.view();
  refused("value.bias", w, s.x, s.keys, s.values);
  refused("query", s.weights, {}, s.keys, s.values);
  refused("key", s.weights, s.x, {}, s.values);
  refused("value", s.weights, s.x, s.keys, s.values.view().slice(1, 0, 4));
  refused("key", s.weights, s.x, s.keys.view().slice(0, 0, 1), s.values);
  refused("key.weight", s.weights, s.x, s.values, s.values);
  refused("causal", s.weights, s.x, s.keys, s.values, {.attention = {.causal = Causal::aligned}});
  refused("threads", s.weights, s.x, s.keys, s.values, {.attention = {.threads = -2}});
  expect_refused(s.out, "transformer_forward", "out", [&] {
    transformer_forward(s.weights, s.x, s.keys, s.values,
                        MutableTensorView(s.keys.view().data(), DType::f64, {2, 3, 9}));
  });
  expect_refused(s.out, "transformer_forward", "memory",
                 [&] { transformer_forward(s.weights, s.x, s.keys.view().select(0, 0), s.out); });
  const Tensor none;
  expect_refused(none, "TransformerWeights::from_packed", "in_proj_weight",
                 [&] { TransformerWeights::from_packed(s.wv, {}, s.wo, {}, 2); });
  expect_refused(none, "TransformerWeights::from_packed", "out_proj_weight", [&] {
    TransformerWeights::from_packed(random_tensor({12, 4}, 1), {}, s.wo, {}, 2);
  });
}

}  // namespace
}  // namespace qkv::testing
