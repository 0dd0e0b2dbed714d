// Every misuse of attention_forward is refused, says what was expected and what was found, and
// leaves the outputs alone.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "qkv/attention.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using ::testing::HasSubstr;

// A call that is right; tests make one thing of it wrong.
struct Call {
  static constexpr float kUntouched = 12345;
  Tensor q{DType::f32, {2, 4, 3, 8}}, k{DType::f32, {2, 2, 5, 8}}, v{DType::f32, {2, 2, 5, 6}};
  Tensor o{DType::f32, {2, 4, 3, 6}}, w{DType::f32, {2, 4, 3, 5}};
  TensorView query = q, key = k, value = v;
  MutableTensorView out = o;
  AttentionOptions options;
  AttentionStages stages;

  Call() {
    for (float& x : o.as<float>()) x = kUntouched;
    for (float& x : w.as<float>()) x = kUntouched;
    stages.weights = w;
  }

  void forward() const { attention_forward(query, key, value, out, options, stages); }

  // Expects an Error about `subject` whose message has `expected` and `found`.
  void expect_refused(const std::string& subject, const std::string& expected,
                      const std::string& found, ErrorKind kind = ErrorKind::value) const {
    try {
      forward();
      ADD_FAILURE() << "not refused: " << subject << ", expected " << expected;
    } catch (const Error& e) {
      EXPECT_EQ(e.where(), "attention_forward");
      EXPECT_EQ(e.subject(), subject) << e.what();
      EXPECT_THAT(e.expected(), HasSubstr(expected)) << e.what();
      EXPECT_THAT(e.found(), HasSubstr(found)) << e.what();
      EXPECT_EQ(e.kind(), kind) << e.what();
      EXPECT_THAT(std::string(e.what()), HasSubstr("[attention_forward] " + subject));
    }
    for (float x : o.as<float>()) ASSERT_EQ(x, kUntouched);
    for (float x : w.as<float>()) ASSERT_EQ(x, kUntouched);
  }
};

TEST(AttentionMisuse, TheCallItselfIsRight) {
  Call call;
  EXPECT_NO_THROW(call.forward());
  EXPECT_EQ(call.o.as<float>()[0], 0);
}

TEST(AttentionMisuse, MissingTensors) {
  for (auto [name, view] : {std::pair{"query", &Call::query}, std::pair{"key", &Call::key},
                            std::pair{"value", &Call::value}}) {
    Call call;
    call.*view = TensorView();
    call.expect_refused(name, "a tensor", "none");
  }
  Call call;
  call.out = MutableTensorView();
  call.expect_refused("out", "a tensor", "none");
}

TEST(AttentionMisuse, NullPointersNeverBecomeAView) {
  EXPECT_THROW(TensorView(nullptr, DType::f32, {1, 1, 2, 2}), Error);
  EXPECT_NO_THROW(TensorView(nullptr, DType::f32, {1, 1, 0, 2}));
}

TEST(AttentionMisuse, Shapes) {
  Call call;
  call.query = call.query.select(0, 0);
  call.expect_refused("query", "4 dimensions [B, Hq, Tq, D]", "[4, 3, 8]");
  call = Call();
  call.key = call.key.slice(3, 0, 7);
  call.expect_refused("key", "[2, Hkv, Tk, 8]", "[2, 2, 5, 7]");
  call = Call();
  call.key = call.key.slice(0, 0, 1);
  call.expect_refused("key", "[2, Hkv, Tk, 8]", "[1, 2, 5, 8]");
  call = Call();
  call.value = call.value.slice(2, 0, 4);
  call.expect_refused("value", "[2, 2, 5, 6]", "[2, 2, 4, 6]");
  call = Call();
  call.out = call.out.slice(3, 0, 5);
  call.expect_refused("out", "[2, 4, 3, 6]", "[2, 4, 3, 5]");
  call = Call();
  call.query = call.query.slice(3, 0, 0);
  call.expect_refused("query", "D of 1 or more", "[2, 4, 3, 0]");
}

TEST(AttentionMisuse, HeadsThatDoNotDivide) {
  Call call;
  call.query = call.query.slice(1, 0, 3);
  call.out = call.out.slice(1, 0, 3);
  call.stages = {};
  call.expect_refused("key", "divides the query's 3", "2 heads");
}

TEST(AttentionMisuse, Dtypes) {
  Call call;
  const Tensor integers(DType::i32, {2, 4, 3, 8});
  call.query = integers;
  call.expect_refused("query", "dtype f32 or f64 or f16 or bf16", "i32", ErrorKind::type);
  call = Call();
  const Tensor half(DType::f16, {2, 2, 5, 8});
  call.key = half;
  call.expect_refused("key", "dtype f32", "f16", ErrorKind::type);
  call = Call();
  Tensor narrow(DType::bf16, {2, 4, 3, 6});
  call.out = narrow;
  call.expect_refused("out", "dtype f32 or f64", "bf16", ErrorKind::type);
}

TEST(AttentionMisuse, Numbers) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  for (double bad : {nan, infinity, -infinity}) {
    Call call;
    call.options.scale = bad;
    call.expect_refused("scale", "a finite number", fmt::format("{}", bad));
  }
  for (double bad : {nan, infinity, 0.0, -1.0}) {
    Call call;
    call.options.softcap = bad;
    call.expect_refused("softcap", "above 0", fmt::format("{}", bad));
  }
  Call call;
  call.options.window = {-2, 0};
  call.expect_refused("window.left", "-1 (unbounded) or more", "-2");
  call.options.window = {0, -3};
  call.expect_refused("window.right", "-1 (unbounded) or more", "-3");
  call = Call();
  call.options.threads = -1;
  call.expect_refused("threads", "0 (default) or more", "-1");
}

TEST(AttentionMisuse, CausalWithoutAnAlignment) {
  Call call;
  call.options.causal = Causal::aligned;
  call.expect_refused("causal", "top_left", "Tq = 3 and Tk = 5");
  call.expect_refused("causal", "bottom_right", "Tq = 3 and Tk = 5");
  call.options.offset = 0;
  EXPECT_NO_THROW(call.forward());
}

TEST(AttentionMisuse, OffsetWithANamedAlignment) {
  for (Causal causal : {Causal::top_left, Causal::bottom_right}) {
    Call call;
    call.options.causal = causal;
    call.options.offset = 1;
    call.expect_refused("offset", "either an offset or a named alignment", "both");
  }
}

TEST(AttentionMisuse, OffsetTwice) {
  Call call;
  const std::int64_t offsets[] = {0, 1};
  call.options.offset = 1;
  call.options.offsets = TensorView::of(offsets);
  call.expect_refused("offset", "a number or one per sequence", "both");
}

TEST(AttentionMisuse, OffsetsThatWouldOverflow) {
  for (std::int64_t bad :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    Call call;
    call.options.offset = bad;
    call.expect_refused("offset", "between -2^61 and 2^61", fmt::format("{}", bad));
  }
}

TEST(AttentionMisuse, BadNumberInALaterBatchEntry) {
  const std::int64_t too_long[] = {5, 6}, negative[] = {0, -1};
  Call call;
  call.options.key_lengths = TensorView::of(too_long);
  call.expect_refused("key_lengths[1]", "[0, 5]", "6");
  call.options.key_lengths = TensorView::of(negative);
  call.expect_refused("key_lengths[1]", "[0, 5]", "-1");
  call = Call();
  call.options.prefix = TensorView::of(negative);
  call.expect_refused("prefix[1]", "0 or more", "-1");
  const std::int64_t far[] = {0, std::numeric_limits<std::int64_t>::max()};
  call = Call();
  call.options.offsets = TensorView::of(far);
  call.expect_refused("offsets[1]", "between -2^61 and 2^61", "9223372036854775807");
}

TEST(AttentionMisuse, PerSequenceArraysOfAnotherShapeOrDtype) {
  const std::int64_t three[] = {1, 1, 1};
  const float floats[] = {1, 1};
  Call call;
  call.options.key_lengths = TensorView::of(three);
  call.expect_refused("key_lengths", "[B] [2]", "[3]");
  call.options.key_lengths = TensorView::of(floats);
  call.expect_refused("key_lengths", "dtype i32 or i64", "f32", ErrorKind::type);
}

TEST(AttentionMisuse, MasksThatDoNotBroadcast) {
  Call call;
  const Tensor mask(DType::boolean, {3, 4});
  call.options.mask = mask;
  call.expect_refused("mask", "broadcasts to [B, Hq, Tq, Tk] [2, 4, 3, 5]", "[3, 4]");
  const Tensor five(DType::boolean, {1, 2, 4, 3, 5});
  call.options.mask = five;
  call.expect_refused("mask", "broadcasts to", "[1, 2, 4, 3, 5]");
  call = Call();
  const Tensor bytes(DType::u8, {3, 5});
  call.options.mask = bytes;
  call.expect_refused("mask", "dtype bool", "u8", ErrorKind::type);
  call = Call();
  const Tensor bias(DType::f64, {3, 5});
  call.options.bias = bias;
  call.expect_refused("bias", "dtype f32", "f64", ErrorKind::type);
  call = Call();
  const Tensor heads(DType::f32, {3, 1, 5});
  call.options.bias = heads;
  call.expect_refused("bias", "broadcasts to", "[3, 1, 5]");
}

TEST(AttentionMisuse, PerHeadArrays) {
  Call call;
  const Tensor three(DType::f32, {3});
  call.options.alibi = three;
  call.expect_refused("alibi", "[Hq] [4]", "[3]");
  call = Call();
  call.options.sinks = three;
  call.expect_refused("sinks", "[Hq] [4]", "[3]");
}

// The packed form of the same call.
struct PackedCall : Call {
  std::int64_t queries[3] = {0, 1, 3}, keys[3] = {0, 4, 5};
  PackedCall() {
    query = query.slice(0, 0, 1);
    key = key.slice(0, 0, 1);
    value = value.slice(0, 0, 1);
    out = out.slice(0, 0, 1);
    stages = {};
    options.query_starts = TensorView::of(queries);
    options.key_starts = TensorView::of(keys);
  }
};

TEST(AttentionMisuse, PackedStarts) {
  PackedCall call;
  call.keys[0] = 1;
  call.expect_refused("key_starts", "0 as the first", "1");
  call.keys[0] = 0;
  call.keys[1] = 6;
  call.expect_refused("key_starts", "do not decrease", "5 after 6 at [2]");
  call.keys[1] = 4;
  call.keys[2] = 4;
  call.expect_refused("key_starts", "5 (all tokens) as the last", "4");
  call.keys[2] = 5;
  call.options.key_starts = call.options.key_starts.slice(0, 0, 0);
  call.expect_refused("key_starts", "at least one number", "none");
  const std::int64_t one_sequence[] = {0, 5};
  call.options.key_starts = TensorView::of(one_sequence);
  call.expect_refused("key_starts", "3 numbers", "2");
  call.options.key_starts = TensorView();
  call.expect_refused("key_starts", "together", "only one");
  Call batch;
  batch.options.query_starts = batch.options.key_starts = call.options.query_starts;
  batch.expect_refused("query_starts", "a batch of 1", "B = 2");
}

TEST(AttentionMisuse, Stages) {
  Call call;
  call.stages.weights = call.stages.weights.slice(3, 0, 4);
  call.expect_refused("weights", "[B, Hq, Tq, Tk] [2, 4, 3, 5]", "[2, 4, 3, 4]");
  call = Call();
  Tensor lse(DType::f16, {2, 4, 3});
  call.stages.lse = lse;
  call.expect_refused("lse", "dtype f32 or f64", "f16", ErrorKind::type);
  call = Call();
  const std::int64_t rows[] = {0, 0, 0, 1, 4, 0};
  call.stages.rows = TensorView::of(rows, {2, 3});
  call.expect_refused("rows[1, 1]", "within [2, 4, 3]", "4");
}

TEST(AttentionMisuse, OutputOverInputs) {
  Call call;
  // One buffer as query and out: same shape when Dv = D.
  call.value = call.key;
  call.out = MutableTensorView(call.q);
  call.expect_refused("out", "apart from query", "bytes that both of them use");
  call.stages.weights = call.w;
  call = Call();
  Tensor large(DType::f32, {2, 4, 3, 11});
  call.out = large.view().slice(3, 0, 6);
  call.stages.weights = large.view().slice(3, 5, 10);
  call.expect_refused("weights", "apart from out", "bytes that both of them use");
  call.stages.weights = large.view().slice(3, 6, 11);
  EXPECT_NO_THROW(call.forward());
}

TEST(AttentionMisuse, OutputThatOverlapsItself) {
  Call call;
  call.out = MutableTensorView(call.o.view().data(), DType::f32, {2, 4, 3, 6}, {72, 18, 0, 1});
  call.expect_refused("out", "each element a place of its own", "strides [72, 18, 0, 1]");
  call.out = MutableTensorView(call.o.view().data(), DType::f32, {2, 4, 3, 6}, {72, 18, 5, 1});
  call.expect_refused("out", "each element a place of its own", "strides [72, 18, 5, 1]");
}

}  // namespace
}  // namespace qkv
