#include "qkv/vit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

using ::testing::ElementsAre;

struct Vit {
  static constexpr std::int64_t B = 2, N = 5, dim = 12, heads = 3, head_dim = 4;
  Tensor x = random_tensor({B, N, dim}, 1);
  Tensor w = random_tensor({3 * dim, dim}, 2, 0.3), b = random_tensor({3 * dim}, 3);
  Tensor pw = random_tensor({dim, dim}, 4, 0.3), pb = random_tensor({dim}, 5);
  Tensor gain = random_tensor({head_dim}, 6), shift = random_tensor({head_dim}, 7);
  Tensor out{DType::f64, {B, N, dim}};
  VitWeights weights{{w, b}, {pw, pb}, {}, {}, heads};
};

// Note 003: reshape (B, N, 3, heads, head_dim) moves no number, permute (2, 0, 3, 1, 4).
TEST(Vit, LayoutOfTheNote) {
  Vit v;
  Trace trace;
  vit_forward(v.weights, v.x, v.out, {.observer = trace.observer()});
  EXPECT_THAT(trace.names, ElementsAre("input", "qkv", "split", "query", "key", "value", "scores",
                                       "weights", "heads", "concat", "output"));
  EXPECT_EQ(trace.shape("qkv"), "[2, 5, 36]");
  EXPECT_EQ(trace.shape("split"), "[2, 5, 3, 3, 4]");
  EXPECT_EQ(trace.shape("query"), "[2, 3, 5, 4]");
  EXPECT_EQ(trace.shape("scores"), "[2, 3, 5, 5]");
  EXPECT_EQ(trace.shape("heads"), "[2, 3, 5, 4]");
  EXPECT_EQ(trace.shape("concat"), "[2, 5, 12]");
  int role = 0;
  for (const char* step : {"query", "key", "value"}) {
    for (std::int64_t h = 0; h < 3; ++h) {
      for (std::int64_t d = 0; d < 4; ++d) {
        EXPECT_EQ(trace.at(step).view().at({1, h, 3, d}),
                  trace.at("qkv").view().at({1, 3, role * 12 + h * 4 + d}));
        EXPECT_EQ(trace.at("heads").view().at({1, h, 3, d}),
                  trace.at("concat").view().at({1, 3, h * 4 + d}));
      }
    }
    ++role;
  }
}

TEST(Vit, StepsAreViewsOfOneBuffer) {
  Vit v;
  const double *qkv = nullptr, *query = nullptr, *key = nullptr;
  const auto watch = [&](std::string_view step, const TensorView& value) {
    const auto* at = static_cast<const double*>(value.data());
    if (step == "qkv") qkv = at;
    if (step == "query") query = at;
    if (step == "key") key = at;
  };
  vit_forward(v.weights, v.x, v.out, {.observer = watch});
  EXPECT_EQ(query, qkv);
  EXPECT_EQ(key, qkv + v.dim);
}

TEST(Vit, NormsOfQueryAndKey) {
  Vit v;
  v.weights.q_norm = NormWeights{v.gain, v.shift, 1e-5};
  v.weights.k_norm = NormWeights{v.gain, {}, 1e-5, NormKind::rms};
  Trace trace;
  vit_forward(v.weights, v.x, v.out, {.observer = trace.observer()});
  const TensorView q = trace.at("query").view(), k = trace.at("key").view();
  double mean = 0, variance = 0, squares = 0;
  for (std::int64_t d = 0; d < 4; ++d) mean += q.at({1, 2, 3, d}) / 4;
  for (std::int64_t d = 0; d < 4; ++d) variance += std::pow(q.at({1, 2, 3, d}) - mean, 2) / 4;
  for (std::int64_t d = 0; d < 4; ++d) squares += std::pow(k.at({1, 2, 3, d}), 2) / 4;
  for (std::int64_t d = 0; d < 4; ++d) {
    EXPECT_NEAR(trace.at("query_norm").view().at({1, 2, 3, d}),
                (q.at({1, 2, 3, d}) - mean) / std::sqrt(variance + 1e-5) * v.gain.view().at({d}) +
                    v.shift.view().at({d}),
                1e-13);
    EXPECT_NEAR(trace.at("key_norm").view().at({1, 2, 3, d}),
                k.at({1, 2, 3, d}) / std::sqrt(squares + 1e-5) * v.gain.view().at({d}), 1e-13);
  }
  EXPECT_EQ(max_difference(trace.at("query_norm"), trace.at("query")) > 0.1, true);
}

TEST(Vit, SixteenBitInputsAreComputedInF32) {
  Vit v;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = Tensor::copy_of(v.x.view(), dtype), w = Tensor::copy_of(v.w.view(), dtype);
    const Tensor wide = Tensor::copy_of(x.view(), DType::f32);
    const VitWeights weights{{w, v.b}, {v.pw, v.pb}, {}, {}, v.heads};
    const Tensor bias = random_tensor({5, 5}, 9, 1, dtype);
    const Tensor wide_bias = Tensor::copy_of(bias.view(), DType::f32);
    Tensor from_narrow(DType::f32, {2, 5, 12}), from_wide(DType::f32, {2, 5, 12});
    Tensor rounded(dtype, {2, 5, 12});
    vit_forward(weights, x, from_narrow, {.attention = {.bias = bias.view()}});
    vit_forward(weights, wide, from_wide, {.attention = {.bias = wide_bias.view()}});
    vit_forward(weights, x, rounded, {.attention = {.bias = bias.view()}});
    EXPECT_TRUE(same_bits(from_narrow, from_wide));
    EXPECT_TRUE(same_bits(rounded, Tensor::copy_of(from_narrow.view(), dtype)));
  }
}

TEST(Vit, AccumulateF64HoldsForTheWholeBlock) {
  Vit v;
  const Tensor x = Tensor::copy_of(v.x.view(), DType::f32);  // the same numbers
  Tensor out(DType::f64, {2, 5, 12});
  Trace trace;
  vit_forward(v.weights, v.x, v.out);
  vit_forward(v.weights, x, out,
              {.attention = {.accumulate = Accumulate::f64}, .observer = trace.observer()});
  EXPECT_TRUE(same_bits(out, v.out));
  EXPECT_EQ(trace.at("qkv").dtype(), DType::f64);
}

TEST(Vit, SameBitsForAnyNumberOfThreads) {
  const Tensor x = random_tensor({1, 150, 24}, 1, 1, DType::f32);
  const Tensor w = random_tensor({72, 24}, 2, 0.3), pw = random_tensor({24, 24}, 3, 0.3);
  Tensor one(DType::f32, {1, 150, 24});
  vit_forward({{w, {}}, {pw, {}}, {}, {}, 4}, x, one, {.threads = 1});
  for (const int threads : {0, 2, 3, 7}) {
    Tensor many(DType::f32, {1, 150, 24});
    vit_forward({{w, {}}, {pw, {}}, {}, {}, 4}, x, many, {.threads = threads});
    EXPECT_TRUE(same_bits(many, one)) << threads;
  }
}

TEST(Vit, MaskedTokensAreNotRead) {
  Vit v;
  const Tensor lengths = tensor_of({5, 3}, {2}, DType::i32);
  const BlockOptions options{.attention = {.key_lengths = lengths.view()}};
  vit_forward(v.weights, v.x, v.out, options);
  Tensor x = v.x.clone(), out(DType::f64, {2, 5, 12});
  for (std::int64_t c = 0; c < 12; ++c) x.view().set({1, 4, c}, std::nan(""));
  vit_forward(v.weights, x, out, options);
  EXPECT_EQ(max_difference(out.view().select(0, 1).slice(0, 0, 4),
                           v.out.view().select(0, 1).slice(0, 0, 4)),
            0);
}

TEST(Vit, ObserverThatThrowsLeavesTheOutputAlone) {
  Vit v;
  const auto stop = [](std::string_view step, const TensorView&) {
    if (step == "concat") throw std::runtime_error("enough");
  };
  const Tensor before = v.out.clone();
  EXPECT_THROW(vit_forward(v.weights, v.x, v.out, {.observer = stop}), std::runtime_error);
  EXPECT_TRUE(same_bits(before, v.out));
}

TEST(Vit, EmptyBatchAndSequence) {
  Vit v;
  Tensor x(DType::f32, {0, 5, 12}), out(DType::f32, {0, 5, 12});
  EXPECT_NO_THROW(vit_forward(v.weights, x, out));
  Tensor x2(DType::f32, {2, 0, 12}), out2(DType::f32, {2, 0, 12});
  EXPECT_NO_THROW(vit_forward(v.weights, x2, out2));
}

TEST(Vit, Refuses) {
  Vit v;
  const auto refused = [&](const char* subject, const VitWeights& w, const TensorView& x,
                           const MutableTensorView& out, const BlockOptions& options = {}) {
    expect_refused(v.out, "vit_forward", subject, [&] { vit_forward(w, x, out, options); });
  };
  VitWeights w = v.weights;
  w.heads = 5;
  refused("qkv.weight", w, v.x, v.out);
  w.heads = std::numeric_limits<std::int64_t>::max();
  refused("qkv.weight", w, v.x, v.out);
  w.heads = 0;
  refused("heads", w, v.x, v.out);
  w = v.weights;
  w.q_norm = NormWeights{v.b, {}};
  refused("q_norm.weight", w, v.x, v.out);
  w.q_norm = NormWeights{v.gain, v.shift, -1};
  refused("q_norm.eps", w, v.x, v.out);
  w = v.weights;
  w.proj = {v.w, {}};
  refused("out", w, v.x, v.out);  // [36, 12] is a projection to 36, but out has 12
  w.proj.weight = v.w.view().transpose(0, 1);
  refused("proj.weight", w, v.x, v.out);
  w = v.weights;
  w.qkv = {};
  refused("qkv.weight", w, v.x, v.out);
  refused("x", v.weights, v.x.view().select(0, 0), v.out);
  refused("x", v.weights, {}, v.out);
  refused("qkv.weight", v.weights, v.x.view().slice(2, 0, 11), v.out);
  refused("out", v.weights, v.x, v.x);
  refused("out", v.weights, v.x, {});
  refused("out", v.weights, v.x,
          MutableTensorView(v.out.view().data(), DType::f64, {2, 5, 12}, {60, 12, 0}));
  refused("out", v.weights, v.x, MutableTensorView(v.w.view().data(), DType::f64, {2, 5, 12}));
  refused("offset", v.weights, v.x, v.out,
          {.attention = {.causal = Causal::top_left, .offset = 1}});
}

}  // namespace
}  // namespace qkv::testing
