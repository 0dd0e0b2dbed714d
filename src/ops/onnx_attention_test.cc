// The corners that published data leave open; the published ones are in tests/conformance_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "qkv/error.h"
#include "qkv/onnx.h"
#include "tests/attention_cases.h"

namespace qkv {
namespace {

using ::testing::ElementsAre;
using testing::fill_normal;
using testing::Random;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor normal(DType dtype, const Dims& shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  Random random(seed);
  fill_normal(tensor, random);
  return tensor;
}

template <typename T>
Tensor tensor(const Dims& shape, std::initializer_list<T> values) {
  return Tensor::copy_of(TensorView::of(std::span<const T>(values.begin(), values.size()), shape));
}

Tensor mask_of(const Dims& shape, const std::string& rows) {
  Tensor mask(DType::boolean, shape);
  for (std::size_t i = 0; i < rows.size(); ++i) mask.as<bool>()[i] = rows[i] == '1';
  return mask;
}

std::string bytes(const TensorView& view) {
  const Tensor dense = Tensor::copy_of(view);
  return {static_cast<const char*>(dense.view().data()),
          static_cast<std::size_t>(dense.size()) * size_of(dense.dtype())};
}

// Y of a call with B = 2, Hq = Hkv = 1 whose queries are 0 and whose value of key j is the unit
// vector j: its row holds 1/n at each of the n keys that the query sees. "110" is keys 0 and 1.
class Visible {
 public:
  Visible(std::int64_t Tq, std::int64_t Tk, std::int64_t P = 0)
      : q_(DType::f32, {2, 1, Tq, 1}), k_(DType::f32, {2, 1, Tk, 1}), v_(one_hot(Tk)) {
    const TensorView key = k_, value = v_;
    inputs = {.Q = q_, .K = key.slice(2, P, Tk), .V = value.slice(2, P, Tk)};
    if (P > 0) {
      inputs.past_key = key.slice(2, 0, P);
      inputs.past_value = value.slice(2, 0, P);
    }
  }

  std::vector<std::string> rows(const OnnxAttentionAttributes& attributes = {}) const {
    Tensor Y(DType::f32, onnx_attention_shapes(inputs, attributes).Y);
    onnx_attention(inputs, attributes, {.Y = Y});
    std::vector<std::string> result;
    for (std::int64_t row = 0; row < Y.dim(0) * Y.dim(2); ++row) {
      const TensorView view = Y.view().select(0, row / Y.dim(2)).select(0, 0);
      result.push_back(pattern(view.select(0, row % Y.dim(2))));
    }
    return result;
  }

  OnnxAttentionInputs inputs;

 private:
  static Tensor one_hot(std::int64_t Tk) {
    Tensor v(DType::f32, {2, 1, Tk, Tk});
    for (std::int64_t j = 0; j < Tk; ++j) {
      v.view().set({0, 0, j, j}, 1);
      v.view().set({1, 0, j, j}, 1);
    }
    return v;
  }

  static std::string pattern(const TensorView& row) {
    std::string seen;
    std::int64_t count = 0;
    for (std::int64_t j = 0; j < row.dim(0); ++j) {
      seen += row.at({j}) > 0 ? '1' : '0';
      count += row.at({j}) > 0 ? 1 : 0;
    }
    for (std::int64_t j = 0; j < row.dim(0); ++j) {
      EXPECT_FLOAT_EQ(row.at({j}), seen[static_cast<std::size_t>(j)] == '1'
                                       ? 1.0 / static_cast<double>(count)
                                       : 0);
    }
    return seen;
  }

  Tensor q_, k_, v_;
};

TEST(OnnxAttention, MaskShorterThanTheKeysIsPaddedAsMasked) {
  Visible call(2, 4);
  const Tensor rank_1 = mask_of({3}, "101");
  call.inputs.attn_mask = rank_1;
  EXPECT_THAT(call.rows(), ElementsAre("1010", "1010", "1010", "1010"));
  const Tensor rank_2 = mask_of({2, 2}, "1001");
  call.inputs.attn_mask = rank_2;
  EXPECT_THAT(call.rows(), ElementsAre("1000", "0100", "1000", "0100"));
  const Tensor rank_4 = mask_of({2, 1, 1, 3}, "110011");
  call.inputs.attn_mask = rank_4;
  EXPECT_THAT(call.rows(), ElementsAre("1100", "1100", "0110", "0110"));
  const Tensor bias = tensor<float>({2, 3}, {0, -kInfinity, 0, -kInfinity, -kInfinity, -kInfinity});
  call.inputs.attn_mask = bias;
  EXPECT_THAT(call.rows(), ElementsAre("1010", "0000", "1010", "0000"));
}

TEST(OnnxAttention, LastMaskAxisOfOneIsPaddedNotStretched) {
  Visible call(1, 3);
  const Tensor one = mask_of({1, 1}, "1");
  call.inputs.attn_mask = one;
  EXPECT_THAT(call.rows(), ElementsAre("100", "100"));
  const Tensor none(DType::boolean, {1, 0});
  call.inputs.attn_mask = none;
  EXPECT_THAT(call.rows(), ElementsAre("000", "000"));
}

TEST(OnnxAttention, ShortMaskStretchedByStridesIsPaddedToo) {
  Visible call(2, 4);
  const Tensor row = mask_of({3}, "011");
  call.inputs.attn_mask = row.view().broadcast_to({2, 1, 2, 3});
  EXPECT_THAT(call.rows(), ElementsAre("0110", "0110", "0110", "0110"));
}

TEST(OnnxAttention, ShortFloatMaskPadsEveryFloatType) {
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const Tensor q = normal(dtype, {1, 1, 2, 4}, 1), k = normal(dtype, {1, 1, 5, 4}, 2);
    const Tensor short_bias = normal(dtype, {2, 3}, 3);
    Tensor Y(dtype, {1, 1, 2, 4}), cut(dtype, {1, 1, 2, 4});
    onnx_attention({.Q = q, .K = k, .V = k, .attn_mask = short_bias}, {}, {.Y = Y});
    const TensorView first = k.view().slice(2, 0, 3);
    onnx_attention({.Q = q, .K = first, .V = first, .attn_mask = short_bias}, {}, {.Y = cut});
    EXPECT_EQ(bytes(Y), bytes(cut)) << name_of(dtype);
  }
}

TEST(OnnxAttention, PaddedKeysAreNotReadButHaveRawScores) {
  Tensor k = normal(DType::f32, {1, 1, 3, 2}, 1), v = normal(DType::f32, {1, 1, 3, 2}, 2);
  const Tensor q = normal(DType::f32, {1, 1, 1, 2}, 3), mask = mask_of({2}, "11");
  v.view().set({0, 0, 2, 0}, std::numeric_limits<double>::quiet_NaN());
  Tensor Y(DType::f32, {1, 1, 1, 2}), qk(DType::f32, {1, 1, 1, 3});
  onnx_attention({.Q = q, .K = k, .V = v, .attn_mask = mask}, {}, {.Y = Y, .qk_matmul_output = qk});
  EXPECT_FALSE(std::isnan(Y.as<float>()[0]));
  EXPECT_TRUE(std::isfinite(qk.as<float>()[2]));
}

TEST(OnnxAttention, LengthsHideKeysAndPlaceTheQueries) {
  Visible call(2, 4);
  const Tensor lengths = tensor<std::int64_t>({2}, {3, 1});
  call.inputs.nonpad_kv_seqlen = lengths;
  EXPECT_THAT(call.rows(), ElementsAre("1110", "1110", "1000", "1000"));
  // The last query stands at the last key that there is; an offset may be negative.
  EXPECT_THAT(call.rows({.is_causal = true}), ElementsAre("1100", "1110", "0000", "1000"));
  EXPECT_THAT(call.rows({.left_window_size = 0}), ElementsAre("0110", "0010", "1000", "1000"));
  EXPECT_THAT(call.rows({.left_window_size = 0, .right_window_size = 0}),
              ElementsAre("0100", "0010", "0000", "1000"));
  const Tensor edges = tensor<std::int64_t>({2}, {0, 4});
  call.inputs.nonpad_kv_seqlen = edges;
  EXPECT_THAT(call.rows(), ElementsAre("0000", "0000", "1111", "1111"));
  EXPECT_THAT(call.rows({.is_causal = true}), ElementsAre("0000", "0000", "1110", "1111"));
}

TEST(OnnxAttention, LengthsAndShortMaskCompose) {
  Visible call(1, 4);
  const Tensor lengths = tensor<std::int64_t>({2}, {4, 2}), mask = mask_of({3}, "011");
  call.inputs.nonpad_kv_seqlen = lengths;
  call.inputs.attn_mask = mask;
  EXPECT_THAT(call.rows(), ElementsAre("0110", "0100"));
}

TEST(OnnxAttention, KeysPastTheLengthHaveNoScore) {
  const Tensor q = normal(DType::f32, {2, 1, 1, 2}, 1), k = normal(DType::f32, {2, 1, 3, 2}, 2);
  const Tensor lengths = tensor<std::int64_t>({2}, {1, 3});
  Tensor Y(DType::f32, {2, 1, 1, 2}), qk(DType::f32, {2, 1, 1, 3});
  onnx_attention({.Q = q, .K = k, .V = k, .nonpad_kv_seqlen = lengths}, {},
                 {.Y = Y, .qk_matmul_output = qk});
  EXPECT_TRUE(std::isfinite(qk.as<float>()[0]));
  EXPECT_EQ(qk.as<float>()[1], -kInfinity);
  EXPECT_EQ(qk.as<float>()[2], -kInfinity);
  EXPECT_TRUE(std::isfinite(qk.as<float>()[5]));
}

TEST(OnnxAttention, CausalAndWindowsCountFromThePast) {
  const Visible no_past(2, 4), past(2, 4, 2), more_keys(3, 3, 1);
  EXPECT_THAT(no_past.rows({.is_causal = true}), ElementsAre("1000", "1100", "1000", "1100"));
  EXPECT_THAT(past.rows({.is_causal = true}), ElementsAre("1110", "1111", "1110", "1111"));
  EXPECT_THAT(past.rows({.left_window_size = 1, .right_window_size = 0}),
              ElementsAre("0110", "0011", "0110", "0011"));
  EXPECT_THAT(past.rows({.right_window_size = 0}), ElementsAre("1110", "1111", "1110", "1111"));
  EXPECT_THAT(past.rows({.is_causal = true, .left_window_size = 0, .right_window_size = 9}),
              ElementsAre("0010", "0001", "0010", "0001"));
  EXPECT_THAT(more_keys.rows({.is_causal = true}),
              ElementsAre("110", "111", "111", "110", "111", "111"));
}

TEST(OnnxAttention, RankThreeWithGroupedHeadsAndWideValues) {
  const std::int64_t B = 2, Hq = 4, Hkv = 2, Tq = 3, Tk = 5, D = 3, Dv = 5;
  const Tensor q = normal(DType::f32, {B, Tq, Hq * D}, 1);
  // K and V out of one array, as a fused projection leaves them.
  const Tensor kv = normal(DType::f32, {B, Tk, Hkv * (D + Dv)}, 2);
  const OnnxAttentionInputs rank_3{.Q = q,
                                   .K = kv.view().slice(2, 0, Hkv * D),
                                   .V = kv.view().slice(2, Hkv * D, Hkv * (D + Dv))};
  const OnnxAttentionAttributes heads{
      .is_causal = true, .softcap = 2, .q_num_heads = Hq, .kv_num_heads = Hkv};
  const OnnxAttentionShapes shapes = onnx_attention_shapes(rank_3, heads);
  EXPECT_EQ(shapes.Y, (Dims{B, Tq, Hq * Dv}));
  EXPECT_EQ(shapes.present_key, (Dims{B, Hkv, Tk, D}));
  EXPECT_EQ(shapes.present_value, (Dims{B, Hkv, Tk, Dv}));
  EXPECT_EQ(shapes.qk_matmul_output, (Dims{B, Hq, Tq, Tk}));
  Tensor Y3(DType::f32, shapes.Y), key(DType::f32, shapes.present_key);
  onnx_attention(rank_3, heads, {.Y = Y3, .present_key = key});

  const auto split = [](const TensorView& view, std::int64_t H) {
    return Tensor::copy_of(view.unflatten(2, {H, view.dim(2) / H}).permute({0, 2, 1, 3}));
  };
  const Tensor q4 = split(q, Hq), k4 = split(rank_3.K, Hkv), v4 = split(rank_3.V, Hkv);
  Tensor Y4(DType::f32, {B, Hq, Tq, Dv});
  onnx_attention({.Q = q4, .K = k4, .V = v4}, {.is_causal = true, .softcap = 2}, {.Y = Y4});
  EXPECT_EQ(bytes(split(Y3, Hq)), bytes(Y4));
  EXPECT_EQ(bytes(key), bytes(k4));
  // Heads that only repeat the shape are no contradiction.
  Tensor again(DType::f32, {B, Hq, Tq, Dv});
  onnx_attention({.Q = q4, .K = k4, .V = v4}, heads, {.Y = again});
  EXPECT_EQ(bytes(again), bytes(Y4));
}

TEST(OnnxAttention, EveryModeInHalfPrecisionIsTheRoundedOne) {
  const Tensor q = normal(DType::f16, {1, 2, 3, 4}, 1), k = normal(DType::f16, {1, 2, 3, 4}, 2);
  const Tensor bias = normal(DType::f16, {3, 3}, 3);
  const OnnxAttentionInputs inputs{.Q = q, .K = k, .V = k, .attn_mask = bias};
  std::vector<std::string> seen;
  for (OnnxQkOutput mode : {OnnxQkOutput::raw, OnnxQkOutput::softcapped, OnnxQkOutput::biased,
                            OnnxQkOutput::probabilities}) {
    const OnnxAttentionAttributes attributes{
        .is_causal = true, .softcap = 0.5, .qk_matmul_output_mode = mode};
    Tensor Y(DType::f16, q.shape()), half(DType::f16, {1, 2, 3, 3}), wide(DType::f32, {1, 2, 3, 3});
    onnx_attention(inputs, attributes, {.Y = Y, .qk_matmul_output = half});
    onnx_attention(inputs, attributes, {.Y = Y, .qk_matmul_output = wide});
    EXPECT_EQ(bytes(half), bytes(Tensor::copy_of(wide, DType::f16)));
    EXPECT_THAT(seen, ::testing::Not(::testing::Contains(bytes(wide))));
    seen.push_back(bytes(wide));
    const float hidden = wide.as<float>()[1];  // query 0, key 1
    EXPECT_EQ(std::isfinite(hidden), mode != OnnxQkOutput::biased);
    EXPECT_EQ(hidden == 0, mode == OnnxQkOutput::probabilities);
  }
}

TEST(OnnxAttention, DoublePrecisionSoftmaxComputesInDouble) {
  const Tensor q = normal(DType::f32, {1, 1, 3, 8}, 1), k = normal(DType::f32, {1, 1, 9, 8}, 2);
  AttentionOptions f64;
  f64.accumulate = Accumulate::f64;
  Tensor Y(DType::f64, q.shape()), expected(DType::f64, q.shape()), natural(DType::f64, q.shape());
  onnx_attention({.Q = q, .K = k, .V = k}, {.softmax_precision = DType::f64}, {.Y = Y});
  attention_forward(q, k, k, expected, f64);
  EXPECT_EQ(bytes(Y), bytes(expected));
  onnx_attention({.Q = q, .K = k, .V = k}, {.softmax_precision = DType::f16}, {.Y = natural});
  attention_forward(q, k, k, expected);
  EXPECT_EQ(bytes(natural), bytes(expected));
}

// --- past and present -----------------------------------------------------------------------

class OnnxAttentionCache : public ::testing::Test {
 protected:
  static constexpr std::int64_t B = 2, H = 2, P = 3, Tn = 2, D = 4, Dv = 3;

  OnnxAttentionInputs inputs() const {
    const TensorView k = key_, v = value_;
    return {.Q = query_,
            .K = k.slice(2, P, P + Tn),
            .V = v.slice(2, P, P + Tn),
            .past_key = k.slice(2, 0, P),
            .past_value = v.slice(2, 0, P)};
  }

  std::string all_at_once() const {
    Tensor Y(DType::f32, {B, H, Tn, Dv});
    AttentionOptions options;
    options.causal = Causal::bottom_right;
    attention_forward(query_, key_, value_, Y, options);
    return bytes(Y);
  }

  const Tensor query_ = normal(DType::f32, {B, H, Tn, D}, 1);
  Tensor key_ = normal(DType::f32, {B, H, P + Tn, D}, 2);
  Tensor value_ = normal(DType::f32, {B, H, P + Tn, Dv}, 3);
  Tensor Y_ = Tensor(DType::f32, {B, H, Tn, Dv});
};

TEST_F(OnnxAttentionCache, PresentIsPastAndNew) {
  Tensor key(DType::f32, key_.shape()), value(DType::f32, value_.shape());
  onnx_attention(inputs(), {.is_causal = true},
                 {.Y = Y_, .present_key = key, .present_value = value});
  EXPECT_EQ(bytes(key), bytes(key_));
  EXPECT_EQ(bytes(value), bytes(value_));
  EXPECT_EQ(bytes(Y_), all_at_once());
}

TEST_F(OnnxAttentionCache, PresentNeedNotBeWanted) {
  onnx_attention(inputs(), {.is_causal = true}, {.Y = Y_});
  EXPECT_EQ(bytes(Y_), all_at_once());
  Tensor value(DType::f32, value_.shape()), again(DType::f32, Y_.shape());
  onnx_attention(inputs(), {.is_causal = true}, {.Y = again, .present_value = value});
  EXPECT_EQ(bytes(again), all_at_once());
  EXPECT_EQ(bytes(value), bytes(value_));
}

TEST_F(OnnxAttentionCache, CacheGrowsInPlace) {
  // A cache longer than present, its past already there: only the new tokens are written.
  Tensor key(DType::f32, {B, H, 9, D}), value(DType::f32, {B, H, 9, Dv});
  OnnxAttentionInputs in = inputs();
  copy(in.past_key, key.view().slice(2, 0, P));
  copy(in.past_value, value.view().slice(2, 0, P));
  in.past_key = key.view().slice(2, 0, P);
  in.past_value = value.view().slice(2, 0, P);
  const OnnxAttentionOutputs out{.Y = Y_,
                                 .present_key = key.view().slice(2, 0, P + Tn),
                                 .present_value = value.view().slice(2, 0, P + Tn)};
  onnx_attention(in, {.is_causal = true}, out);
  EXPECT_EQ(bytes(Y_), all_at_once());
  EXPECT_EQ(bytes(out.present_key), bytes(key_));
  EXPECT_EQ(bytes(out.present_value), bytes(value_));
}

TEST_F(OnnxAttentionCache, NewTokensMayBeInPlaceToo) {
  const std::string key = bytes(key_), value = bytes(value_);
  onnx_attention(inputs(), {.is_causal = true},
                 {.Y = Y_, .present_key = key_, .present_value = value_});
  EXPECT_EQ(bytes(Y_), all_at_once());
  EXPECT_EQ(bytes(key_), key);
  EXPECT_EQ(bytes(value_), value);
}

TEST_F(OnnxAttentionCache, PastThatIsMovedIsRefused) {
  Tensor cache(DType::f32, {B, H, 9, D}), value(DType::f32, value_.shape());
  OnnxAttentionInputs in = inputs();
  in.past_key = cache.view().slice(2, 1, 1 + P);
  try {
    onnx_attention(
        in, {}, {.Y = Y_, .present_key = cache.view().slice(2, 0, P + Tn), .present_value = value});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.subject(), "present_key");
    EXPECT_EQ(bytes(cache), std::string(bytes(cache).size(), '\0'));
  }
}

TEST_F(OnnxAttentionCache, EmptyPastAndNoPastAreTheSame) {
  OnnxAttentionInputs in = inputs();
  const Tensor no_key(DType::f32, {B, H, 0, D}), no_value(DType::f32, {B, H, 0, Dv});
  in.past_key = no_key;
  in.past_value = no_value;
  Tensor key(DType::f32, {B, H, Tn, D}), again(DType::f32, Y_.shape());
  onnx_attention(in, {.is_causal = true}, {.Y = Y_, .present_key = key});
  EXPECT_EQ(bytes(key), bytes(in.K));
  in.past_key = in.past_value = {};
  onnx_attention(in, {.is_causal = true}, {.Y = again});
  EXPECT_EQ(bytes(again), bytes(Y_));
}

TEST(OnnxAttention, EmptyDimensionsAreFine) {
  const Tensor q(DType::f32, {1, 2, 3, 4}), no_tokens(DType::f32, {1, 2, 0, 4});
  Tensor Y = normal(DType::f32, {1, 2, 3, 4}, 1), qk(DType::f32, {1, 2, 3, 0});
  onnx_attention({.Q = q, .K = no_tokens, .V = no_tokens}, {.is_causal = true},
                 {.Y = Y, .qk_matmul_output = qk});
  EXPECT_EQ(bytes(Y), bytes(Tensor(DType::f32, {1, 2, 3, 4})));
  Tensor none(DType::f32, {1, 2, 0, 4});
  onnx_attention({.Q = no_tokens, .K = q, .V = q}, {}, {.Y = none});
  const Tensor no_batch(DType::f32, {0, 3, 8}), lengths(DType::i64, {0});
  Tensor nothing(DType::f32, {0, 3, 8});
  onnx_attention({.Q = no_batch, .K = no_batch, .V = no_batch, .nonpad_kv_seqlen = lengths},
                 {.q_num_heads = 2, .kv_num_heads = 2}, {.Y = nothing});
}

}  // namespace
}  // namespace qkv
