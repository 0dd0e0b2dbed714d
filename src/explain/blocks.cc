// Explanations of the blocks. Each runs the block's own forward with a trace as its observer; what
// is added here is names, formulas and where an entry's factors stand.

#include <fmt/format.h>

#include <cmath>

#include "explain/explain.h"
#include "explain/trace.h"

namespace qkv {
namespace {

using Axes = std::vector<std::string>;

// The weight of a linear map as the formula has it, X·W: [in, out].
SharedTensor as_factor(const TensorView& weight) {
  return share(Tensor::copy_of(weight.transpose(0, 1)));
}

SharedTensor shared_copy(const TensorView& view) {
  return view.has_value() ? share(Tensor::copy_of(view)) : nullptr;
}

Expansion with_value(Expansion e, const SharedTensor& value, const Dims& index) {
  e.value = value->view().at(index);
  return e;
}

struct Builder {
  Explanation explanation;

  Step& add(std::string name, std::string formula, const SharedTensor& value, Axes axes) {
    explanation.steps.push_back(
        make_step(std::move(name), std::move(formula), value, std::move(axes)));
    return explanation.steps.back();
  }

  // y = x·W + b, `o_of` giving the output that an index of y stands for and `x_of` the row of x.
  template <typename OutputOf, typename RowOf>
  void add_projection(std::string name, std::string formula, const SharedTensor& value, Axes axes,
                      const SharedTensor& x, int x_axis, const LinearWeights& weights,
                      OutputOf o_of, RowOf x_of) {
    Step& step = add(std::move(name), std::move(formula), value, std::move(axes));
    const SharedTensor w = shared_copy(weights.weight), b = shared_copy(weights.bias);
    step.expand = [=](const Dims& i) {
      return with_value(expand_linear(*x, x_of(i), x_axis, *w, b.get(), o_of(i)), value, i);
    };
  }

  // An entry that was only moved from another step.
  template <typename SourceOf>
  void add_moved(std::string name, std::string formula, const SharedTensor& value, Axes axes,
                 std::string source, SourceOf source_of) {
    Step& step = add(std::move(name), std::move(formula), value, std::move(axes));
    step.expand = [=](const Dims& i) {
      return with_value(copied_from(source, source_of(i)), value, i);
    };
  }

  // Rows of x, [B, heads, T, width], brought to a common size.
  void add_norm(std::string name, std::string formula, const SharedTensor& value, Axes axes,
                const SharedTensor& x, const NormWeights& weights) {
    Step& step = add(std::move(name), std::move(formula), value, std::move(axes));
    const SharedTensor w = shared_copy(weights.weight), b = shared_copy(weights.bias);
    step.expand = [=, eps = weights.eps, kind = weights.kind](const Dims& i) {
      const std::int64_t n = x->dim(3);
      const auto entry = [&](std::int64_t d) { return x->view().at({i[0], i[1], i[2], d}); };
      Expansion e;
      e.kind = Expansion::Kind::norm;
      e.eps = eps;
      if (kind == NormKind::layer) {
        for (std::int64_t d = 0; d < n; ++d) e.mean += entry(d) / static_cast<double>(n);
      }
      for (std::int64_t d = 0; d < n; ++d) {
        e.variance += (entry(d) - e.mean) * (entry(d) - e.mean) / static_cast<double>(n);
      }
      e.terms = {{entry(i[3]), w ? w->view().at({i[3]}) : 1}};
      e.has_addend = b != nullptr;
      if (b) e.addend = b->view().at({i[3]});
      return with_value(std::move(e), value, i);
    };
  }
};

AttentionTrace attention_of(const Trace& trace, const AttentionOptions& options,
                            const std::string& prefix = "") {
  const auto find = [&](std::string_view name) { return trace.find(prefix + std::string(name)); };
  AttentionTrace result;
  result.query = find("query_norm") ? find("query_norm") : find("query");
  result.key = find("key_norm") ? find("key_norm") : find("key");
  result.value = find("value");
  result.scaled = find("scores");
  result.softcapped = find("softcapped");
  result.masked = find("masked");
  result.weights = find("weights");
  result.heads = find("heads");
  result.options = options;
  return result;
}

std::string with_bias(std::string formula, const LinearWeights& weights, std::string_view bias) {
  return weights.bias.has_value() ? fmt::format("{} + {}", formula, bias) : formula;
}

void label_rows(Step& step, const TokenLabels& tokens) {
  if (step.value->shape().rank() >= 2 &&
      step.value->dim(-2) == static_cast<std::int64_t>(tokens.size())) {
    step.rows = tokens;
  }
}

void label_all(Explanation& explanation, const TokenLabels& tokens) {
  for (const char* name : {"input", "query", "key", "value", "heads", "concat", "output"}) {
    for (Step& step : explanation.steps) {
      if (step.name == name) label_rows(step, tokens);
    }
  }
}

// Names for as many queries, and as many keys, as there are names.
AttentionLabels token_labels(const TokenLabels& tokens, const Tensor& scores) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  AttentionLabels labels;
  if (scores.dim(2) == count) labels.query_names = tokens;
  if (scores.dim(3) == count) labels.key_names = tokens;
  return labels;
}

}  // namespace

Explanation explain_attention(const TensorView& query, const TensorView& key,
                              const TensorView& value, const AttentionOptions& options,
                              const TokenLabels& tokens) {
  const DType real = query.dtype() == DType::f64 || options.accumulate == Accumulate::f64
                         ? DType::f64
                         : DType::f32;
  const Dims pairs{query.dim(0), query.dim(1), query.dim(2), key.dim(2)};
  Tensor out(real, {query.dim(0), query.dim(1), query.dim(2), value.dim(3)});
  Tensor scores(real, pairs), softcapped(real, pairs), masked(real, pairs), weights(real, pairs);
  attention_forward(
      query, key, value, out, options,
      {.scores = scores, .softcapped = softcapped, .masked = masked, .weights = weights});
  AttentionTrace trace;
  trace.query = shared_copy(query);
  trace.key = shared_copy(key);
  trace.value = shared_copy(value);
  trace.scaled = share(std::move(scores));
  if (options.softcap) trace.softcapped = share(std::move(softcapped));
  if (hides_keys(options) || options.bias.has_value() || options.alibi.has_value()) {
    trace.masked = share(std::move(masked));
  }
  trace.weights = share(std::move(weights));
  trace.heads = share(std::move(out));
  trace.options = options;
  Builder b;
  b.explanation.block = "attention";
  b.explanation.text = "block.attention";
  AttentionLabels labels = token_labels(tokens, *trace.scaled);
  labels.tokens = "Tq";
  labels.keys = "Tk";
  labels.key_width = "D";
  labels.value_width = "Dv";
  b.add("query", "Q", trace.query, {"B", "heads", "Tq", "D"});
  b.add("key", "K", trace.key, {"B", "heads", "Tk", "D"});
  b.add("value", "V", trace.value, {"B", "heads", "Tk", "Dv"});
  add_attention_steps(b.explanation, trace, labels);
  // With nothing around it, what the heads give is the output.
  Step& last = b.explanation.steps.back();
  last.name = "output";
  last.text = "step.attention_output";
  label_all(b.explanation, tokens);
  return std::move(b.explanation);
}

Explanation explain_simple(const TensorView& x, const BlockOptions& options,
                           const TokenLabels& tokens) {
  const TensorView batch = x.rank() == 2 ? x.unflatten(0, {1, x.dim(0)}) : x;
  const TensorView one_head = batch.unflatten(0, {batch.dim(0), 1});  // [B, 1, T, d]
  AttentionOptions attention = options.attention;
  if (!attention.scale) attention.scale = 1;
  // The block gives the very bits of attention on X three times, so the steps are attention's.
  Tensor out(x.dtype(), x.shape());
  Trace trace;
  simple_attention_forward(x, out, trace.observe(options));
  Explanation inner = explain_attention(one_head, one_head, one_head, attention, tokens);
  Builder b;
  b.explanation.block = "simple";
  b.explanation.text = "block.simple";
  const SharedTensor input = shared_copy(x);
  label_rows(b.add("input", "X", input, x.rank() == 2 ? Axes{"T", "d"} : Axes{"B", "T", "d"}),
             tokens);
  for (Step& step : inner.steps) {
    if (step.name == "query" || step.name == "key" || step.name == "value") continue;
    if (step.name == "scores") step.formula = "S = X·Xᵀ";
    if (step.name == "output") {
      step.formula = "Z = P·X";
      step.text = "step.simple_output";
    }
    b.explanation.steps.push_back(std::move(step));
  }
  return std::move(b.explanation);
}

Explanation explain_transformer(const TransformerWeights& w, const TensorView& x,
                                const TensorView& memory, const BlockOptions& options,
                                const TokenLabels& tokens) {
  Trace trace;
  Tensor out(x.dtype(), {x.dim(0), x.dim(1), w.output.weight.dim(0)});
  const BlockOptions observed = trace.observe(options);
  if (memory.has_value()) {
    transformer_forward(w, x, memory, out, observed);
  } else {
    transformer_forward(w, x, out, observed);
  }
  Builder b;
  b.explanation.block = "transformer";
  b.explanation.text = "block.transformer";
  const SharedTensor input = trace.find("input");
  const SharedTensor source = memory.has_value() ? trace.find("key_input") : input;
  const std::string X = "X", M = memory.has_value() ? "M" : "X";
  const std::string tq = memory.has_value() ? "Tq" : "T", tk = memory.has_value() ? "Tk" : "T";
  b.add("input", "X", input, {"B", tq, "d_model"});
  if (memory.has_value()) b.add("memory", "M", source, {"B", tk, "d_model"});
  b.add("w_query", "W^Q", as_factor(w.query.weight), {"d_model", "h·d_k"});
  b.add("w_key", "W^K", as_factor(w.key.weight), {"d_model", "h·d_k"});
  b.add("w_value", "W^V", as_factor(w.value.weight), {"d_model", "h·d_v"});
  const auto project = [&](std::string name, std::string formula, const SharedTensor& from,
                           const LinearWeights& weights, const std::string& T, std::string width) {
    const SharedTensor value = trace.find(name);
    const std::int64_t d = value->dim(3);
    b.add_projection(
        std::move(name), with_bias(std::move(formula), weights, "b"), value,
        {"B", "h", T, std::move(width)}, from, 2, weights,
        [d](const Dims& i) { return i[1] * d + i[3]; },
        [](const Dims& i) {
          return Dims{i[0], i[2], 0};
        });
  };
  project("query", fmt::format("Q = {}·W^Q", X), input, w.query, tq, "d_k");
  project("key", fmt::format("K = {}·W^K", M), source, w.key, tk, "d_k");
  project("value", fmt::format("V = {}·W^V", M), source, w.value, tk, "d_v");
  AttentionLabels labels = token_labels(tokens, *trace.find("scores"));
  labels.heads = "h";
  labels.tokens = tq;
  labels.keys = tk;
  add_attention_steps(b.explanation, attention_of(trace, options.attention), labels);
  const SharedTensor concat = trace.find("concat"), output = trace.find("output");
  const std::int64_t dv = trace.find("heads")->dim(3);
  b.add_moved("concat", "C = Concat(head_1, …, head_h)", concat, {"B", tq, "h·d_v"}, "heads",
              [dv](const Dims& i) {
                return Dims{i[0], i[2] / dv, i[1], i[2] % dv};
              });
  b.add("w_output", "W^O", as_factor(w.output.weight), {"h·d_v", "d_model"});
  b.add_projection(
      "output", with_bias("Y = C·W^O", w.output, "b"), output, {"B", tq, "d_model"}, concat, 2,
      w.output, [](const Dims& i) { return i[2]; }, [](const Dims& i) { return i; });
  label_all(b.explanation, tokens);
  return std::move(b.explanation);
}

namespace {

// ViT and GPT: one projection to [Q | K | V]. norms: of the queries and keys, where there are any.
Explanation explain_fused(std::string block, const Trace& trace, const LinearWeights& qkv,
                          const LinearWeights& proj, const AttentionOptions& attention,
                          const std::string& T, const TokenLabels& tokens,
                          const std::optional<NormWeights>& q_norm = {},
                          const std::optional<NormWeights>& k_norm = {}) {
  Builder b;
  b.explanation.text = fmt::format("block.{}", block);
  b.explanation.block = std::move(block);
  const SharedTensor input = trace.find("input"), fused = trace.find("qkv");
  const std::int64_t dim = fused->dim(2) / 3, heads = trace.find("query")->dim(1);
  const std::int64_t head_dim = dim / heads;
  b.add("input", "x", input, {"B", T, "dim"});
  const char* names[] = {"query", "key", "value"};
  const char* letters[] = {"q", "k", "v"};
  for (int n = 0; n < 3; ++n) {
    const TensorView part = qkv.weight.slice(0, n * dim, (n + 1) * dim);
    b.add(fmt::format("w_{}", names[n]), fmt::format("W{}", letters[n]), as_factor(part),
          {"dim", "dim"});
  }
  b.add_projection(
      "qkv", with_bias("qkv = x·[Wq|Wk|Wv]", qkv, "b"), fused, {"B", T, "3·dim"}, input, 2, qkv,
      [](const Dims& i) { return i[2]; }, [](const Dims& i) { return i; });
  for (int n = 0; n < 3; ++n) {
    b.add_moved(
        names[n],
        fmt::format("{} = qkv.reshape(B, {}, 3, heads, head_dim).permute(2, 0, 3, 1, 4)[{}]",
                    letters[n], T, n),
        trace.find(names[n]), {"B", "heads", T, "head_dim"}, "qkv", [=](const Dims& i) {
          return Dims{i[0], i[2], n * dim + i[1] * head_dim + i[3]};
        });
  }
  const Axes axes = {"B", "heads", T, "head_dim"};
  if (q_norm) {
    b.add_norm("query_norm", "q = norm(q)", trace.find("query_norm"), axes, trace.find("query"),
               *q_norm);
  }
  if (k_norm) {
    b.add_norm("key_norm", "k = norm(k)", trace.find("key_norm"), axes, trace.find("key"), *k_norm);
  }
  AttentionLabels labels = token_labels(tokens, *trace.find("scores"));
  labels.tokens = labels.keys = T;
  labels.key_width = labels.value_width = "head_dim";
  add_attention_steps(b.explanation, attention_of(trace, attention), labels);
  const SharedTensor concat = trace.find("concat"), output = trace.find("output");
  b.add_moved("concat", "C = Concat(head_1, …, head_h)", concat, {"B", T, "dim"}, "heads",
              [head_dim](const Dims& i) {
                return Dims{i[0], i[2] / head_dim, i[1], i[2] % head_dim};
              });
  b.add("w_output", "Wo", as_factor(proj.weight), {"dim", "dim"});
  b.add_projection(
      "output", with_bias("y = C·Wo", proj, "b"), output, {"B", T, "dim"}, concat, 2, proj,
      [](const Dims& i) { return i[2]; }, [](const Dims& i) { return i; });
  label_all(b.explanation, tokens);
  return std::move(b.explanation);
}

}  // namespace

Explanation explain_vit(const VitWeights& w, const TensorView& x, const BlockOptions& options,
                        const TokenLabels& tokens) {
  Trace trace;
  Tensor out(x.dtype(), {x.dim(0), x.dim(1), w.proj.weight.dim(0)});
  vit_forward(w, x, out, trace.observe(options));
  return explain_fused("vit", trace, w.qkv, w.proj, options.attention, "N", tokens, w.q_norm,
                       w.k_norm);
}

Explanation explain_gpt(const GptWeights& w, const TensorView& x, const BlockOptions& options,
                        const TokenLabels& tokens) {
  Trace trace;
  Tensor out(x.dtype(), {x.dim(0), x.dim(1), w.c_proj.weight.dim(0)});
  gpt_forward(w, x, out, trace.observe(options));
  AttentionOptions attention = options.attention;
  if (attention.causal == Causal::none) attention.causal = Causal::aligned;  // as the block does
  return explain_fused("gpt", trace, w.c_attn, w.c_proj, attention, "T", tokens);
}

}  // namespace qkv
