#include "explain/trace.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/parallel.h"

namespace qkv {

const Step* Explanation::find(std::string_view name) const {
  for (const Step& step : steps) {
    if (step.name == name) return &step;
  }
  return nullptr;
}

void ask_for_interrupt() {
  parallel_for(2, 1, [](std::int64_t, int) {});  // which asks between its two items
}

SharedTensor share(Tensor tensor) { return std::make_shared<const Tensor>(std::move(tensor)); }

BlockOptions Trace::observe(const BlockOptions& options) {
  BlockOptions observed = options;
  observed.observer = [this](std::string_view step, const TensorView& value) {
    ask_for_interrupt();
    steps_[std::string(step)] = share(Tensor::copy_of(value));
  };
  return observed;
}

SharedTensor Trace::find(std::string_view step) const {
  const auto found = steps_.find(step);
  return found == steps_.end() ? nullptr : found->second;
}

Step make_step(std::string name, std::string formula, const SharedTensor& value,
               std::vector<std::string> axes) {
  Step step;
  step.text = fmt::format("step.{}", name.substr(name.rfind('.') + 1));
  step.name = std::move(name);
  step.formula = std::move(formula);
  step.value = value;
  step.axes = std::move(axes);
  step.expand = [value](const Dims& i) {
    Expansion e;
    e.value = value->view().at(i);
    return e;
  };
  return step;
}

Expansion copied_from(std::string source, const Dims& index) {
  Expansion e;
  e.kind = Expansion::Kind::copied;
  e.source = std::move(source);
  e.source_index = index;
  return e;
}

Expansion expand_linear(const Tensor& x, const Dims& x_index, int x_axis, const Tensor& weight,
                        const Tensor* bias, std::int64_t o) {
  Expansion e;
  e.kind = Expansion::Kind::products;
  Dims index = x_index;
  for (std::int64_t i = 0; i < x.dim(x_axis); ++i) {
    index[x_axis] = i;
    e.terms.emplace_back(x.view().at(index), weight.view().at({o, i}));
  }
  if (bias != nullptr) {
    e.has_addend = true;
    e.addend = bias->view().at({o});
  }
  return e;
}

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

double at(const Tensor& t, const Dims& index) { return t.view().at(index); }

// Entries of the attention inside a block, whatever its layout.
class Parts {
 public:
  Parts(const AttentionTrace& trace, std::string_view prefix) : t_(trace), prefix_(prefix) {
    const TensorView q = token_major(*t_.query), k = token_major(*t_.key);
    const TensorView v = token_major(*t_.value);
    // Q·Kᵀ before the scale: the engine's own product, with a scale of 1.
    Tensor products(t_.scaled->dtype(), t_.scaled->shape());
    Tensor out(t_.query->dtype(), {q.dim(0), q.dim(1), q.dim(2), v.dim(3)});
    AttentionOptions plain;
    plain.scale = 1;
    plain.accumulate = t_.options.accumulate;
    plain.key_lengths = t_.options.key_lengths;  // what does not exist has no product either
    plain.query_starts = t_.options.query_starts;
    plain.key_starts = t_.options.key_starts;
    AttentionStages stages;
    stages.scores = products;
    attention_forward(q, k, v, out, plain, stages);
    scores_ = share(std::move(products));
    const double usual = 1 / std::sqrt(static_cast<double>(q.dim(3)));
    scale_ = t_.options.scale.value_or(usual);
    if (scale_ == usual) root_ = q.dim(3);
    cap_ = t_.options.softcap.value_or(0);
    group_ = q.dim(1) / k.dim(1);
    // Entries are expanded later, when the caller's arrays may be gone.
    if (t_.options.bias.has_value()) bias_ = share(Tensor::copy_of(t_.options.bias));
    if (t_.options.sinks.has_value()) sinks_ = share(Tensor::copy_of(t_.options.sinks));
    has_alibi_ = t_.options.alibi.has_value();
    t_.options = AttentionOptions();
  }

  const SharedTensor& scores() const { return scores_; }
  bool divides_by_root() const { return root_ != 0; }

  Expansion score(const Dims& i) const {
    Expansion e;
    if (at(*scores_, i) == kMinusInfinity) return hidden();
    e.kind = Expansion::Kind::products;
    for (std::int64_t d = 0; d < token_major(*t_.query).dim(3); ++d) {
      e.terms.emplace_back(element(t_.query, i[0], i[1], i[2], d),
                           element(t_.key, i[0], i[1] / group_, i[3], d));
    }
    return e;
  }

  Expansion scaled(const Dims& i) const {
    Expansion e;
    if (at(*t_.scaled, i) == kMinusInfinity) return hidden();
    e.kind = Expansion::Kind::products;
    e.terms.emplace_back(at(*scores_, i), scale_);
    e.root = root_;
    return e;
  }

  Expansion softcapped(const Dims& i) const {
    Expansion e;
    if (at(*t_.softcapped, i) == kMinusInfinity) return hidden();
    e.kind = Expansion::Kind::softcap;
    e.terms.emplace_back(at(*t_.scaled, i), cap_);
    return e;
  }

  Expansion masked(const Dims& i) const {
    Expansion e;
    const double value = at(*t_.masked, i),
                 before = at(t_.softcapped ? *t_.softcapped : *t_.scaled, i);
    if (value == kMinusInfinity) {
      return hidden();
    } else if (value == before) {
      return copied_from(prefix_ + (t_.softcapped ? "softcapped" : "scaled"), i);
    } else {
      e.kind = Expansion::Kind::sum;
      e.terms.emplace_back(before, 1);
      double bias = 0;
      if (bias_) {
        bias = bias_->view().broadcast_to(t_.scaled->shape()).at(i);
        e.terms.emplace_back(bias, 1);
      }
      if (has_alibi_) e.terms.emplace_back(value - before - bias, 1);
    }
    return e;
  }

  Expansion weight(const Dims& i) const {
    const Tensor& scores = t_.masked ? *t_.masked : t_.softcapped ? *t_.softcapped : *t_.scaled;
    if (at(scores, i) == kMinusInfinity) return hidden();
    Expansion e;
    e.kind = Expansion::Kind::softmax;
    e.largest = kMinusInfinity;
    Dims row = i;
    for (row[3] = 0; row[3] < scores.dim(3); ++row[3]) {
      const double s = at(scores, row);
      if (s == kMinusInfinity) continue;
      if (row[3] == i[3]) e.chosen = static_cast<std::int64_t>(e.scores.size());
      e.scores.push_back(s);
      e.largest = std::max(e.largest, s);
    }
    if (sinks_) {
      e.scores.push_back(sinks_->view().at({i[1]}));
      e.largest = std::max(e.largest, e.scores.back());
    }
    return e;
  }

  // i is in the layout of heads.
  Expansion head(const Dims& i) const {
    const std::int64_t token = t_.channel_first ? i[3] : i[2], d = t_.channel_first ? i[2] : i[3];
    Expansion e;
    e.kind = Expansion::Kind::products;
    for (std::int64_t j = 0; j < t_.weights->dim(3); ++j) {
      const double w = t_.weights->view().at({i[0], i[1], token, j});
      // What is hidden is not read, so it is no term either.
      if (t_.masked && t_.masked->view().at({i[0], i[1], token, j}) == kMinusInfinity) continue;
      e.terms.emplace_back(w, element(t_.value, i[0], i[1] / group_, j, d));
    }
    return e;
  }

 private:
  static Expansion hidden() {
    Expansion e;
    e.kind = Expansion::Kind::hidden;
    return e;
  }
  TensorView token_major(const Tensor& t) const {
    return t_.channel_first ? t.view().transpose(2, 3) : t.view();
  }
  double element(const SharedTensor& t, std::int64_t b, std::int64_t h, std::int64_t token,
                 std::int64_t d) const {
    return token_major(*t).at({b, h, token, d});
  }

  AttentionTrace t_;
  std::string prefix_;
  SharedTensor scores_, bias_, sinks_;
  bool has_alibi_ = false;
  double scale_ = 1, cap_ = 0;
  std::int64_t root_ = 0, group_ = 1;
};

// "masked = scaled + bias − slope·|i + offset − j| + mask", as far as the options have it.
std::string masked_formula(const std::string& last, const AttentionOptions& options) {
  std::string formula = fmt::format("masked = {}", last);
  if (options.bias.has_value()) formula += " + bias";
  if (options.alibi.has_value()) formula += " − slope·|i + offset − j|";
  return hides_keys(options) ? formula + " + mask" : formula;
}

}  // namespace

bool hides_keys(const AttentionOptions& options) {
  return options.causal != Causal::none || options.window.left >= 0 || options.window.right >= 0 ||
         options.mask.has_value() || options.key_lengths.has_value() ||
         options.query_starts.has_value();
}

void add_attention_steps(Explanation& explanation, const AttentionTrace& trace,
                         const AttentionLabels& labels, std::string_view prefix) {
  const auto parts = std::make_shared<const Parts>(trace, prefix);
  const bool first = trace.channel_first;
  const auto add = [&](std::string_view name, std::string formula, const SharedTensor& value,
                       std::vector<std::string> axes, auto expand) {
    Step step =
        make_step(fmt::format("{}{}", prefix, name), std::move(formula), value, std::move(axes));
    step.shares = name == "weights";
    const bool pairs = step.axes[2] != labels.value_width && step.axes[3] != labels.value_width;
    step.tokens_last = first && !pairs;
    if (step.tokens_last) {
      step.cols = labels.query_names;
    } else {
      step.rows = labels.query_names;
      if (pairs) step.cols = labels.key_names;
    }
    step.expand = [value, expand](const Dims& i) {
      Expansion e = expand(i);
      e.value = at(*value, i);
      return e;
    };
    explanation.steps.push_back(std::move(step));
  };
  const std::vector<std::string> pairs = {"B", labels.heads, labels.tokens, labels.keys};
  add("scores", first ? "S = Qᵀ·K" : "S = Q·Kᵀ", parts->scores(), pairs,
      [parts](const Dims& i) { return parts->score(i); });
  const std::string root = parts->divides_by_root()
                               ? fmt::format("scaled = S/√{}", labels.key_width)
                               : fmt::format("scaled = {}·S", *trace.options.scale);
  add("scaled", root, trace.scaled, pairs, [parts](const Dims& i) { return parts->scaled(i); });
  std::string last = "scaled";
  if (trace.softcapped) {
    add("softcapped", fmt::format("softcapped = c·tanh(scaled/c), c = {}", *trace.options.softcap),
        trace.softcapped, pairs, [parts](const Dims& i) { return parts->softcapped(i); });
    last = "softcapped";
  }
  if (trace.masked) {
    add("masked", masked_formula(last, trace.options), trace.masked, pairs,
        [parts](const Dims& i) { return parts->masked(i); });
    last = "masked";
  }
  add("weights",
      trace.options.sinks.has_value() ? fmt::format("P = exp({0}) / (Σ exp({0}) + exp(sink))", last)
                                      : fmt::format("P = softmax({})", last),
      trace.weights, pairs, [parts](const Dims& i) { return parts->weight(i); });
  add("heads", first ? "O = V·Pᵀ" : "O = P·V", trace.heads,
      first ? std::vector<std::string>{"B", labels.heads, labels.value_width, labels.tokens}
            : std::vector<std::string>{"B", labels.heads, labels.tokens, labels.value_width},
      [parts](const Dims& i) { return parts->head(i); });
}

}  // namespace qkv
