// What onnx_attention refuses, how it says so, and that nothing is written then.

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "qkv/error.h"
#include "qkv/onnx.h"
#include "tests/attention_cases.h"

namespace qkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor normal(const Dims& shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  testing::Random random(seed);
  testing::fill_normal(tensor, random);
  return tensor;
}

Tensor integers(std::initializer_list<std::int64_t> values) {
  return Tensor::copy_of(
      TensorView::of(std::span<const std::int64_t>(values.begin(), values.size())));
}

std::string bytes(const TensorView& view) {
  const Tensor dense = Tensor::copy_of(view);
  return {static_cast<const char*>(dense.view().data()),
          static_cast<std::size_t>(dense.size()) * size_of(dense.dtype())};
}

// A call that is fine until someone changes a thing: B = 2, Hq = 4, Hkv = 2, Tq = 3, Tk = 5, P = 2.
struct Call {
  Tensor q, k, v, past_key, past_value, mask, lengths, Y, key, value, qk;
  OnnxAttentionInputs in;
  OnnxAttentionAttributes attributes;
  OnnxAttentionOutputs out;
  OnnxAttentionExecution execution;
  std::vector<Tensor> more;

  explicit Call(bool rank_3)
      : q(normal(rank_3 ? Dims{2, 3, 16} : Dims{2, 4, 3, 4}, 1)),
        k(normal(rank_3 ? Dims{2, 3, 8} : Dims{2, 2, 3, 4}, 2)),
        v(normal(rank_3 ? Dims{2, 3, 10} : Dims{2, 2, 3, 5}, 3)),
        past_key(normal({2, 2, 2, 4}, 4)),
        past_value(normal({2, 2, 2, 5}, 5)),
        mask(normal({3, 5}, 6)),
        lengths(integers({3, 2})),
        Y(normal(rank_3 ? Dims{2, 3, 20} : Dims{2, 4, 3, 5}, 7)),
        key(normal({2, 2, 5, 4}, 8)),
        value(normal({2, 2, 5, 5}, 9)),
        qk(normal({2, 4, 3, 5}, 10)) {
    in = {
        .Q = q, .K = k, .V = v, .attn_mask = mask, .past_key = past_key, .past_value = past_value};
    if (rank_3) attributes = {.q_num_heads = 4, .kv_num_heads = 2};
    out = {.Y = Y, .present_key = key, .present_value = value, .qk_matmul_output = qk};
  }

  // Instead of past and present, which do not go with it.
  void use_lengths() {
    in.past_key = in.past_value = in.attn_mask = {};
    out.present_key = out.present_value = out.qk_matmul_output = {};
    in.nonpad_kv_seqlen = lengths;
  }

  MutableTensorView add(DType dtype, const Dims& shape) {
    more.emplace_back(dtype, shape);
    return more.back();
  }

  void run() { onnx_attention(in, attributes, out, execution); }
  std::string outputs() const { return bytes(Y) + bytes(key) + bytes(value) + bytes(qk); }
};

struct Misuse {
  const char* name;
  const char* subject;
  ErrorKind kind;
  bool rank_3;
  std::function<void(Call&)> change;
};

void PrintTo(const Misuse& misuse, std::ostream* out) { *out << misuse.name; }

constexpr ErrorKind kValue = ErrorKind::value, kType = ErrorKind::type;

const Misuse kMisuses[] = {
    {"NoQ", "Q", kValue, false, [](Call& c) { c.in.Q = {}; }},
    {"NoK", "K", kValue, false, [](Call& c) { c.in.K = {}; }},
    {"NoV", "V", kValue, true, [](Call& c) { c.in.V = {}; }},
    {"QOfRankTwo", "Q", kValue, false,
     [](Call& c) {
       c.in.Q = c.add(DType::f32, {3, 4});
     }},
    {"MixedRanks", "K", kValue, true,
     [](Call& c) {
       c.in.K = c.add(DType::f32, {2, 2, 3, 4});
     }},
    {"IntegerQ", "Q", kType, false,
     [](Call& c) {
       c.in.Q = c.add(DType::i32, {2, 4, 3, 4});
     }},
    {"KOfOtherDtype", "K", kType, false,
     [](Call& c) {
       c.in.K = c.add(DType::f16, {2, 2, 3, 4});
     }},
    {"VOfOtherDtype", "V", kType, false,
     [](Call& c) {
       c.in.V = c.add(DType::f64, {2, 2, 3, 5});
     }},
    {"NoQHeads", "q_num_heads", kValue, true, [](Call& c) { c.attributes.q_num_heads = {}; }},
    {"NoKvHeads", "kv_num_heads", kValue, true, [](Call& c) { c.attributes.kv_num_heads = {}; }},
    {"ZeroHeads", "q_num_heads", kValue, true, [](Call& c) { c.attributes.q_num_heads = 0; }},
    {"HeadsDoNotDivideQ", "Q", kValue, true, [](Call& c) { c.attributes.q_num_heads = 3; }},
    {"HeadsDoNotDivideV", "V", kValue, true, [](Call& c) { c.attributes.kv_num_heads = 4; }},
    {"HeadsContradictRankFour", "q_num_heads", kValue, false,
     [](Call& c) { c.attributes.q_num_heads = 2; }},
    {"KvHeadsContradictRankFour", "kv_num_heads", kValue, false,
     [](Call& c) { c.attributes.kv_num_heads = 4; }},
    {"QueryHeadsNoMultiple", "K", kValue, false,
     [](Call& c) {
       c.in.K = c.add(DType::f32, {2, 3, 3, 4});
       c.in.V = c.add(DType::f32, {2, 3, 3, 5});
     }},
    {"QueryHeadsNoMultipleRankThree", "kv_num_heads", kValue, true,
     [](Call& c) {
       c.attributes.kv_num_heads = 3;
       c.in.K = c.add(DType::f32, {2, 3, 12});
       c.in.V = c.add(DType::f32, {2, 3, 15});
     }},
    {"WidthOfK", "K", kValue, false,
     [](Call& c) {
       c.in.K = c.add(DType::f32, {2, 2, 3, 5});
     }},
    {"WidthOfKRankThree", "K", kValue, true,
     [](Call& c) {
       c.in.K = c.add(DType::f32, {2, 3, 10});
     }},
    {"BatchOfK", "K", kValue, true,
     [](Call& c) {
       c.in.K = c.add(DType::f32, {1, 3, 8});
     }},
    {"TokensOfV", "V", kValue, true,
     [](Call& c) {
       c.in.V = c.add(DType::f32, {2, 4, 10});
     }},
    {"TokensOfVRankFour", "V", kValue, false,
     [](Call& c) {
       c.in.V = c.add(DType::f32, {2, 2, 4, 5});
     }},
    {"WidthZero", "Q", kValue, false,
     [](Call& c) {
       c.in.Q = c.add(DType::f32, {2, 4, 3, 0});
       c.in.K = c.add(DType::f32, {2, 2, 3, 0});
     }},
    {"PastKeyAlone", "past_value", kValue, false, [](Call& c) { c.in.past_value = {}; }},
    {"PastValueAlone", "past_key", kValue, true, [](Call& c) { c.in.past_key = {}; }},
    {"PastOfRankThree", "past_key", kValue, true,
     [](Call& c) {
       c.in.past_key = c.add(DType::f32, {2, 2, 8});
     }},
    {"PastHeads", "past_key", kValue, false,
     [](Call& c) {
       c.in.past_key = c.add(DType::f32, {2, 4, 2, 4});
     }},
    {"PastTokensDiffer", "past_value", kValue, false,
     [](Call& c) {
       c.in.past_value = c.add(DType::f32, {2, 2, 1, 5});
     }},
    {"PastDtype", "past_value", kType, false,
     [](Call& c) {
       c.in.past_value = c.add(DType::f16, {2, 2, 2, 5});
     }},
    {"PastWithLengths", "nonpad_kv_seqlen", kValue, false,
     [](Call& c) { c.in.nonpad_kv_seqlen = c.lengths; }},
    {"PresentWithLengths", "present_key", kValue, false,
     [](Call& c) {
       c.use_lengths();
       c.out.present_key = c.add(DType::f32, {2, 2, 3, 4});
     }},
    {"LengthsShape", "nonpad_kv_seqlen", kValue, false,
     [](Call& c) {
       c.use_lengths();
       c.in.nonpad_kv_seqlen = c.add(DType::i64, {3});
     }},
    {"LengthsDtype", "nonpad_kv_seqlen", kType, false,
     [](Call& c) {
       c.use_lengths();
       c.in.nonpad_kv_seqlen = c.add(DType::i32, {2});
     }},
    {"LengthTooLong", "nonpad_kv_seqlen[1]", kValue, true,
     [](Call& c) {
       c.use_lengths();
       c.lengths.as<std::int64_t>()[1] = 4;
     }},
    {"LengthNegative", "nonpad_kv_seqlen[0]", kValue, false,
     [](Call& c) {
       c.use_lengths();
       c.lengths.as<std::int64_t>()[0] = -1;
     }},
    {"MaskTooLong", "attn_mask", kValue, false,
     [](Call& c) {
       c.in.attn_mask = c.add(DType::f32, {3, 6});
     }},
    {"MaskRows", "attn_mask", kValue, false,
     [](Call& c) {
       c.in.attn_mask = c.add(DType::f32, {2, 5});
     }},
    {"MaskOfRankFive", "attn_mask", kValue, false,
     [](Call& c) {
       c.in.attn_mask = c.add(DType::f32, {1, 1, 1, 1, 5});
     }},
    {"MaskOfRankZero", "attn_mask", kValue, false,
     [](Call& c) { c.in.attn_mask = c.add(DType::f32, {}); }},
    {"MaskOfIntegers", "attn_mask", kType, false,
     [](Call& c) {
       c.in.attn_mask = c.add(DType::i64, {3, 5});
     }},
    {"MaskWiderThanQ", "attn_mask", kType, false,
     [](Call& c) {
       c.in.attn_mask = c.add(DType::f64, {3, 5});
     }},
    {"ScaleNotFinite", "scale", kValue, false, [](Call& c) { c.attributes.scale = kInfinity; }},
    {"SoftcapNegative", "softcap", kValue, false, [](Call& c) { c.attributes.softcap = -1; }},
    {"SoftcapNotFinite", "softcap", kValue, false,
     [](Call& c) { c.attributes.softcap = std::numeric_limits<double>::quiet_NaN(); }},
    {"LeftWindow", "left_window_size", kValue, false,
     [](Call& c) { c.attributes.left_window_size = -2; }},
    {"RightWindow", "right_window_size", kValue, false,
     [](Call& c) { c.attributes.right_window_size = -7; }},
    {"Mode", "qk_matmul_output_mode", kValue, false,
     [](Call& c) { c.attributes.qk_matmul_output_mode = static_cast<OnnxQkOutput>(4); }},
    {"SoftmaxPrecision", "softmax_precision", kType, false,
     [](Call& c) { c.attributes.softmax_precision = DType::i32; }},
    {"Threads", "threads", kValue, false, [](Call& c) { c.execution.threads = -1; }},
    {"NoY", "Y", kValue, false, [](Call& c) { c.out.Y = {}; }},
    {"YOfOtherRank", "Y", kValue, true,
     [](Call& c) {
       c.out.Y = c.add(DType::f32, {2, 4, 3, 5});
     }},
    {"YDtype", "Y", kType, false,
     [](Call& c) {
       c.out.Y = c.add(DType::f16, {2, 4, 3, 5});
     }},
    {"PresentShape", "present_key", kValue, false,
     [](Call& c) {
       c.out.present_key = c.add(DType::f32, {2, 2, 3, 4});
     }},
    {"PresentDtype", "present_value", kType, false,
     [](Call& c) {
       c.out.present_value = c.add(DType::f64, {2, 2, 5, 5});
     }},
    {"QkShape", "qk_matmul_output", kValue, true,
     [](Call& c) {
       c.out.qk_matmul_output = c.add(DType::f32, {2, 4, 3, 3});
     }},
    {"QkDtype", "qk_matmul_output", kType, false,
     [](Call& c) {
       c.out.qk_matmul_output = c.add(DType::bf16, {2, 4, 3, 5});
     }},
    {"YOverlapsPresent", "present_value", kValue, false,
     [](Call& c) {
       c.out.Y = MutableTensorView(c.value.view().data(), DType::f32, {2, 4, 3, 5});
     }},
    {"QkOverlapsMask", "qk_matmul_output", kValue, false,
     [](Call& c) { c.in.attn_mask = c.qk.view().select(0, 0).select(0, 0); }},
    {"PresentKeyOverlapsPastValue", "present_key", kValue, false,
     [](Call& c) {
       c.in.past_value = MutableTensorView(c.key.view().data(), DType::f32, {2, 2, 2, 5});
     }},
    {"YWithStrideZero", "Y", kValue, false,
     [](Call& c) {
       c.out.Y = MutableTensorView(c.Y.view().data(), DType::f32, {2, 4, 3, 5}, {60, 15, 0, 1});
     }},
};

class OnnxAttentionMisuse : public ::testing::TestWithParam<Misuse> {};

TEST_P(OnnxAttentionMisuse, IsRefusedAndWritesNothing) {
  Call call(GetParam().rank_3);
  GetParam().change(call);
  const std::string before = call.outputs();
  try {
    call.run();
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "onnx_attention") << error.what();
    EXPECT_EQ(error.subject(), GetParam().subject) << error.what();
    EXPECT_EQ(error.kind(), GetParam().kind) << error.what();
    EXPECT_NE(error.expected(), "");
    EXPECT_NE(error.found(), "");
  }
  EXPECT_EQ(call.outputs(), before);
}

INSTANTIATE_TEST_SUITE_P(All, OnnxAttentionMisuse, ::testing::ValuesIn(kMisuses),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(OnnxAttention, CallsBeforeTheirMisuseAreFine) {
  for (bool rank_3 : {false, true}) {
    Call call(rank_3), with_lengths(rank_3);
    EXPECT_NO_THROW(call.run());
    with_lengths.use_lengths();
    EXPECT_NO_THROW(with_lengths.run());
  }
}

TEST(OnnxAttention, ShapesRefuseAsTheOperatorDoes) {
  const Tensor q(DType::f32, {2, 3, 16});
  EXPECT_THROW(onnx_attention_shapes({.Q = q, .K = q, .V = q}, {}), Error);
  // A product that does not fit: Hq·Dv, of inputs that are one element each.
  const float one = 1;
  const std::int64_t huge = std::int64_t{1} << 40;
  const TensorView wide(&one, DType::f32, {1, 1, huge}, {0, 0, 0});
  EXPECT_THROW(onnx_attention_shapes({.Q = wide, .K = wide.slice(2, 0, 1), .V = wide},
                                     {.q_num_heads = huge, .kv_num_heads = 1}),
               Error);
}

}  // namespace
}  // namespace qkv
