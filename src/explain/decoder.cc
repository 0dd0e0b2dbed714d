// One layer's attention of a whole decoder, on a real text: the decoder runs, observed, and what it
// shows becomes steps.

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "explain/explain.h"
#include "explain/trace.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// What the layer showed, with a batch of 1 in front where the decoder has none.
class LayerTrace {
 public:
  explicit LayerTrace(std::int64_t layer) : prefix_(fmt::format("h.{}.", layer)) {}

  StepObserver observer() {
    return [this](std::string_view name, const TensorView& value) {
      ask_for_interrupt();
      if (!name.starts_with(prefix_)) return;
      Tensor copied = Tensor::copy_of(value);
      if (value.rank() == 2) {
        Tensor batched(copied.dtype(), {1, value.dim(0), value.dim(1)});
        copy(value, batched.view().select(0, 0));
        copied = std::move(batched);
      }
      steps_[std::string(name.substr(prefix_.size()))] = share(std::move(copied));
    };
  }
  const SharedTensor& at(std::string_view name) const { return steps_.find(name)->second; }

 private:
  std::string prefix_;
  std::map<std::string, SharedTensor, std::less<>> steps_;
};

SharedTensor with_batch(const Tensor& heads) {
  Tensor result(heads.dtype(), {1, heads.dim(0), heads.dim(1), heads.dim(2)});
  copy(heads.view(), result.view().select(0, 0));
  return share(std::move(result));
}

// Everything that the steps' expansions need.
struct Run {
  SharedTensor input, query, key, value;  // query: before a rope; key and value: of the new tokens
  SharedTensor keys, values;              // as attention reads them, those of the cache first
  std::int64_t cached = 0, D = 0, half = 0;
  std::vector<double> frequencies;
  RopePairing pairing = RopePairing::half_split;
};

Expansion given(const SharedTensor& tensor, const Dims& i) {
  Expansion e;
  e.value = tensor->view().at(i);
  return e;
}

class Steps {
 public:
  Steps(Explanation& explanation, std::shared_ptr<const Run> run)
      : explanation_(explanation), run_(std::move(run)) {}

  Step& add(std::string name, std::string formula, const SharedTensor& value,
            std::vector<std::string> axes) {
    explanation_.steps.push_back(
        make_step(std::move(name), std::move(formula), value, std::move(axes)));
    return explanation_.steps.back();
  }

  void add_weight(std::string name, std::string formula, const LinearWeights& weights,
                  std::vector<std::string> axes) {
    add(std::move(name), std::move(formula),
        share(Tensor::copy_of(weights.weight.transpose(0, 1), DType::f32)), std::move(axes));
  }

  // A head's entry d of a token: Σ x·W + b. Tokens before `cached` are given.
  void add_projection(std::string name, std::string formula, const SharedTensor& value,
                      std::vector<std::string> axes, const LinearWeights& weights,
                      std::int64_t cached) {
    const std::string with_bias =
        weights.bias.has_value() ? fmt::format("{} + b", formula) : formula;
    Step& step = add(std::move(name), with_bias, value, std::move(axes));
    const SharedTensor w = share(Tensor::copy_of(weights.weight, DType::f32));
    const SharedTensor b =
        weights.bias.has_value() ? share(Tensor::copy_of(weights.bias, DType::f32)) : nullptr;
    step.expand = [run = run_, value, w, b, cached](const Dims& i) {
      if (i[2] < cached) return given(value, i);
      Expansion e =
          expand_linear(*run->input, {0, i[2] - cached, 0}, 2, *w, b.get(), i[1] * run->D + i[3]);
      e.value = value->view().at(i);
      return e;
    };
  }

  // An entry after the rope: two products. Tokens before `cached` are given.
  void add_rope(std::string name, std::string formula, const SharedTensor& value,
                std::vector<std::string> axes, const SharedTensor& before, std::int64_t cached) {
    Step& step = add(std::move(name), std::move(formula), value, std::move(axes));
    step.expand = [run = run_, value, before, cached](const Dims& i) {
      if (i[2] < cached) return given(value, i);
      const bool interleaved = run->pairing == RopePairing::interleaved;
      const std::int64_t d = i[3], half = run->half;
      Expansion e;
      e.value = value->view().at(i);
      const auto x = [&](std::int64_t channel) {
        return before->view().at({0, i[1], i[2] - cached, channel});
      };
      if (d >= 2 * half) {
        e.kind = Expansion::Kind::products;
        e.terms = {{x(d), 1}};
        return e;
      }
      const bool first = interleaved ? d % 2 == 0 : d < half;
      const std::int64_t pair = interleaved ? d / 2 : d % half;
      const std::int64_t other = interleaved ? d ^ 1 : first ? d + half : d - half;
      const std::int64_t position = run->cached + i[2] - cached;
      const double angle =
          static_cast<double>(position) * run->frequencies[static_cast<std::size_t>(pair)];
      e.kind = Expansion::Kind::products;
      e.terms = {{x(d), std::cos(angle)}, {x(other), first ? -std::sin(angle) : std::sin(angle)}};
      return e;
    };
  }

 private:
  Explanation& explanation_;
  std::shared_ptr<const Run> run_;
};

// Rows of queries are the new tokens, rows of keys all of them; ‹…› marks those of the cache.
struct Labels {
  TokenLabels queries, keys;

  Labels(const TokenLabels& tokens, std::int64_t cached) {
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const bool old = static_cast<std::int64_t>(t) < cached;
      keys.push_back(old ? fmt::format("‹{}›", tokens[t]) : tokens[t]);
      if (!old) queries.push_back(tokens[t]);
    }
  }
  void put(Explanation& explanation) const {
    for (Step& step : explanation.steps) {
      if (step.value->shape().rank() < 3 || !step.rows.empty()) continue;
      const bool of_keys = step.name == "value" || step.name == "key_rope" ||
                           (step.name == "key" && explanation.find("key_rope") == nullptr);
      step.rows = of_keys ? keys : queries;
    }
  }
};

void check_request(const Decoder& decoder, std::size_t tokens, const DecoderPlace& place) {
  const auto refuse = [](std::string_view subject, std::string_view expected, std::int64_t found) {
    throw Error(ErrorKind::value, "explain_decoder", subject, expected, fmt::format("{}", found));
  };
  if (place.layer < 0 || place.layer >= decoder.layers()) {
    refuse("layer", fmt::format("one of the {} layers, from 0 on", decoder.layers()), place.layer);
  }
  if (place.cached < 0 || place.cached >= static_cast<std::int64_t>(tokens)) {
    refuse("cached", fmt::format("fewer than the {} tokens", tokens), place.cached);
  }
}

}  // namespace

Explanation explain_decoder(const Decoder& decoder, const DecoderWeights& weights,
                            std::span<const std::int32_t> tokens, const DecoderPlace& place,
                            const TokenLabels& labels) {
  check_request(decoder, tokens.size(), place);
  const auto total = static_cast<std::int64_t>(tokens.size());
  DecoderSessionOptions session_options;
  session_options.capacity = session_options.chunk = total;
  session_options.threads = place.threads;
  DecoderSession session(decoder, session_options);
  const auto cached = static_cast<std::size_t>(place.cached);
  if (cached > 0) session.append(tokens.first(cached));
  LayerTrace trace(place.layer);
  session.append(tokens.subspan(cached), trace.observer());

  const DecoderShape& shape = decoder.shape();
  const DecoderLayerWeights& w = weights.layers[static_cast<std::size_t>(place.layer)];
  auto run = std::make_shared<Run>();
  run->input = trace.at("norm1");
  run->query = trace.at("query");
  run->key = trace.at("key");
  run->value = trace.at("value");
  run->keys = with_batch(session.keys(place.layer));
  run->values = with_batch(session.values(place.layer));
  run->cached = place.cached;
  run->D = shape.head_dim;
  run->half = static_cast<std::int64_t>(weights.rope_frequencies.size());
  run->frequencies = weights.rope_frequencies;
  run->pairing = shape.pairing;

  Explanation e;
  e.block = "decoder";
  e.text = "block.decoder";
  Steps steps(e, run);
  const std::string kv = shape.heads == shape.kv_heads ? "heads" : "kv_heads";
  const std::vector<std::string> q_axes{"B", "heads", "T", "head_dim"};
  const std::vector<std::string> new_axes{"B", kv, "T", "head_dim"};
  const std::vector<std::string> key_axes{"B", kv, "keys", "head_dim"};
  steps.add("input", "x = norm(h)", run->input, {"B", "T", "dim"});
  steps.add_weight("w_query", "Wq", w.query, {"dim", "heads·head_dim"});
  steps.add_weight("w_key", "Wk", w.key, {"dim", fmt::format("{}·head_dim", kv)});
  steps.add_weight("w_value", "Wv", w.value, {"dim", fmt::format("{}·head_dim", kv)});
  steps.add_projection("query", "q = x·Wq", run->query, q_axes, w.query, 0);
  if (shape.rope) {
    steps.add_projection("key", "k = x·Wk", run->key, new_axes, w.key, 0);
  } else {
    steps.add_projection("key", "k = x·Wk", run->keys, key_axes, w.key, place.cached);
  }
  steps.add_projection("value", "v = x·Wv", run->values, key_axes, w.value, place.cached);
  if (shape.rope) {
    steps.add_rope("query_rope", "q = rope(q, position)", trace.at("query_rope"), q_axes,
                   run->query, 0);
    steps.add_rope("key_rope", "k = rope(k, position)", run->keys, key_axes, run->key,
                   place.cached);
  }
  AttentionTrace attention;
  attention.query = shape.rope ? trace.at("query_rope") : run->query;
  attention.key = run->keys;
  attention.value = run->values;
  attention.scaled = trace.at("scores");
  attention.masked = trace.at("masked");
  attention.weights = trace.at("weights");
  attention.heads = trace.at("heads");
  attention.options.causal = Causal::aligned;
  attention.options.offset = place.cached;
  const Labels names(labels, place.cached);
  AttentionLabels words;
  words.keys = "keys";
  words.key_width = words.value_width = "head_dim";
  words.query_names = names.queries;
  words.key_names = names.keys;
  add_attention_steps(e, attention, words);

  const SharedTensor concat = trace.at("concat"), output = trace.at("projected");
  Step& joined =
      steps.add("concat", "C = Concat(head_1, …, head_h)", concat, {"B", "T", "heads·head_dim"});
  joined.expand = [concat, D = shape.head_dim](const Dims& i) {
    Expansion moved = copied_from("heads", {i[0], i[2] / D, i[1], i[2] % D});
    moved.value = concat->view().at(i);
    return moved;
  };
  steps.add_weight("w_output", "Wo", w.output, {"heads·head_dim", "dim"});
  Step& last = steps.add("output", w.output.bias.has_value() ? "y = C·Wo + b" : "y = C·Wo", output,
                         {"B", "T", "dim"});
  const SharedTensor wo = share(Tensor::copy_of(w.output.weight, DType::f32));
  const SharedTensor bo =
      w.output.bias.has_value() ? share(Tensor::copy_of(w.output.bias, DType::f32)) : nullptr;
  last.expand = [concat, output, wo, bo](const Dims& i) {
    Expansion sum = expand_linear(*concat, i, 2, *wo, bo.get(), i[2]);
    sum.value = output->view().at(i);
    return sum;
  };
  names.put(e);

  const std::string key_step = shape.rope ? "key_rope" : "key";
  if (place.cached > 0) {
    e.remarks.push_back({key_step,
                         "decoder.cached",
                         {fmt::format("{}", place.cached), fmt::format("{}", place.cached - 1),
                          fmt::format("{}", total - place.cached)}});
  } else {
    e.remarks.push_back({key_step, "decoder.all_new", {fmt::format("{}", total)}});
  }
  if (shape.heads != shape.kv_heads) {
    e.remarks.push_back({"weights",
                         "decoder.grouped",
                         {fmt::format("{}", shape.heads), fmt::format("{}", shape.kv_heads),
                          fmt::format("{}", shape.heads / shape.kv_heads)}});
  }
  return e;
}

}  // namespace qkv
