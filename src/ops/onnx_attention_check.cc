#include "ops/onnx_attention_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "base/checked.h"
#include "base/element.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("onnx_attention");

using Problem = OnnxAttentionProblem;
using NamedInput = std::pair<std::string_view, TensorView>;
using NamedOutput = std::pair<std::string_view, MutableTensorView>;

// [B, T, H·D] as [B, H, T, D].
template <typename View>
View split_heads(const View& view, std::int64_t heads, std::int64_t width) {
  return view.unflatten(2, {heads, width}).permute({0, 2, 1, 3});
}

void check_ranks(const OnnxAttentionInputs& in) {
  kRefuse.unless_given("Q", in.Q);
  kRefuse.unless_float("Q", in.Q);
  if (in.Q.rank() != 3 && in.Q.rank() != 4) {
    kRefuse.value("Q", "shape [B, Hq, Tq, D] or [B, Tq, Hq·D]", to_string(in.Q.shape()));
  }
  const bool rank_3 = in.Q.rank() == 3;
  kRefuse.unless_rank("K", in.K, in.Q.rank(), rank_3 ? "[B, Tk, Hkv·D]" : "[B, Hkv, Tk, D]");
  kRefuse.unless_rank("V", in.V, in.Q.rank(), rank_3 ? "[B, Tk, Hkv·Dv]" : "[B, Hkv, Tk, Dv]");
  kRefuse.unless_dtype("K", in.K, {in.Q.dtype()});
  kRefuse.unless_dtype("V", in.V, {in.Q.dtype()});
}

// The number of heads of an input of rank 3, whose width it has to divide.
std::int64_t heads_of(std::string_view attribute, const std::optional<std::int64_t>& heads,
                      std::string_view subject, const TensorView& view) {
  if (!heads) kRefuse.value(attribute, "a number of heads, as Q, K and V are of rank 3", "none");
  if (*heads < 1) kRefuse.value(attribute, "1 or more", fmt::format("{}", *heads));
  if (view.dim(2) % *heads != 0 || view.dim(2) == 0) {
    kRefuse.value(subject, fmt::format("a last axis that {} = {} divides", attribute, *heads),
                  to_string(view.shape()));
  }
  return *heads;
}

void unless_heads(std::string_view attribute, const std::optional<std::int64_t>& heads,
                  std::int64_t found) {
  if (heads && *heads != found) {
    kRefuse.value(attribute, fmt::format("{}, the heads of inputs of rank 4, or none", found),
                  fmt::format("{}", *heads));
  }
}

void resolve_rank_3(const OnnxAttentionInputs& in, const OnnxAttentionAttributes& attributes,
                    Problem& p) {
  p.Hq = heads_of("q_num_heads", attributes.q_num_heads, "Q", in.Q);
  p.Hkv = heads_of("kv_num_heads", attributes.kv_num_heads, "K", in.K);
  heads_of("kv_num_heads", attributes.kv_num_heads, "V", in.V);
  p.D = in.Q.dim(2) / p.Hq;
  p.Dv = in.V.dim(2) / p.Hkv;
  p.Tq = in.Q.dim(1);
  p.Tn = in.K.dim(1);
  if (in.K.dim(0) != p.B || in.K.dim(2) / p.Hkv != p.D) {
    kRefuse.value("K", fmt::format("shape [{}, Tk, {} heads of {}] to fit Q", p.B, p.Hkv, p.D),
                  to_string(in.K.shape()));
  }
  kRefuse.unless_shape("V", in.V, {p.B, p.Tn, in.V.dim(2)}, "[B, Tk, Hkv·Dv]");
  if (!checked_mul(p.Hq, p.Dv)) {
    kRefuse.value("V", "a width of Y, Hq·Dv, below 2^63", to_string(in.V.shape()));
  }
  p.query = split_heads(in.Q, p.Hq, p.D);
  p.new_key = split_heads(in.K, p.Hkv, p.D);
  p.new_value = split_heads(in.V, p.Hkv, p.Dv);
}

void resolve_rank_4(const OnnxAttentionInputs& in, const OnnxAttentionAttributes& attributes,
                    Problem& p) {
  p.Hq = in.Q.dim(1);
  p.Hkv = in.K.dim(1);
  p.D = in.Q.dim(3);
  p.Dv = in.V.dim(3);
  p.Tq = in.Q.dim(2);
  p.Tn = in.K.dim(2);
  if (p.D < 1) kRefuse.value("Q", "a width D of 1 or more", to_string(in.Q.shape()));
  if (p.Dv < 1) kRefuse.value("V", "a width Dv of 1 or more", to_string(in.V.shape()));
  if (in.K.dim(0) != p.B || in.K.dim(3) != p.D) {
    kRefuse.value("K", fmt::format("shape [{}, Hkv, Tk, {}] to fit Q", p.B, p.D),
                  to_string(in.K.shape()));
  }
  kRefuse.unless_shape("V", in.V, {p.B, p.Hkv, p.Tn, p.Dv}, "[B, Hkv, Tk, Dv]");
  unless_heads("q_num_heads", attributes.q_num_heads, p.Hq);
  unless_heads("kv_num_heads", attributes.kv_num_heads, p.Hkv);
  p.query = in.Q;
  p.new_key = in.K;
  p.new_value = in.V;
}

void check_heads(const Problem& p) {
  if (p.Hkv == 0 ? p.Hq != 0 : p.Hq % p.Hkv != 0) {
    kRefuse.value(p.rank_3 ? "kv_num_heads" : "K",
                  fmt::format("a number of heads that divides the query's {}", p.Hq),
                  fmt::format("{} heads", p.Hkv));
  }
}

void check_past(const OnnxAttentionInputs& in, Problem& p) {
  p.Tk = p.Tn;
  const bool key = in.past_key.has_value(), value = in.past_value.has_value();
  if (key != value) {
    kRefuse.value(key ? "past_value" : "past_key", "past_key and past_value together",
                  "only one of them");
  }
  if (!key) return;
  if (in.nonpad_kv_seqlen.has_value()) {
    kRefuse.value("nonpad_kv_seqlen", "either the lengths of a cache in K and V, or past_key",
                  "both");
  }
  kRefuse.unless_rank("past_key", in.past_key, 4, "[B, Hkv, P, D]");
  p.P = in.past_key.dim(2);
  kRefuse.unless_shape("past_key", in.past_key, {p.B, p.Hkv, p.P, p.D}, "[B, Hkv, P, D]");
  kRefuse.unless_shape("past_value", in.past_value, {p.B, p.Hkv, p.P, p.Dv}, "[B, Hkv, P, Dv]");
  kRefuse.unless_dtype("past_key", in.past_key, {in.Q.dtype()});
  kRefuse.unless_dtype("past_value", in.past_value, {in.Q.dtype()});
  const auto total = checked_add(p.P, p.Tn);
  if (!total) kRefuse.value("past_key", "P + Tk below 2^63", to_string(in.past_key.shape()));
  p.Tk = *total;
}

void check_lengths(const TensorView& lengths, const Problem& p) {
  if (!lengths.has_value()) return;
  kRefuse.unless_dtype("nonpad_kv_seqlen", lengths, {DType::i64});
  kRefuse.unless_shape("nonpad_kv_seqlen", lengths, {p.B}, "[B]");
  for (std::int64_t b = 0; b < p.B; ++b) {
    const std::int64_t length = load_integer(lengths, b * lengths.stride(0));
    if (length < 0 || length > p.Tk) {
      kRefuse.value(fmt::format("nonpad_kv_seqlen[{}]", b),
                    fmt::format("a length in [0, {}]", p.Tk), fmt::format("{}", length));
    }
  }
}

void check_mask(const TensorView& mask, const Problem& p) {
  if (!mask.has_value()) return;
  kRefuse.unless_dtype("attn_mask", mask, {DType::boolean, p.query.dtype(), DType::f32});
  const Dims full{p.B, p.Hq, p.Tq, p.Tk};
  const int missing = 4 - mask.rank();
  bool fits = mask.rank() >= 1 && missing >= 0 && mask.dim(-1) <= p.Tk;
  for (int i = 0; fits && i < mask.rank() - 1; ++i) {
    fits = mask.dim(i) == 1 || mask.dim(i) == full[i + missing];
  }
  if (!fits) {
    kRefuse.value("attn_mask",
                  fmt::format("a shape that broadcasts to [B, Hq, Tq, Tk] {}, its last axis at "
                              "most Tk",
                              to_string(full)),
                  to_string(mask.shape()));
  }
}

void check_attributes(const OnnxAttentionAttributes& attributes) {
  if (attributes.scale && !std::isfinite(*attributes.scale)) {
    kRefuse.value("scale", "a finite number", fmt::format("{}", *attributes.scale));
  }
  if (!std::isfinite(attributes.softcap) || attributes.softcap < 0) {
    kRefuse.value("softcap", "0 (none) or a finite number above",
                  fmt::format("{}", attributes.softcap));
  }
  for (const auto& [name, size] : {std::pair{"left_window_size", attributes.left_window_size},
                                   std::pair{"right_window_size", attributes.right_window_size}}) {
    if (size < -1) kRefuse.value(name, "-1 (unbounded) or more", fmt::format("{}", size));
  }
  const int mode = static_cast<int>(attributes.qk_matmul_output_mode);
  if (mode > 3) kRefuse.value("qk_matmul_output_mode", "0, 1, 2 or 3", fmt::format("{}", mode));
  if (attributes.softmax_precision && !is_float(*attributes.softmax_precision)) {
    throw Error(ErrorKind::type, "onnx_attention", "softmax_precision", "f32, f64, f16 or bf16",
                name_of(*attributes.softmax_precision));
  }
}

void check_output_shapes(const OnnxAttentionInputs& in, const OnnxAttentionOutputs& out,
                         const Problem& p) {
  const OnnxAttentionShapes shapes = p.shapes();
  const DType dtype = in.Q.dtype();
  kRefuse.unless_shape("Y", out.Y, shapes.Y, p.rank_3 ? "[B, Tq, Hq·Dv]" : "[B, Hq, Tq, Dv]");
  kRefuse.unless_dtype("Y", out.Y, {dtype, DType::f32, DType::f64});
  if (out.qk_matmul_output.has_value()) {
    kRefuse.unless_shape("qk_matmul_output", out.qk_matmul_output, shapes.qk_matmul_output,
                         "[B, Hq, Tq, Tk]");
    kRefuse.unless_dtype("qk_matmul_output", out.qk_matmul_output, {dtype, DType::f32, DType::f64});
  }
  const auto check_present = [&](std::string_view subject, const MutableTensorView& view,
                                 const Dims& shape, std::string_view axes) {
    if (!view.has_value()) return;
    if (in.nonpad_kv_seqlen.has_value()) {
      kRefuse.value(subject, "none: with nonpad_kv_seqlen the cache is K and V", "a tensor");
    }
    kRefuse.unless_shape(subject, view, shape, axes);
    kRefuse.unless_dtype(subject, view, {dtype});
  };
  check_present("present_key", out.present_key, shapes.present_key, "[B, Hkv, Tk, D]");
  check_present("present_value", out.present_value, shapes.present_value, "[B, Hkv, Tk, Dv]");
}

// Whether an input lies exactly where concat would write it, so that nothing has to be moved.
bool grows_in_place(const MutableTensorView& present, const TensorView& input, std::int64_t begin) {
  return present.has_value() && input.has_value() && input.rank() == 4 &&
         same_window(input, present.slice(2, begin, begin + input.dim(2)));
}

void check_overlaps(const OnnxAttentionInputs& in, const OnnxAttentionOutputs& out,
                    const Problem& p) {
  const std::array<NamedOutput, 4> outputs{{{"Y", out.Y},
                                            {"present_key", out.present_key},
                                            {"present_value", out.present_value},
                                            {"qk_matmul_output", out.qk_matmul_output}}};
  // Inputs that are already in their place of a present are no conflict with that present.
  const auto others = [&](const MutableTensorView& present, const TensorView& past,
                          const TensorView& added, const TensorView& given) {
    return std::pair{grows_in_place(present, past, 0) ? TensorView() : past,
                     grows_in_place(present, added, p.P) ? TensorView() : given};
  };
  const auto key = others(out.present_key, in.past_key, p.new_key, in.K);
  const auto value = others(out.present_value, in.past_value, p.new_value, in.V);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& [subject, output] = outputs[i];
    if (!output.has_value()) continue;
    kRefuse.unless_writable(subject, output);
    const std::array<NamedInput, 7> inputs{
        {{"Q", in.Q},
         {"K", subject == "present_key" ? key.second : in.K},
         {"V", subject == "present_value" ? value.second : in.V},
         {"attn_mask", in.attn_mask},
         {"past_key", subject == "present_key" ? key.first : in.past_key},
         {"past_value", subject == "present_value" ? value.first : in.past_value},
         {"nonpad_kv_seqlen", in.nonpad_kv_seqlen}}};
    for (const auto& [name, input] : inputs) kRefuse.if_overlap(subject, output, name, input);
    for (std::size_t j = 0; j < i; ++j) {
      kRefuse.if_overlap(subject, output, outputs[j].first, outputs[j].second);
    }
  }
}

}  // namespace

OnnxAttentionShapes OnnxAttentionProblem::shapes() const {
  return {.Y = rank_3 ? Dims{B, Tq, Hq * Dv} : Dims{B, Hq, Tq, Dv},
          .present_key = {B, Hkv, Tk, D},
          .present_value = {B, Hkv, Tk, Dv},
          .qk_matmul_output = {B, Hq, Tq, Tk}};
}

bool same_window(const TensorView& a, const TensorView& b) noexcept {
  return a.data() == b.data() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

OnnxAttentionProblem check_onnx_attention(const OnnxAttentionInputs& inputs,
                                          const OnnxAttentionAttributes& attributes) {
  check_ranks(inputs);
  OnnxAttentionProblem p;
  p.rank_3 = inputs.Q.rank() == 3;
  p.B = inputs.Q.dim(0);
  if (p.rank_3) {
    resolve_rank_3(inputs, attributes, p);
  } else {
    resolve_rank_4(inputs, attributes, p);
  }
  check_heads(p);
  check_past(inputs, p);
  check_lengths(inputs.nonpad_kv_seqlen, p);
  check_mask(inputs.attn_mask, p);
  check_attributes(attributes);
  return p;
}

OnnxAttentionProblem check_onnx_attention(const OnnxAttentionInputs& inputs,
                                          const OnnxAttentionAttributes& attributes,
                                          const OnnxAttentionOutputs& outputs,
                                          const OnnxAttentionExecution& execution) {
  OnnxAttentionProblem p = check_onnx_attention(inputs, attributes);
  check_output_shapes(inputs, outputs, p);
  check_overlaps(inputs, outputs, p);
  if (execution.threads < 0) {
    kRefuse.value("threads", "0 (default) or more", fmt::format("{}", execution.threads));
  }
  p.out = p.rank_3 ? split_heads(outputs.Y, p.Hq, p.Dv) : outputs.Y;
  return p;
}

}  // namespace qkv
