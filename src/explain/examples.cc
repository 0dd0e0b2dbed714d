// The worked examples. Small ones compute in f64, so that what is printed is the true arithmetic;
// the two of real size in f32, as models do.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "explain/explain.h"
#include "explain/generator.h"
#include "explain/trace.h"
#include "qkv/error.h"

namespace qkv {
namespace {

Tensor numbers(const Dims& shape, std::initializer_list<double> values) {
  Tensor result(DType::f64, shape);
  std::copy(values.begin(), values.end(), result.as<double>().begin());
  return result;
}

void name_example(Explanation& e, std::string_view name) {
  e.block = name;
  e.text = fmt::format("example.{}", name);
}

Step table(std::string name, std::string formula, Tensor value, std::vector<std::string> axes) {
  Step step;
  step.text = fmt::format("step.{}", name);
  step.name = std::move(name);
  step.formula = std::move(formula);
  step.value = share(std::move(value));
  step.axes = std::move(axes);
  step.table = true;
  return step;
}

// A step's text is replaced by one that belongs to the example.
void tell(Explanation& e, std::string_view step, std::string_view text) {
  for (Step& s : e.steps) {
    if (s.name == step) s.text = text;
  }
}

Explanation dot() {
  const Tensor q = numbers({1, 1, 1, 3}, {1, 2, 3});
  const Tensor k = numbers({1, 1, 2, 3}, {2, 1, 0, 1, 2, 3});
  Explanation e = explain_attention(q, k, k, {.scale = 1.0});
  std::erase_if(e.steps, [](const Step& s) {
    return s.name != "query" && s.name != "key" && s.name != "scores";
  });
  name_example(e, "dot");
  tell(e, "scores", "example.dot.scores");
  e.expanded = {{"scores", {0, 0, 0, 0}}, {"scores", {0, 0, 0, 1}}};
  e.remarks.push_back({"scores", "example.dot.direction", {"14", "4"}});
  return e;
}

Explanation pixels() {
  // [C, H, W]: channel 0 of the four pixels, then channel 1, …
  const Tensor x = numbers({1, 4, 2, 2}, {1, 2, 3, 4, 0, 1, 0, 1, 1, 0, 1, 0, 2, 2, 2, 2});
  const Tensor qkv = numbers({6, 4}, {1, 0, 0, 0, 0, 0, 1, 0,    // q picks channels 0, 2
                                      0, 1, 0, 0, 1, 0, 0, 0,    // k picks 1, 0
                                      0, 0, 1, 0, 0, 1, 0, 0});  // v picks 2, 1
  DetectorWeights w;
  w.qkv.weight = qkv;
  w.heads = 1;
  w.key_dim = w.head_dim = 2;
  BlockOptions options;
  options.attention.accumulate = Accumulate::f64;
  Explanation e = explain_detector(w, x, options);
  name_example(e, "pixels");
  Step tokens =
      table("tokens", "X[p, c] = image[c, y, x],  p = W·y + x",
            Tensor::copy_of(x.view().flatten(2, 3).select(0, 0).transpose(0, 1)), {"N", "C"});
  tokens.rows = {"p0", "p1", "p2", "p3"};
  tokens.cols = {"c0", "c1", "c2", "c3"};
  e.steps.insert(e.steps.begin() + 1, std::move(tokens));
  // With no projection behind it, the image again has nothing new to show.
  std::erase_if(e.steps, [](const Step& s) { return s.name == "concat"; });
  e.steps.back().formula = "Y = heads.view(B, C, H, W)";
  e.steps.front().planes = true;
  for (const char* step : {"query", "key", "value"}) {
    for (std::int64_t d = 0; d < 2; ++d) e.expanded.push_back({step, {0, 0, d, 0}});
  }
  for (const char* step : {"scores", "scaled", "weights"})
    e.expanded.push_back({step, {0, 0, 0, 3}});
  for (std::int64_t d = 0; d < 2; ++d) e.expanded.push_back({"heads", {0, 0, d, 0}});
  tell(e, "w_query", "example.pixels.w_query");
  tell(e, "w_key", "example.pixels.w_key");
  tell(e, "w_value", "example.pixels.w_value");
  e.remarks.push_back({"qkv", "example.pixels.fused", {"(1, 6, 2, 2)"}});
  e.remarks.push_back({"value", "example.pixels.order", {"(1, 1, 2, 4)"}});
  e.remarks.push_back({"key", "example.pixels.note_key", {"1·0 + 0·1 + 1·0 + 2·0"}});
  tell(e, "input", "example.pixels.input");
  tell(e, "output", "example.pixels.output");
  return e;
}

// Weights of a convolution, uniform in ±1/√fan_in, as tenths of it would be unreadable anyway.
Tensor uniform(Generator& g, DType dtype, const Dims& shape, std::int64_t fan_in) {
  const double size = 1 / std::sqrt(static_cast<double>(fan_in));
  return Generator::fill(dtype, shape, [&] { return g.uniform() * size; });
}

Explanation channels() {
  Generator g(1);
  const auto tenths = [&](const Dims& shape) {
    return Generator::fill(DType::f64, shape, [&] { return g.tenths(); });
  };
  const DetectorDims dims = detector_dims(4, 2, 0.5);
  const Tensor x = tenths({1, 4, 3, 3}), qkv = tenths({dims.channels, 4}), proj = tenths({4, 4});
  const Tensor pe = tenths({4, 1, 3, 3});
  DetectorWeights w;
  w.qkv.weight = qkv;
  w.proj.weight = proj;
  w.pe.weight = pe;
  w.heads = dims.heads;
  w.key_dim = dims.key_dim;
  w.head_dim = dims.head_dim;
  Explanation e = explain_detector(w, x, {});
  name_example(e, "channels");
  Step sizes = table(
      "dims",
      "head_dim = dim // heads,  key_dim = int(head_dim·attn_ratio),  "
      "nh_kd = key_dim·heads,  h = dim + 2·nh_kd",
      numbers({1, 7},
              {4, 2, 0.5, static_cast<double>(dims.head_dim), static_cast<double>(dims.key_dim),
               static_cast<double>(dims.key_dim * dims.heads), static_cast<double>(dims.channels)}),
      {"1", "7"});
  sizes.cols = {"dim", "heads", "attn_ratio", "head_dim", "key_dim", "nh_kd", "h"};
  e.steps.insert(e.steps.begin(), std::move(sizes));
  for (const char* step : {"query", "scores", "scaled", "weights", "heads"}) {
    e.expanded.push_back({step, {0, 0, 0, 0}});
  }
  e.expanded.push_back({"concat", {0, 2, 0, 0}});  // the first channel of the second head
  for (const char* step : {"pe", "sum", "output"}) e.expanded.push_back({step, {0, 0, 0, 0}});
  e.remarks.push_back({"qkv", "example.channels.count", {"8", "2", "2", "4"}});
  e.remarks.push_back({"value", "example.channels.why", {}});
  return e;
}

// One entry of each step from Q to the output of several heads, and one column of their concat.
void expand_heads(Explanation& e, std::int64_t column) {
  for (const char* step : {"query", "scores", "scaled", "weights", "heads"}) {
    e.expanded.push_back({step, {0, 0, 0, 1}});
  }
  e.expanded.push_back({"concat", {0, 0, column}});
  e.expanded.push_back({"output", {0, 0, 0}});
}

const TokenLabels kJourney = {"Your", "journey", "starts"};

Tensor journey_x() { return numbers({3, 3}, {0.4, 0.1, 0.8, 0.5, 0.8, 0.6, 0.5, 0.8, 0.6}); }

Explanation journey() {
  const Tensor x = journey_x();
  Explanation e = explain_simple(x, {}, kJourney);
  name_example(e, "journey");
  // Nothing is scaled or hidden in it.
  std::erase_if(e.steps, [](const Step& s) { return s.name == "scaled" || s.name == "masked"; });
  for (Step& s : e.steps) {
    if (s.name == "weights") s.formula = "P = softmax(S)";
  }
  e.expanded = {{"scores", {0, 0, 0, 1}}, {"weights", {0, 0, 0, 1}}, {"output", {0, 0, 0, 1}}};
  const TensorView z = e.find("output")->value->view();
  const auto row = [&](std::int64_t i) {
    return fmt::format("[{:.4f} {:.4f} {:.4f}]", z.at({0, 0, i, 0}), z.at({0, 0, i, 1}),
                       z.at({0, 0, i, 2}));
  };
  e.remarks.push_back({"output", "example.journey.first_row", {"[0.4656 0.5592 0.6688]", row(0)}});
  e.remarks.push_back({"output", "example.journey.cut_off", {"0.4765 0.6358", row(1)}});
  return e;
}

Explanation causal() {
  const Tensor x = journey_x();
  BlockOptions options;
  options.attention.scale = 1 / std::sqrt(3.0);
  options.attention.causal = Causal::aligned;
  Explanation e = explain_simple(x, options, kJourney);
  name_example(e, "causal");
  for (Step& s : e.steps) {
    if (s.name == "scaled") s.formula = "scaled = S/√3";
    if (s.name == "masked") s.formula = "masked[i, j] = scaled[i, j] if j ≤ i, else −inf";
  }
  e.expanded = {{"scaled", {0, 0, 1, 0}},
                {"masked", {0, 0, 0, 1}},
                {"weights", {0, 0, 1, 0}},
                {"output", {0, 0, 1, 0}}};
  e.remarks.push_back({"weights", "example.causal.first_token", {}});
  e.remarks.push_back({"output", "example.causal.generation", {}});
  return e;
}

Explanation heads() {
  Generator g(2);
  const auto tenths = [&](const Dims& shape) {
    return Generator::fill(DType::f64, shape, [&] { return g.tenths(); });
  };
  const Tensor x = tenths({1, 3, 4}), wq = tenths({4, 4}), wk = tenths({4, 4});
  const Tensor wv = tenths({4, 4}), wo = tenths({4, 4});
  TransformerWeights w;
  w.query.weight = wq;
  w.key.weight = wk;
  w.value.weight = wv;
  w.output.weight = wo;
  w.heads = 2;
  Explanation e = explain_transformer(w, x, {}, {}, kJourney);
  name_example(e, "heads");
  expand_heads(e, 2);  // the first column of the second head
  e.remarks.push_back({"weights", "example.heads.differ", {}});
  return e;
}

// How scores, softmax and its gradient change with the width.
Explanation scaling() {
  constexpr std::int64_t kQueries = 256, kKeys = 8;
  const std::int64_t widths[] = {1, 4, 16, 64, 256, 1024};
  Tensor result(DType::f64, {6, 7});
  Generator g(3);
  for (std::int64_t n = 0; n < 6; ++n) {
    const std::int64_t d = widths[n];
    const auto normal = [&](std::int64_t rows) {
      return Generator::fill(DType::f64, {1, 1, rows, d}, [&] { return g.normal(); });
    };
    const Tensor q = normal(kQueries), k = normal(kKeys);
    result.view().set({n, 0}, static_cast<double>(d));
    for (int scaled = 0; scaled < 2; ++scaled) {
      Tensor out(DType::f64, {1, 1, kQueries, d}), scores(DType::f64, {1, 1, kQueries, kKeys});
      Tensor weights(DType::f64, {1, 1, kQueries, kKeys});
      AttentionOptions options;
      if (!scaled) options.scale = 1;
      attention_forward(q, k, k, out, options, {.scores = scores, .weights = weights});
      double square = 0, largest = 0, gradient = 0;
      for (double s : scores.as<double>()) square += s * s;
      for (std::int64_t i = 0; i < kQueries; ++i) {
        const auto w = weights.as<double>().subspan(static_cast<std::size_t>(i * kKeys), kKeys);
        largest += *std::max_element(w.begin(), w.end()) / kQueries;
        for (double p : w) gradient += p * (1 - p) / kQueries;  // trace of ∂P/∂S
      }
      result.view().set({n, 1 + 3 * scaled}, std::sqrt(square / (kQueries * kKeys)));
      result.view().set({n, 2 + 3 * scaled}, largest);
      result.view().set({n, 3 + 3 * scaled}, gradient);
    }
  }
  Explanation e;
  name_example(e, "scaling");
  Step step =
      table("sizes", "S = Q·Kᵀ  |  S = Q·Kᵀ/√d;   Q, K ~ N(0, 1);   ∂P_i/∂S_j = P_i·(δ_ij − P_j)",
            std::move(result), {"d", "7"});
  step.cols = {"d", "rms(S)", "max P", "Σ∂P/∂S", "rms(S/√d)", "max P (√d)", "Σ∂P/∂S (√d)"};
  const TensorView t = step.value->view();
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return fmt::format("{:.3g}", t.at({r, c}));
  };
  e.remarks.push_back({"sizes", "example.scaling.scores", {at(5, 1), at(5, 4)}});
  e.remarks.push_back({"sizes", "example.scaling.softmax", {at(5, 2), at(5, 5)}});
  e.remarks.push_back({"sizes", "example.scaling.settled", {at(0, 3), at(5, 3), at(5, 6)}});
  e.steps.push_back(std::move(step));
  return e;
}

Explanation vit() {
  constexpr std::int64_t kTokens = 197, kDim = 768;
  Generator g(4);
  const Tensor x = Generator::fill(DType::f32, {1, kTokens, kDim}, [&] { return g.normal(); });
  const Tensor qkv = uniform(g, DType::f32, {3 * kDim, kDim}, kDim);
  const Tensor proj = uniform(g, DType::f32, {kDim, kDim}, kDim);
  VitWeights w;
  w.qkv.weight = qkv;
  w.proj.weight = proj;
  w.heads = 12;
  Explanation e = explain_vit(w, x, {});
  name_example(e, "vit");
  e.expanded.push_back({"qkv", {0, 0, 1}});
  expand_heads(e, 1);
  e.remarks.push_back({"qkv", "example.vit.one_product", {"2304", "768"}});
  e.remarks.push_back({"value", "example.vit.drawers", {}});
  return e;
}

Explanation transformer() {
  constexpr std::int64_t kDim = 512;
  Generator g(5);
  const Tensor x = Generator::fill(DType::f32, {32, 20, kDim}, [&] { return g.normal(); });
  Tensor w[4];
  for (Tensor& each : w) each = uniform(g, DType::f32, {kDim, kDim}, kDim);
  TransformerWeights weights;
  weights.query.weight = w[0];
  weights.key.weight = w[1];
  weights.value.weight = w[2];
  weights.output.weight = w[3];
  weights.heads = 8;
  Explanation e = explain_transformer(weights, x, {}, {});
  name_example(e, "transformer");
  expand_heads(e, 1);
  e.remarks.push_back({"query", "example.transformer.split", {}});
  e.remarks.push_back({"weights", "example.transformer.rows", {}});
  return e;
}

struct Example {
  const char* name;
  Explanation (*make)();
};

constexpr Example kExamples[] = {
    {"dot", dot},         {"pixels", pixels}, {"channels", channels},
    {"journey", journey}, {"causal", causal}, {"heads", heads},
    {"scaling", scaling}, {"vit", vit},       {"transformer", transformer},
};

}  // namespace

const std::vector<std::string>& example_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Example& example : kExamples) result.emplace_back(example.name);
    return result;
  }();
  return names;
}

Explanation explain_example(std::string_view name) {
  for (const Example& example : kExamples) {
    if (name == example.name) return example.make();
  }
  throw Error(ErrorKind::value, "explain", "example",
              fmt::format("one of {}", fmt::join(example_names(), ", ")),
              fmt::format("\"{}\"", name));
}

}  // namespace qkv
