// Results that others published for attention, each a test of its own: ONNX's backend tests
// through onnx_attention, ONNX Runtime's vectors through attention_forward. Each case is run in the
// dtype it comes in and held to its published tolerance, and once more against f64, because the
// published tolerances are wide.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "qkv/onnx.h"
#include "tests/conformance_case.h"
#include "tests/conformance_ort.h"

namespace qkv::testing {
namespace {

bool data_present() { return std::filesystem::exists(conformance_folder()); }

// The tests of single cases exist only where their data do: this one says what is missing.
TEST(Conformance, DataIsComplete) {
  if (!data_present()) {
    GTEST_SKIP() << "no folder conformance in $QKV_SHARED or ../shared: none of the published "
                    "cases was run";
  }
  EXPECT_EQ(case_names("onnx-attention").size(), 87u);
  EXPECT_EQ(case_names("ort-attention").size(), 64u);
  EXPECT_EQ(case_names("onnx-rotary").size(), 8u);
  EXPECT_EQ(golden_examples().size(), 17u);
}

// What the checks against f64 share.
void expect_f32_close_to_f64(const CaseParam& param, const F32Bounds& bounds, const TensorView& f32,
                             const TensorView& plain, const TensorView& f64) {
  const double error = max_difference(f32, f64);
  EXPECT_LE(max_difference(plain, f64), bounds.out);
  if (param.engine.kernel != AttentionKernel::reference) {
    EXPECT_LE(error, 2 * max_difference(plain, f64) + bounds.over_plain);
  }
}

// --- ONNX -------------------------------------------------------------------------------------

// TensorProto's numbers of element types, as softmax_precision has them.
DType onnx_dtype(int number) {
  switch (number) {
    case 1: return DType::f32;
    case 10: return DType::f16;
    case 11: return DType::f64;
    case 16: return DType::bf16;
    default: throw std::runtime_error("softmax_precision " + std::to_string(number));
  }
}

OnnxAttentionAttributes onnx_attributes(const nlohmann::json& json) {
  OnnxAttentionAttributes result;
  for (const auto& [name, value] : json.items()) {
    if (name == "is_causal") {
      result.is_causal = value.get<int>() != 0;
    } else if (name == "scale") {
      result.scale = value;
    } else if (name == "softcap") {
      result.softcap = value;
    } else if (name == "qk_matmul_output_mode") {
      result.qk_matmul_output_mode = static_cast<OnnxQkOutput>(value.get<int>());
    } else if (name == "softmax_precision") {
      result.softmax_precision = onnx_dtype(value);
    } else if (name == "left_window_size") {
      result.left_window_size = value;
    } else if (name == "right_window_size") {
      result.right_window_size = value;
    } else if (name == "q_num_heads") {
      result.q_num_heads = value;
    } else if (name == "kv_num_heads") {
      result.kv_num_heads = value;
    } else {
      throw std::runtime_error("unknown attribute " + name);
    }
  }
  return result;
}

OnnxAttentionInputs onnx_inputs(const ConformanceCase& data) {
  OnnxAttentionInputs result;
  std::size_t known = 0;
  for (const auto& [name, view] :
       {std::pair{"Q", &result.Q}, std::pair{"K", &result.K}, std::pair{"V", &result.V},
        std::pair{"attn_mask", &result.attn_mask}, std::pair{"past_key", &result.past_key},
        std::pair{"past_value", &result.past_value},
        std::pair{"nonpad_kv_seqlen", &result.nonpad_kv_seqlen}}) {
    *view = data.input(name);
    known += view->has_value() ? 1 : 0;
  }
  if (known != data.inputs.size()) throw std::runtime_error("a case with an unknown input");
  return result;
}

class OnnxConformance : public ::testing::TestWithParam<CaseParam> {
 protected:
  OnnxConformance()
      : data_(load_case(GetParam().subfolder, GetParam().name)),
        inputs_(onnx_inputs(data_)),
        attributes_(onnx_attributes(data_.attributes)),
        shapes_(onnx_attention_shapes(inputs_, attributes_)) {}

  // Y, or with a mode qk_matmul_output, of a further run.
  Tensor run(DType dtype, const Engine& engine, std::optional<OnnxQkOutput> mode = {}) const {
    OnnxAttentionAttributes attributes = attributes_;
    attributes.softmax_precision = dtype;
    attributes.qk_matmul_output_mode = mode.value_or(OnnxQkOutput::raw);
    Tensor Y = poisoned(dtype, shapes_.Y), qk = poisoned(dtype, shapes_.qk_matmul_output);
    OnnxAttentionOutputs outputs{.Y = Y};
    if (mode) outputs.qk_matmul_output = qk;
    onnx_attention(inputs_, attributes, outputs,
                   {.kernel = engine.kernel, .target = engine.target});
    return mode ? std::move(qk) : std::move(Y);
  }

  // [B, H, T, ·] of an input of any rank.
  static TensorView heads(const TensorView& view, const std::optional<std::int64_t>& count) {
    if (view.rank() == 4) return view;
    return view.unflatten(2, {*count, view.dim(2) / *count}).permute({0, 2, 1, 3});
  }

  F32Bounds bounds(const TensorView& masked) const {
    Tensor Y(inputs_.Q.dtype(), shapes_.Y);
    Tensor key(inputs_.Q.dtype(), shapes_.present_key);
    Tensor value(inputs_.Q.dtype(), shapes_.present_value);
    OnnxAttentionInputs inputs = inputs_;
    inputs.nonpad_kv_seqlen = {};  // which allows no present, and has no say in it
    onnx_attention(inputs, attributes_, {.Y = Y, .present_key = key, .present_value = value});
    const TensorView query = heads(inputs_.Q, attributes_.q_num_heads);
    const double width = static_cast<double>(query.dim(3));
    return f32_bounds(query, key, value, masked, attributes_.scale.value_or(1 / std::sqrt(width)));
  }

  const ConformanceCase data_;
  const OnnxAttentionInputs inputs_;
  const OnnxAttentionAttributes attributes_;
  const OnnxAttentionShapes shapes_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnnxConformance);

TEST_P(OnnxConformance, GivesWhatWasPublished) {
  std::map<std::string, Tensor> results;
  OnnxAttentionOutputs outputs;
  for (const auto& [name, view, shape] :
       {std::tuple{"Y", &outputs.Y, &shapes_.Y},
        std::tuple{"present_key", &outputs.present_key, &shapes_.present_key},
        std::tuple{"present_value", &outputs.present_value, &shapes_.present_value},
        std::tuple{"qk_matmul_output", &outputs.qk_matmul_output, &shapes_.qk_matmul_output}}) {
    if (!data_.outputs.contains(name)) continue;
    *view = results.emplace(name, poisoned(inputs_.Q.dtype(), *shape)).first->second;
  }
  ASSERT_EQ(results.size(), data_.outputs.size());
  const Engine& engine = GetParam().engine;
  onnx_attention(inputs_, attributes_, outputs, {.kernel = engine.kernel, .target = engine.target});
  for (const auto& [name, expected] : data_.outputs) {
    const bool copied = name.starts_with("present");
    EXPECT_EQ(results.at(name).dtype(), expected.view.dtype()) << name;
    EXPECT_TRUE(
        close(results.at(name), expected.view, copied ? 0 : data_.rtol, copied ? 0 : data_.atol))
        << name;
  }
}

TEST_P(OnnxConformance, IsCloseToF64) {
  const Engine &engine = GetParam().engine, plain = engines().front();
  const Tensor masked = run(DType::f64, plain, OnnxQkOutput::biased);
  const F32Bounds bound = bounds(masked);
  expect_f32_close_to_f64(GetParam(), bound, run(DType::f32, engine), run(DType::f32, plain),
                          run(DType::f64, plain));
  for (OnnxQkOutput mode : {OnnxQkOutput::raw, OnnxQkOutput::softcapped, OnnxQkOutput::biased,
                            OnnxQkOutput::probabilities}) {
    const double error =
        max_difference(run(DType::f32, engine, mode), run(DType::f64, plain, mode), masked);
    EXPECT_LE(error, mode == OnnxQkOutput::probabilities ? bound.weights : bound.scores)
        << "mode " << static_cast<int>(mode);
  }
}

INSTANTIATE_TEST_SUITE_P(Published, OnnxConformance,
                         ::testing::ValuesIn(case_params("onnx-attention")), param_name);

// --- ONNX Runtime -------------------------------------------------------------------------------

class OrtConformance : public ::testing::TestWithParam<CaseParam> {
 protected:
  OrtConformance()
      : data_(load_case(GetParam().subfolder, GetParam().name)), call_(ort_call(data_)) {}

  // Y [B, T, H·Dv], written through a view of [B, H, T, Dv].
  Tensor run(DType dtype, const Engine& engine, const MutableTensorView& masked = {}) const {
    const TensorView& q = call_.query;
    const std::int64_t H = q.dim(1), Dv = call_.value.dim(3);
    Tensor Y = poisoned(dtype, {q.dim(0), q.dim(2), H * Dv});
    AttentionOptions options = call_.options;
    options.kernel = engine.kernel;
    options.target = engine.target;
    if (dtype == DType::f64) options.accumulate = Accumulate::f64;
    AttentionStages stages;
    stages.masked = masked;
    attention_forward(q, call_.key, call_.value,
                      Y.view().unflatten(2, {H, Dv}).permute({0, 2, 1, 3}), options, stages);
    return Y;
  }

  const ConformanceCase data_;
  const OrtCall call_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OrtConformance);

TEST_P(OrtConformance, GivesWhatWasPublished) {
  for (const auto& [name, expected] : data_.outputs) {
    const Tensor Y = run(DType::f32, GetParam().engine);
    ASSERT_TRUE(name == "Y" || name == "present_key" || name == "present_value") << name;
    const TensorView actual = name == "Y"             ? std::as_const(Y).view()
                              : name == "present_key" ? call_.key
                                                      : call_.value;
    EXPECT_TRUE(close(actual, expected.view, data_.rtol, data_.atol)) << name;
  }
}

TEST_P(OrtConformance, IsCloseToF64) {
  const Engine plain = engines().front();
  const TensorView& q = call_.query;
  Tensor masked(DType::f64, {q.dim(0), q.dim(1), q.dim(2), call_.key.dim(2)});
  const Tensor f64 = run(DType::f64, plain, masked);
  const double scale = call_.options.scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
  expect_f32_close_to_f64(GetParam(), f32_bounds(q, call_.key, call_.value, masked, scale),
                          run(DType::f32, GetParam().engine), run(DType::f32, plain), f64);
}

INSTANTIATE_TEST_SUITE_P(Published, OrtConformance,
                         ::testing::ValuesIn(case_params("ort-attention")), param_name);

// --- Rotary embedding ---------------------------------------------------------------------------

class RotaryConformance : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RotaryConformance);

OnnxRotaryAttributes rotary_attributes(const nlohmann::json& json) {
  OnnxRotaryAttributes result;
  for (const auto& [name, value] : json.items()) {
    if (name == "interleaved") {
      result.interleaved = value.get<int>() != 0;
    } else if (name == "num_heads") {
      result.num_heads = value;
    } else if (name == "rotary_embedding_dim") {
      result.rotary_embedding_dim = value;
    } else {
      throw std::runtime_error("unknown attribute " + name);
    }
  }
  return result;
}

// Each output is a sum of two products of numbers near 1: the published tolerance aside, f32 is
// within 2·eps·(|x[a]| + |x[b]|) of f64.
TEST_P(RotaryConformance, GivesWhatWasPublishedAndIsCloseToF64) {
  const ConformanceCase data = load_case("onnx-rotary", GetParam());
  const OnnxRotaryAttributes attributes = rotary_attributes(data.attributes);
  OnnxRotaryInputs inputs{data.input("input"), data.input("cos_cache"), data.input("sin_cache"),
                          data.input("position_ids")};
  ASSERT_EQ(data.inputs.size(), inputs.position_ids.has_value() ? 4u : 3u);
  ASSERT_EQ(data.outputs.size(), 1u);
  const TensorView expected = data.outputs.at("output").view;
  Tensor out = poisoned(expected.dtype(), expected.shape());
  onnx_rotary_embedding(inputs, attributes, out);
  EXPECT_TRUE(close(out, expected, data.rtol, data.atol));

  const Tensor wide = Tensor::copy_of(inputs.input, DType::f64);
  double largest = 0;
  for (const double value : wide.as<double>()) largest = std::max(largest, std::abs(value));
  inputs.input = wide;
  Tensor exact = poisoned(DType::f64, expected.shape());
  onnx_rotary_embedding(inputs, attributes, exact);
  const double eps = std::numeric_limits<float>::epsilon();
  EXPECT_LE(max_difference(out, exact), 4 * eps * largest);
}

INSTANTIATE_TEST_SUITE_P(Published, RotaryConformance,
                         ::testing::ValuesIn(case_names("onnx-rotary")),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace qkv::testing
