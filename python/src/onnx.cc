// qkv._core.onnx_attention: the ONNX operator. What it means for a user stands in
// python/qkv/_onnx.py.

#include "qkv/onnx.h"

#include <string>

#include "arguments.h"
#include "array.h"
#include "bindings.h"
#include "interrupt.h"
#include "options.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

// ONNX has no bool attributes: 0 and 1 are as good.
bool read_flag(std::string_view name, nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return value.is(Py_True);
  const std::int64_t number = read_integer(name, value);
  if (number != 0 && number != 1) {
    refuse_value(name, "True, False, 1 or 0", std::to_string(number));
  }
  return number == 1;
}

// TensorProto's number of an element type.
std::optional<DType> read_precision(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  switch (read_integer("softmax_precision", value)) {
    case 1: return DType::f32;
    case 10: return DType::f16;
    case 11: return DType::f64;
    case 16: return DType::bf16;
    default:
      refuse_value("softmax_precision",
                   "None, 1 (float32), 10 (float16), 11 (float64) or 16 (bfloat16)",
                   std::to_string(read_integer("softmax_precision", value)));
  }
}

std::optional<std::int64_t> read_heads(std::string_view name, nb::handle value) {
  if (value.is_none()) return std::nullopt;
  return read_integer(name, value);
}

OnnxQkOutput read_mode(nb::handle value) {
  const std::int64_t mode = read_integer("qk_matmul_output_mode", value);
  if (mode < 0 || mode > 3) {
    refuse_value("qk_matmul_output_mode",
                 "0 (raw), 1 (after softcap), 2 (after the mask) or 3 (probabilities)",
                 std::to_string(mode));
  }
  return static_cast<OnnxQkOutput>(mode);
}

nb::tuple run(const OnnxAttentionInputs& inputs, const OnnxAttentionAttributes& attributes,
              Framework framework, int threads) {
  const OnnxAttentionShapes shapes = onnx_attention_shapes(inputs, attributes);
  const DType dtype = inputs.Q.dtype();
  Output y(framework, dtype, shapes.Y), qk(framework, dtype, shapes.qk_matmul_output);
  Output key, value;  // with nonpad_kv_seqlen the cache is the caller's
  if (!inputs.nonpad_kv_seqlen.has_value()) {
    key = Output(framework, dtype, shapes.present_key);
    value = Output(framework, dtype, shapes.present_value);
  }
  {
    const nb::gil_scoped_release unlocked;
    const SignalWatch watch;
    onnx_attention(inputs, attributes, {y.view(), key.view(), value.view(), qk.view()},
                   {.threads = threads});
  }
  const auto taken = [](Output& output) {
    return output.view().has_value() ? output.take() : nb::object(nb::none());
  };
  return nb::make_tuple(taken(y), taken(key), taken(value), taken(qk));
}

nb::tuple attention(nb::handle Q, nb::handle K, nb::handle V, nb::handle attn_mask,
                    nb::handle past_key, nb::handle past_value, nb::handle nonpad_kv_seqlen,
                    nb::handle is_causal, nb::handle scale, nb::handle softcap, nb::handle mode,
                    nb::handle precision, nb::handle left, nb::handle right, nb::handle q_heads,
                    nb::handle kv_heads, nb::handle threads) {
  try {
    const std::pair<const char*, nb::handle> given[] = {{"Q", Q},
                                                        {"K", K},
                                                        {"V", V},
                                                        {"attn_mask", attn_mask},
                                                        {"past_key", past_key},
                                                        {"past_value", past_value},
                                                        {"nonpad_kv_seqlen", nonpad_kv_seqlen}};
    Input arrays[7];
    for (int i = 0; i < 7; ++i) {
      const auto& [name, array] = given[i];
      if (i < 3 && array.is_none()) refuse_type(name, "an array", "None");
      arrays[i] = i < 6 ? read_array(name, array) : read_integers(name, array);
    }
    const OnnxAttentionInputs inputs{arrays[0].view, arrays[1].view, arrays[2].view, arrays[3].view,
                                     arrays[4].view, arrays[5].view, arrays[6].view};
    OnnxAttentionAttributes attributes;
    attributes.is_causal = read_flag("is_causal", is_causal);
    attributes.scale = read_number("scale", scale);
    attributes.softcap = read_number("softcap", softcap).value_or(0);
    attributes.qk_matmul_output_mode = read_mode(mode);
    attributes.softmax_precision = read_precision(precision);
    attributes.left_window_size = read_integer("left_window_size", left);
    attributes.right_window_size = read_integer("right_window_size", right);
    attributes.q_num_heads = read_heads("q_num_heads", q_heads);
    attributes.kv_num_heads = read_heads("kv_num_heads", kv_heads);
    return run(inputs, attributes, framework_of(Q), read_threads(threads));
  } catch (const Error& error) {
    throw Error(error.kind(), "qkv.onnx_attention", error.subject(), error.expected(),
                error.found());
  }
}

}  // namespace

void bind_onnx(nb::module_& module) {
  module.def("onnx_attention", &attention, nb::arg("Q").none(), nb::arg("K").none(),
             nb::arg("V").none(), nb::arg("attn_mask").none(), nb::arg("past_key").none(),
             nb::arg("past_value").none(), nb::arg("nonpad_kv_seqlen").none(),
             nb::arg("is_causal").none(), nb::arg("scale").none(), nb::arg("softcap").none(),
             nb::arg("qk_matmul_output_mode").none(), nb::arg("softmax_precision").none(),
             nb::arg("left_window_size").none(), nb::arg("right_window_size").none(),
             nb::arg("q_num_heads").none(), nb::arg("kv_num_heads").none(),
             nb::arg("threads").none(), "The engine behind qkv.onnx_attention.");
}

}  // namespace qkv::python
