// Explanations of the detector's blocks, on images [B, C, H, W].

#include <fmt/format.h>

#include "explain/explain.h"
#include "explain/trace.h"

namespace qkv {
namespace {

using Axes = std::vector<std::string>;

SharedTensor matrix_of(const TensorView& weight) {  // [out, in] of a 1×1 convolution
  return share(Tensor::copy_of(weight.rank() == 4 ? weight.flatten(1, 3) : weight));
}

// The formula, with the bias that folding BatchNorm leaves.
std::string with_bias(std::string formula, const ConvWeights& conv) {
  return conv.bias.has_value() ? std::move(formula) + " + bias" : formula;
}

// y[b, o, h, w] = Σ_c W[o, c]·x[b, c, h, w] + bias[o], for a y of any shape whose entries `place`
// maps to (b, o, h, w).
template <typename Place>
void expand_conv(Step& step, const SharedTensor& x, const ConvWeights& conv, Place place,
                 Expansion::Kind kind = Expansion::Kind::products) {
  const SharedTensor w = matrix_of(conv.weight);
  const SharedTensor bias = conv.bias.has_value() ? share(Tensor::copy_of(conv.bias)) : nullptr;
  const SharedTensor value = step.value;
  step.expand = [=](const Dims& i) {
    const Dims at = place(i);
    Expansion e =
        expand_linear(*x, {at[0], 0, at[2], at[3]}, 1, *w, bias ? bias.get() : nullptr, at[1]);
    e.kind = kind;
    e.value = value->view().at(i);
    return e;
  };
}

// pe[b, c, y, x] = Σ over the 3×3 neighbours that exist
void expand_depthwise(Step& step, const SharedTensor& v, const ConvWeights& conv) {
  const SharedTensor w = share(Tensor::copy_of(conv.weight));
  const SharedTensor bias = conv.bias.has_value() ? share(Tensor::copy_of(conv.bias)) : nullptr;
  const SharedTensor value = step.value;
  const std::int64_t H = value->dim(2), W = value->dim(3), width = v->dim(2);
  step.expand = [=](const Dims& i) {
    Expansion e;
    e.kind = Expansion::Kind::products;
    for (std::int64_t dy = 0; dy < 3; ++dy) {
      for (std::int64_t dx = 0; dx < 3; ++dx) {
        const std::int64_t y = i[2] + dy - 1, x = i[3] + dx - 1;
        if (y < 0 || y >= H || x < 0 || x >= W) continue;
        e.terms.emplace_back(v->view().at({i[0], i[1] / width, i[1] % width, y * W + x}),
                             w->view().at({i[1], 0, dy, dx}));
      }
    }
    if (bias) {
      e.has_addend = true;
      e.addend = bias->view().at({i[1]});
    }
    e.value = value->view().at(i);
    return e;
  };
}

void expand_sum(Step& step, const SharedTensor& a, const SharedTensor& b) {
  const SharedTensor value = step.value;
  step.expand = [=](const Dims& i) {
    Expansion e;
    e.kind = Expansion::Kind::sum;
    e.terms = {{a->view().at(i), 1}, {b->view().at(i), 1}};
    e.value = value->view().at(i);
    return e;
  };
}

void expand_copy(Step& step, std::function<Expansion(const Dims&)> source) {
  step.expand = [value = step.value, source = std::move(source)](const Dims& i) {
    Expansion e = source(i);
    e.value = value->view().at(i);
    return e;
  };
}

// p0, p1, …: the pixels, row by row.
std::vector<std::string> pixel_names(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t p = 0; p < count; ++p) names.push_back(fmt::format("p{}", p));
  return names;
}

// q0, q1, k0, k1, v0, …; of several heads h0.q0, …: what each channel of the projection is.
std::vector<std::string> channel_names(const DetectorWeights& w) {
  std::vector<std::string> names;
  for (std::int64_t h = 0; h < w.heads; ++h) {
    const std::string head = w.heads > 1 ? fmt::format("h{}.", h) : "";
    for (const auto& [letter, width] :
         {std::pair("q", w.key_dim), std::pair("k", w.key_dim), std::pair("v", w.head_dim)}) {
      for (std::int64_t d = 0; d < width; ++d) {
        names.push_back(fmt::format("{}{}{}", head, letter, d));
      }
    }
  }
  return names;
}

// The rows of a per-head [q | k | v] weight that belong to one of the three, as X·W: [C, rows].
SharedTensor role_weight(const DetectorWeights& w, std::int64_t begin, std::int64_t width) {
  const SharedTensor all = matrix_of(w.qkv.weight);
  const std::int64_t each = 2 * w.key_dim + w.head_dim;
  const TensorView role = all->view().unflatten(0, {w.heads, each}).slice(1, begin, begin + width);
  return share(Tensor::copy_of(Tensor::copy_of(role).view().flatten(0, 1).transpose(0, 1)));
}

struct Role {
  const char* name;
  const char* letter;
  std::int64_t begin, width;
  const char* axis;
};

// Appends the steps of one attention; names of its trace begin with `prefix`.
void add_detector_steps(Explanation& explanation, const DetectorWeights& w, const Trace& trace,
                        const BlockOptions& options, const std::string& prefix) {
  const auto find = [&](std::string_view name) { return trace.find(prefix + std::string(name)); };
  const SharedTensor input = find("input"), fused = find("qkv");
  const std::int64_t W = fused->dim(3), each = 2 * w.key_dim + w.head_dim;
  const std::vector<std::string> pixels = pixel_names(fused->dim(2) * W);
  auto& steps = explanation.steps;
  steps.push_back(make_step(prefix + "input", "X", input, {"B", "C", "H", "W"}));
  const Role roles[] = {{"query", "q", 0, w.key_dim, "key_dim"},
                        {"key", "k", w.key_dim, w.key_dim, "key_dim"},
                        {"value", "v", 2 * w.key_dim, w.head_dim, "head_dim"}};
  for (const Role& r : roles) {
    steps.push_back(make_step(fmt::format("{}w_{}", prefix, r.name), fmt::format("W{}", r.letter),
                              role_weight(w, r.begin, r.width),
                              {"C", fmt::format("heads·{}", r.axis)}));
  }
  steps.push_back(make_step(prefix + "qkv", with_bias("qkv = conv1×1(X)", w.qkv), fused,
                            {"B", "heads·(2·key_dim+head_dim)", "H", "W"}));
  steps.back().text = "step.qkv_conv";
  steps.back().channels = channel_names(w);
  expand_conv(steps.back(), input, w.qkv, [](const Dims& i) { return i; });
  for (const Role& r : roles) {
    steps.push_back(make_step(prefix + r.name,
                              with_bias(fmt::format("{0} = X·W{0}", r.letter), w.qkv), find(r.name),
                              {"B", "heads", r.axis, "N"}));
    steps.back().text = fmt::format("step.{}_conv", r.name);
    steps.back().tokens_last = true;
    steps.back().cols = pixels;
    expand_conv(steps.back(), input, w.qkv, [=, begin = r.begin](const Dims& i) {
      return Dims{i[0], i[1] * each + begin + i[2], i[3] / W, i[3] % W};
    });
  }
  AttentionTrace attention;
  attention.query = find("query");
  attention.key = find("key");
  attention.value = find("value");
  attention.scaled = find("scores");
  attention.softcapped = find("softcapped");
  attention.masked = find("masked");
  attention.weights = find("weights");
  attention.heads = find("heads");
  attention.options = options.attention;
  attention.channel_first = true;
  AttentionLabels labels;
  labels.tokens = labels.keys = "N";
  labels.key_width = "key_dim";
  labels.value_width = "head_dim";
  labels.query_names = labels.key_names = pixels;
  add_attention_steps(explanation, attention, labels, prefix);

  const SharedTensor heads = find("heads"), concat = find("concat");
  steps.push_back(
      make_step(prefix + "concat", "C = heads.view(B, C, H, W)", concat, {"B", "C", "H", "W"}));
  steps.back().text = "step.concat_conv";
  const auto from_heads = [=, d = w.head_dim](const Dims& i) {
    return copied_from(prefix + "heads", {i[0], i[1] / d, i[1] % d, i[2] * W + i[3]});
  };
  expand_copy(steps.back(), from_heads);
  SharedTensor last = concat;
  if (const SharedTensor pe = find("pe")) {
    const TensorView nine = w.pe.weight.flatten(0, 1);  // [C, 1, 3, 3], without the 1
    steps.push_back(
        make_step(prefix + "w_pe", "Wpe", share(Tensor::copy_of(nine)), {"C", "3", "3"}));
    steps.push_back(make_step(prefix + "pe", with_bias("pe = depthwise3×3(V)", w.pe), pe,
                              {"B", "C", "H", "W"}));
    expand_depthwise(steps.back(), find("value"), w.pe);
    last = find("sum");
    steps.push_back(make_step(prefix + "sum", "C + pe", last, {"B", "C", "H", "W"}));
    expand_sum(steps.back(), concat, pe);
  }
  const SharedTensor output = find("output");
  if (w.proj.weight.has_value()) {
    const SharedTensor proj = matrix_of(w.proj.weight);
    steps.push_back(make_step(prefix + "w_output", "Wo",
                              share(Tensor::copy_of(proj->view().transpose(0, 1))), {"C", "C"}));
    steps.push_back(
        make_step(prefix + "output",
                  with_bias(last == concat ? "Y = conv1×1(C)" : "Y = conv1×1(C + pe)", w.proj),
                  output, {"B", "C", "H", "W"}));
    expand_conv(steps.back(), last, w.proj, [](const Dims& i) { return i; });
  } else {
    steps.push_back(make_step(prefix + "output", last == concat ? "Y = C" : "Y = C + pe", output,
                              {"B", "C", "H", "W"}));
    if (last == concat) {
      expand_copy(steps.back(), from_heads);
    } else {
      expand_sum(steps.back(), concat, find("pe"));
    }
  }
}

void add_psa_steps(Explanation& explanation, const PsaBlockWeights& w, const Trace& trace,
                   const BlockOptions& options, const std::string& prefix) {
  const auto find = [&](std::string_view name) { return trace.find(prefix + std::string(name)); };
  const Axes image = {"B", "C", "H", "W"};
  auto& steps = explanation.steps;
  add_detector_steps(explanation, w.attention, trace, options, prefix + "attn.");
  const SharedTensor residual = find("residual"), attended = find("attn.output");
  steps.push_back(make_step(prefix + "residual",
                            w.shortcut ? "y = x + attention(x)" : "y = attention(x)", residual,
                            image));
  if (w.shortcut) {
    expand_sum(steps.back(), find("input"), attended);
  } else {
    expand_copy(steps.back(),
                [=](const Dims& i) { return copied_from(prefix + "attn.output", i); });
  }
  const SharedTensor wide = find("ffn.expand"), bent = find("ffn.silu"),
                     narrow = find("ffn.reduce");
  steps.push_back(make_step(prefix + "ffn.expand", with_bias("e = conv1×1(y)", w.expand), wide,
                            {"B", "2·C", "H", "W"}));
  expand_conv(steps.back(), residual, w.expand, [](const Dims& i) { return i; });
  steps.push_back(make_step(prefix + "ffn.silu", "s = e·σ(e)", bent, {"B", "2·C", "H", "W"}));
  steps.back().expand = [=](const Dims& i) {
    Expansion e;
    e.kind = Expansion::Kind::silu;
    e.terms = {{wide->view().at(i), 1}};
    e.value = bent->view().at(i);
    return e;
  };
  steps.push_back(
      make_step(prefix + "ffn.reduce", with_bias("r = conv1×1(s)", w.reduce), narrow, image));
  expand_conv(steps.back(), bent, w.reduce, [](const Dims& i) { return i; });
  steps.push_back(
      make_step(prefix + "output", w.shortcut ? "out = y + r" : "out = r", find("output"), image));
  steps.back().text = "step.psa_output";
  if (w.shortcut) {
    expand_sum(steps.back(), residual, narrow);
  } else {
    expand_copy(steps.back(), [=](const Dims& i) { return copied_from(prefix + "ffn.reduce", i); });
  }
}

}  // namespace

Explanation explain_detector(const DetectorWeights& weights, const TensorView& x,
                             const BlockOptions& options) {
  Trace trace;
  const std::int64_t C = weights.proj.weight.has_value() ? weights.proj.weight.dim(0)
                                                         : weights.heads * weights.head_dim;
  Tensor out(x.dtype(), {x.dim(0), C, x.dim(2), x.dim(3)});
  detector_forward(weights, x, out, trace.observe(options));
  Explanation explanation;
  explanation.block = "detector";
  explanation.text = "block.detector";
  add_detector_steps(explanation, weights, trace, options, "");
  return explanation;
}

Explanation explain_psa_block(const PsaBlockWeights& weights, const TensorView& x,
                              const BlockOptions& options) {
  Trace trace;
  Tensor out(x.dtype(), x.shape());
  psa_block_forward(weights, x, out, trace.observe(options));
  Explanation explanation;
  explanation.block = "psa";
  explanation.text = "block.psa";
  add_psa_steps(explanation, weights, trace, options, "");
  return explanation;
}

Explanation explain_c2psa(const C2psaWeights& weights, const TensorView& x,
                          const BlockOptions& options) {
  Trace trace;
  Tensor out(x.dtype(), {x.dim(0), weights.cv2.weight.dim(0), x.dim(2), x.dim(3)});
  c2psa_forward(weights, x, out, trace.observe(options));
  Explanation explanation;
  explanation.block = "c2psa";
  explanation.text = "block.c2psa";
  auto& steps = explanation.steps;
  steps.push_back(make_step("input", "X", trace.find("input"), {"B", "C", "H", "W"}));
  const auto same = [](const Dims& i) { return i; };
  steps.push_back(make_step("cv1",
                            fmt::format("[a|b] = silu({})", with_bias("conv1×1(X)", weights.cv1)),
                            trace.find("cv1"), {"B", "2·c", "H", "W"}));
  expand_conv(steps.back(), trace.find("input"), weights.cv1, same, Expansion::Kind::silu);
  for (std::size_t n = 0; n < weights.blocks.size(); ++n) {
    add_psa_steps(explanation, weights.blocks[n], trace, options, fmt::format("blocks.{}.", n));
  }
  steps.push_back(
      make_step("concat", "C = Concat(a, b)", trace.find("concat"), {"B", "2·c", "H", "W"}));
  steps.back().text = "step.c2psa_concat";
  const std::int64_t half = trace.find("concat")->dim(1) / 2;
  const std::string attended =
      weights.blocks.empty() ? "" : fmt::format("blocks.{}.output", weights.blocks.size() - 1);
  expand_copy(steps.back(), [=](const Dims& i) {
    if (i[1] < half || attended.empty()) return copied_from("cv1", i);
    return copied_from(attended, {i[0], i[1] - half, i[2], i[3]});
  });
  steps.push_back(make_step("output",
                            fmt::format("Y = silu({})", with_bias("conv1×1(C)", weights.cv2)),
                            trace.find("output"), {"B", "C", "H", "W"}));
  steps.back().text = "step.c2psa_output";
  expand_conv(steps.back(), trace.find("concat"), weights.cv2, same, Expansion::Kind::silu);
  return explanation;
}

}  // namespace qkv
