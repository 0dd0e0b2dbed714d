// What attention means in each corner where well-known implementations disagree: a test a rule.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "qkv/qkv.h"

namespace qkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Values = std::vector<float>;

// A small problem: B = 1 and one head unless a test says more; values are given in full.
struct Small {
  std::int64_t Tq = 3, Tk = 3, D = 2, Dv = 2, Hq = 1, Hkv = 1, B = 1;
  Values q = {1, 0, 0, 1, 1, 1}, k = {1, 0, 0, 1, 1, 1}, v = {1, 2, 3, 4, 5, 6};
  AttentionOptions options;
  Values out, weights, scores, masked, lse;

  void run() {
    const auto n = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    out.assign(n(B * Hq * Tq * Dv), -77);
    weights.assign(n(B * Hq * Tq * Tk), -77);
    scores = masked = weights;
    lse.assign(n(B * Hq * Tq), -77);
    const Dims full{B, Hq, Tq, Tk};
    AttentionStages stages;
    stages.weights = MutableTensorView::of(weights, full);
    stages.masked = MutableTensorView::of(masked, full);
    stages.lse = MutableTensorView::of(lse, {B, Hq, Tq});
    attention_forward(TensorView::of(q, {B, Hq, Tq, D}), TensorView::of(k, {B, Hkv, Tk, D}),
                      TensorView::of(v, {B, Hkv, Tk, Dv}),
                      MutableTensorView::of(out, {B, Hq, Tq, Dv}), options, stages);
  }

  // Which keys have weight, a string a query: "110" sees keys 0 and 1.
  std::vector<std::string> seen() const {
    std::vector<std::string> result;
    for (std::int64_t i = 0; i < B * Hq * Tq; ++i) {
      std::string row;
      for (std::int64_t j = 0; j < Tk; ++j) {
        row += weights[static_cast<std::size_t>(i * Tk + j)] != 0 ? '1' : '0';
      }
      result.push_back(row);
    }
    return result;
  }
};

using Rows = std::vector<std::string>;

// All keys equal, so that every visible one has the same weight.
Small uniform(std::int64_t Tq, std::int64_t Tk, std::int64_t B = 1) {
  Small s;
  s.Tq = Tq;
  s.Tk = Tk;
  s.B = B;
  s.D = s.Dv = 1;
  s.q.assign(static_cast<std::size_t>(B * Tq), 0);
  s.k.assign(static_cast<std::size_t>(B * Tk), 0);
  s.v.resize(static_cast<std::size_t>(B * Tk));
  for (std::size_t j = 0; j < s.v.size(); ++j) s.v[j] = static_cast<float>(j);
  return s;
}

TEST(Semantics01Scale, DefaultsToTheWidthOfTheKeys) {
  Small a, b;
  a.Dv = b.Dv = 1;  // the width of the values does not matter
  a.v = b.v = {1, 2, 3};
  b.options.scale = 1 / std::sqrt(2.0);
  a.run();
  b.run();
  EXPECT_EQ(a.out, b.out);
}

TEST(Semantics01Scale, ZeroAveragesAndNegativesPreferTheOpposite) {
  Small s;
  s.options.scale = 0;
  s.run();
  EXPECT_FLOAT_EQ(s.out[0], 3);
  s.options.scale = -100;
  s.run();
  EXPECT_FLOAT_EQ(s.out[0], 3);  // key 1 is the one with the least product
}

TEST(Semantics02FullyMaskedRow, IsZeroWithLseMinusInfinity) {
  Small s;
  const bool mask[] = {true, false, true, false, false, false, true, true, true};
  s.options.mask = TensorView::of(mask, {3, 3});
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"101", "000", "111"}));
  EXPECT_EQ(s.out[2], 0);
  EXPECT_EQ(s.out[3], 0);
  EXPECT_EQ(s.lse[1], -kInfinity);
}

TEST(Semantics02FullyMaskedRow, LseIsTheSinkIfThereIsOne) {
  Small s = uniform(1, 2);
  const bool mask[] = {false, false};
  const float sink[] = {0.5f};
  s.options.mask = TensorView::of(mask, {2});
  s.options.sinks = TensorView::of(sink);
  s.run();
  EXPECT_EQ(s.out[0], 0);
  EXPECT_EQ(s.lse[0], 0.5f);
}

TEST(Semantics02FullyMaskedRow, IsDecidedByTheMaskNotByTheScores) {
  Small s = uniform(2, 2);
  const float bias[] = {-kInfinity, -kInfinity, -40000, -40000};
  s.options.bias = TensorView::of(bias, {2, 2});
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"00", "11"}));
  EXPECT_FLOAT_EQ(s.out[1], 0.5f);
  EXPECT_FLOAT_EQ(s.lse[1], -40000 + std::log(2.0f));
}

TEST(Semantics03MaskedIsNotRead, NanInAPartlyMaskedKeyStaysInItsRows) {
  Small s;
  s.options.causal = Causal::top_left;
  s.k[4] = kNaN;  // key 2: seen by query 2 only
  s.v[5] = kInfinity;
  s.run();
  for (int n = 0; n < 4; ++n) EXPECT_TRUE(std::isfinite(s.out[static_cast<std::size_t>(n)]));
  EXPECT_TRUE(std::isnan(s.out[4]));
  EXPECT_TRUE(std::isnan(s.out[5]));
}

TEST(Semantics03MaskedIsNotRead, NanThatIsAttendedGivesNan) {
  Small s;
  s.q[2] = kNaN;
  s.run();
  EXPECT_TRUE(std::isfinite(s.out[1]));
  EXPECT_TRUE(std::isnan(s.out[2]));  // not 0
  EXPECT_TRUE(std::isfinite(s.out[4]));
  Small alone = uniform(1, 1);
  alone.k[0] = kNaN;
  alone.run();
  EXPECT_TRUE(std::isnan(alone.out[0]));
}

TEST(Semantics04Causal, TopLeftAndBottomRight) {
  Small s = uniform(3, 4);
  s.options.causal = Causal::top_left;
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"1000", "1100", "1110"}));
  s.options.causal = Causal::bottom_right;
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"1100", "1110", "1111"}));
}

TEST(Semantics04Causal, BottomRightWithMoreQueriesThanKeysHidesTheFirstRows) {
  Small s = uniform(4, 2);
  s.options.causal = Causal::bottom_right;
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"00", "00", "10", "11"}));
}

TEST(Semantics04Causal, OffsetIsANumberOrOnePerBatchEntry) {
  Small s = uniform(1, 4, 2);
  s.options.causal = Causal::aligned;
  s.options.offset = 2;
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"1110", "1110"}));
  const std::int32_t offsets[] = {0, 3};
  s.options.offset.reset();
  s.options.offsets = TensorView::of(offsets);
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"1000", "1111"}));
}

TEST(Semantics04Causal, KeyLengthsDoNotMoveTheAlignment) {
  Small s = uniform(2, 4);
  const std::int64_t lengths[] = {3};
  s.options.causal = Causal::bottom_right;
  s.options.key_lengths = TensorView::of(lengths);
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"1110", "1110"}));
}

TEST(Semantics05Window, IsInclusiveOnBothSides) {
  Small s = uniform(5, 5);
  s.options.window = {1, 2};
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"11100", "11110", "01111", "00111", "00011"}));
  EXPECT_FLOAT_EQ(s.out[0], 1.0f);
  EXPECT_FLOAT_EQ(s.out[2], 2.5f);
  s.options.window = {0, 0};
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"10000", "01000", "00100", "00010", "00001"}));
  s.options.window = {-1, 0};
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"10000", "11000", "11100", "11110", "11111"}));
}

TEST(Semantics05Window, FollowsTheOffsetWithoutCausal) {
  Small s = uniform(1, 5);
  s.options.window = {1, 0};
  s.options.offset = 3;
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"00110"}));
}

TEST(Semantics05Window, HugeBoundsAreUnbounded) {
  Small s = uniform(2, 3);
  s.options.window = {std::numeric_limits<std::int64_t>::max(),
                      std::numeric_limits<std::int64_t>::max()};
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"111", "111"}));
}

TEST(Semantics06Prefix, IsUnitedWithCausalThenCutByLengths) {
  Small s = uniform(4, 4, 2);
  const std::int64_t prefix[] = {2, 3};
  const std::int64_t lengths[] = {4, 2};
  s.options.causal = Causal::aligned;
  s.options.prefix = TensorView::of(prefix);
  s.options.key_lengths = TensorView::of(lengths);
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"1100", "1100", "1110", "1111", "1100", "1100", "1100", "1100"}));
}

TEST(Semantics06Prefix, IsSeenOutsideOfTheWindow) {
  Small s = uniform(4, 4);
  const std::int64_t prefix[] = {1};
  s.options.causal = Causal::aligned;
  s.options.window = {0, -1};
  s.options.prefix = TensorView::of(prefix);
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"1000", "1100", "1010", "1001"}));
}

TEST(Semantics07Masks, BiasIsAddedAfterSoftcap) {
  Small s = uniform(1, 2);
  const float bias[] = {0, 100};
  s.options.softcap = 1;
  s.options.bias = TensorView::of(bias, {2});
  s.run();
  EXPECT_EQ(s.masked[1], 100);
}

TEST(Semantics07Masks, BroadcastRightAligned) {
  Small s = uniform(2, 3);
  const bool keys[] = {true, false, true};
  s.options.mask = TensorView::of(keys, {3});
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"101", "101"}));
  const bool queries[] = {true, false};
  s.options.mask = TensorView::of(queries, {2, 1});
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"111", "000"}));
}

TEST(Semantics07Masks, ABoolOfAnyNonZeroByteIsTrue) {
  Small s = uniform(1, 2);
  const std::uint8_t bytes[] = {0, 2};
  s.options.mask = TensorView(bytes, DType::boolean, {2});
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"01"}));
}

TEST(Semantics07Masks, FiniteMinusABillionIsAnOrdinaryNumber) {
  Small s = uniform(1, 2);
  const float bias[] = {-1e9f, -1e9f};
  s.options.bias = TensorView::of(bias, {2});
  s.run();
  EXPECT_FLOAT_EQ(s.out[0], 0.5f);
}

TEST(Semantics08KeyLengths, KeysBeyondDoNotExist) {
  Small s = uniform(1, 3, 2);
  const std::int64_t lengths[] = {0, 2};
  s.k[2] = s.v[2] = s.k[5] = s.v[5] = kNaN;
  s.options.key_lengths = TensorView::of(lengths);
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"000", "110"}));
  EXPECT_EQ(s.out[0], 0);
  EXPECT_FLOAT_EQ(s.out[1], 3.5f);
  EXPECT_EQ(s.lse[0], -kInfinity);
}

TEST(Semantics09Packed, NoTokenAttendsAcrossABoundary) {
  Small s = uniform(5, 6);
  const std::int64_t query_starts[] = {0, 2, 2, 5}, key_starts[] = {0, 2, 3, 6};
  s.options.query_starts = TensorView::of(query_starts);
  s.options.key_starts = TensorView::of(key_starts);
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"110000", "110000", "000111", "000111", "000111"}));
  s.options.causal = Causal::aligned;
  EXPECT_THROW(s.run(), Error);  // sequence 1: no query, one key
  s.options.causal = Causal::bottom_right;
  s.run();
  EXPECT_EQ(s.seen(), (Rows{"100000", "110000", "000100", "000110", "000111"}));
}

TEST(Semantics10GroupedHeads, GroupsAreContiguous) {
  Small s;
  s.Tq = s.Tk = s.D = s.Dv = 1;
  s.Hq = 4;
  s.Hkv = 2;
  s.q = {1, 1, 1, 1};
  s.k = {1, 1};
  s.v = {10, 20};
  s.run();
  EXPECT_EQ(s.out, (Values{10, 10, 20, 20}));
}

TEST(Semantics10Alibi, SubtractsSlopeTimesDistance) {
  Small s = uniform(2, 3);
  const float slope[] = {0.5f};
  s.options.alibi = TensorView::of(slope);
  s.options.offset = 1;
  s.run();
  EXPECT_EQ(s.masked, (Values{-0.5f, 0, -0.5f, -1, -0.5f, 0}));
}

TEST(Semantics10Sink, AddsToTheDenominatorOnlyAndIsNotScaled) {
  Small s = uniform(1, 1);
  const float sink[] = {std::log(3.0f)};
  s.v = {8};
  s.options.scale = 0.25;
  s.options.sinks = TensorView::of(sink);
  s.run();
  EXPECT_FLOAT_EQ(s.weights[0], 0.25f);
  EXPECT_FLOAT_EQ(s.out[0], 2);
  EXPECT_FLOAT_EQ(s.lse[0], std::log(4.0f));
}

TEST(Semantics11Layouts, ChannelFirstInAndOut) {
  // The same numbers as [T, D] and as [D, T].
  Small s;
  s.run();
  const Values q = {1, 0, 1, 0, 1, 1}, v = {1, 3, 5, 2, 4, 6};
  Values out(6);
  const auto channel_first = [](auto view) { return view.transpose(2, 3); };
  const auto qk = channel_first(TensorView::of(q, {1, 1, 2, 3}));
  attention_forward(qk, qk, channel_first(TensorView::of(v, {1, 1, 2, 3})),
                    channel_first(MutableTensorView::of(out, {1, 1, 2, 3})));
  EXPECT_EQ(out, (Values{s.out[0], s.out[2], s.out[4], s.out[1], s.out[3], s.out[5]}));
}

TEST(Semantics11Layouts, OutputMayLieBetweenTheInputsOfOneBuffer) {
  // [T, 4, D]: q, k, v and out of a token side by side.
  Small s;
  s.run();
  Values packed;
  for (int t = 0; t < 3; ++t) {
    for (const Values* part : {&s.q, &s.k, &s.v}) {
      for (int d = 0; d < 2; ++d) packed.push_back((*part)[static_cast<std::size_t>(2 * t + d)]);
    }
    packed.insert(packed.end(), {-1, -1});
  }
  const auto all = MutableTensorView::of(packed, {1, 1, 3, 8});
  attention_forward(all.slice(3, 0, 2), all.slice(3, 2, 4), all.slice(3, 4, 6), all.slice(3, 6, 8));
  for (std::size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(packed[8 * t + 6], s.out[2 * t]);
    EXPECT_EQ(packed[8 * t + 7], s.out[2 * t + 1]);
  }
  EXPECT_THROW(attention_forward(all.slice(3, 0, 2), all.slice(3, 2, 4), all.slice(3, 4, 6),
                                 all.slice(3, 5, 7)),
               Error);
}

TEST(Semantics12Precision, SixteenBitInputsKeepF32WeightsInside) {
  // 2048 equal weights of 1/2048 and values of 1: rounding P or the sum to f16 would show.
  const std::int64_t n = 2048;
  Tensor q(DType::f16, {1, 1, 1, 1}), k(DType::f16, {1, 1, n, 1}), v(DType::f16, {1, 1, n, 1});
  for (f16& x : v.as<f16>()) x = f16(1.0f);
  Tensor out(DType::f32, {1, 1, 1, 1});
  attention_forward(q, k, v, out);
  EXPECT_FLOAT_EQ(out.as<float>()[0], 1);
}

TEST(Semantics12Precision, LargeScoresAreFiniteAndRight) {
  for (float size : {89.0f, 1e4f, 1e30f, -1e30f}) {
    Small s = uniform(1, 2);
    s.q = {1};
    s.k = {size, size};
    s.run();
    EXPECT_FLOAT_EQ(s.out[0], 0.5f) << size;
    EXPECT_FLOAT_EQ(s.lse[0], size + std::log(2.0f)) << size;
    s.k = {size, size / 2};
    s.run();
    // The exponent is rounded to f32 once more: to |S| units in the last place of the result.
    const double expected = 1 / (1 + std::exp(0.5 * size));
    EXPECT_NEAR(s.out[0], expected, expected * (8 + std::abs(size)) * 0x1p-23) << size;
  }
}

TEST(Semantics13Stages, HiddenKeysHaveRawScores) {
  Small s = uniform(2, 3);
  s.q = {1, 2};
  s.k = {1, 2, 3};
  s.options.scale = 1;
  const std::int64_t lengths[] = {2};
  Values scores(6), masked(6), weights(6), out(2);
  AttentionStages stages;
  stages.scores = MutableTensorView::of(scores, {1, 1, 2, 3});
  stages.masked = MutableTensorView::of(masked, {1, 1, 2, 3});
  s.options.causal = Causal::top_left;
  s.options.key_lengths = TensorView::of(lengths);
  attention_forward(TensorView::of(s.q, {1, 1, 2, 1}), TensorView::of(s.k, {1, 1, 3, 1}),
                    TensorView::of(s.v, {1, 1, 3, 1}), MutableTensorView::of(out, {1, 1, 2, 1}),
                    s.options, stages);
  EXPECT_EQ(scores, (Values{1, 2, -kInfinity, 2, 4, -kInfinity}));
  EXPECT_EQ(masked, (Values{1, -kInfinity, -kInfinity, 2, 4, -kInfinity}));
}

TEST(Semantics14Empty, NoKeysGiveFullyMaskedRowsAndNoQueriesNothing) {
  Small s = uniform(2, 0);
  s.run();
  EXPECT_EQ(s.out, (Values{0, 0}));
  EXPECT_EQ(s.lse, (Values{-kInfinity, -kInfinity}));
  Small none = uniform(0, 2);
  none.run();
  EXPECT_TRUE(none.out.empty());
  Small no_batch = uniform(2, 2, 0);
  no_batch.run();
  EXPECT_TRUE(no_batch.out.empty());
  Tensor q(DType::f32, {1, 0, 2, 2}), k(DType::f32, {1, 0, 2, 2}), out(DType::f32, {1, 0, 2, 2});
  attention_forward(q, k, k, out);
}

TEST(Semantics15Reproducible, ScoresOfDenormalSizeLeaveTheCallersModeAlone) {
  // A caller's floating-point mode is its own: denormals before a call are denormals after it.
  volatile float tiny = std::numeric_limits<float>::denorm_min();
  Small s = uniform(1, 2);
  s.q = {1e-38f};
  s.k = {1e-3f, 0};
  s.run();
  EXPECT_GT(tiny * 2.0f, 0.0f);
}

}  // namespace
}  // namespace qkv
