#include "explain/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "explain/generator.h"
#include "explain/writers/writer.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// Examples are made once: two of them are of real size.
const Explanation& example(const std::string& name) {
  static std::map<std::string, Explanation> made;
  const auto found = made.find(name);
  return found != made.end() ? found->second
                             : made.emplace(name, explain_example(name)).first->second;
}

void expect_values(const Step* step, std::initializer_list<double> expected, double tolerance) {
  ASSERT_NE(step, nullptr);
  const Tensor wide = Tensor::copy_of(*step->value, DType::f64);
  ASSERT_EQ(wide.as<double>().size(), expected.size()) << step->name;
  for (std::size_t n = 0; n < expected.size(); ++n) {
    EXPECT_NEAR(wide.as<double>()[n], expected.begin()[n], tolerance) << step->name << " " << n;
  }
}

TEST(ExplainExamples, PixelsHaveTheNotesNumbers) {
  const Explanation& e = example("pixels");
  expect_values(e.find("tokens"), {1, 0, 1, 2, 2, 1, 0, 2, 3, 0, 1, 2, 4, 1, 0, 2}, 0);
  expect_values(e.find("w_query"), {1, 0, 0, 0, 0, 1, 0, 0}, 0);
  expect_values(e.find("w_key"), {0, 1, 1, 0, 0, 0, 0, 0}, 0);
  expect_values(e.find("w_value"), {0, 0, 0, 1, 1, 0, 0, 0}, 0);
  // Channels first: the note's columns.
  expect_values(e.find("query"), {1, 2, 3, 4, 1, 0, 1, 0}, 0);
  expect_values(e.find("key"), {0, 1, 0, 1, 1, 2, 3, 4}, 0);
  expect_values(e.find("value"), {1, 0, 1, 0, 0, 1, 0, 1}, 0);
  expect_values(e.find("scaled"),
                {0.707107, 2.121320, 2.121320, 3.535534, 0, 1.414214, 0, 1.414214, 0.707107,
                 3.535534, 2.121320, 4.949747, 0, 2.828427, 0, 2.828427},
                5e-7);
  expect_values(e.find("weights"),
                {0.038248, 0.157323, 0.157323, 0.647107, 0.097785, 0.402215, 0.097785, 0.402215,
                 0.010914, 0.184656, 0.044893, 0.759537, 0.027904, 0.472096, 0.027904, 0.472096},
                5e-7);
  expect_values(e.find("heads"),
                {0.195570, 0.195570, 0.055807, 0.055807, 0.804430, 0.804430, 0.944193, 0.944193},
                5e-7);
  EXPECT_EQ(e.find("qkv")->value->shape(), (Dims{1, 6, 2, 2}));
  EXPECT_EQ(e.find("query")->value->shape(), (Dims{1, 1, 2, 4}));
}

TEST(ExplainExamples, JourneyHasTheTrueArithmetic) {
  const Explanation& e = example("journey");
  expect_values(e.find("weights"),
                {0.34454, 0.32773, 0.32773, 0.23449, 0.38276, 0.38276, 0.23449, 0.38276, 0.38276},
                5e-6);
  expect_values(
      e.find("output"),
      {0.465546, 0.558825, 0.668907, 0.476551, 0.635859, 0.646897, 0.476551, 0.635859, 0.646897},
      5e-7);
  const std::string text = write_text(e, {});
  EXPECT_NE(text.find("[0.4656 0.5592 0.6688]"), std::string::npos);
  EXPECT_NE(text.find("[0.4655 0.5588 0.6689]"), std::string::npos);
}

TEST(ExplainExamples, DotAndChannels) {
  expect_values(example("dot").find("scores"), {4, 14}, 0);
  expect_values(example("channels").find("dims"), {4, 2, 0.5, 2, 1, 2, 8}, 0);
  EXPECT_EQ(example("channels").find("qkv")->value->shape(), (Dims{1, 8, 3, 3}));
}

TEST(ExplainExamples, CausalHidesWhatComesLater) {
  const double minus = -std::numeric_limits<double>::infinity();
  const Explanation& e = example("causal");
  EXPECT_EQ(e.find("masked")->value->view().at({0, 0, 0, 1}), minus);
  EXPECT_EQ(e.find("weights")->value->view().at({0, 0, 0, 0}), 1);
  EXPECT_EQ(e.find("weights")->value->view().at({0, 0, 1, 2}), 0);
  EXPECT_NEAR(e.find("scaled")->value->view().at({0, 0, 0, 0}), 0.81 / std::sqrt(3.0), 1e-15);
}

TEST(ExplainExamples, ScalingSettlesExplodeAgainstVanish) {
  const TensorView t = example("scaling").find("sizes")->value->view();
  EXPECT_NEAR(t.at({5, 1}), 32, 3.2);  // scores grow as √1024
  EXPECT_NEAR(t.at({5, 4}), 1, 0.1);   // and not, when scaled
  EXPECT_GT(t.at({5, 2}), 0.95);       // saturated
  EXPECT_LT(t.at({5, 3}), 0.05);       // gradient gone
  EXPECT_GT(t.at({5, 6}), 0.5);        // kept
}

TEST(ExplainExamples, ShapesOfTheLargeOnes) {
  const auto shape = [](const char* name, const char* step) {
    return example(name).find(step)->value->shape();
  };
  EXPECT_EQ(shape("transformer", "input"), (Dims{32, 20, 512}));
  EXPECT_EQ(shape("transformer", "query"), (Dims{32, 8, 20, 64}));
  EXPECT_EQ(shape("transformer", "scores"), (Dims{32, 8, 20, 20}));
  EXPECT_EQ(shape("transformer", "weights"), (Dims{32, 8, 20, 20}));
  EXPECT_EQ(shape("transformer", "heads"), (Dims{32, 8, 20, 64}));
  EXPECT_EQ(shape("transformer", "concat"), (Dims{32, 20, 512}));
  EXPECT_EQ(shape("transformer", "output"), (Dims{32, 20, 512}));
  EXPECT_EQ(shape("transformer", "w_query"), (Dims{512, 512}));
  EXPECT_EQ(shape("vit", "qkv"), (Dims{1, 197, 2304}));
  EXPECT_EQ(shape("vit", "key"), (Dims{1, 12, 197, 64}));
}

TEST(ExplainExamples, UnknownNamesListTheKnownOnes) {
  try {
    explain_example("pixel");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("pixels"), std::string::npos);
  }
}

// An expansion is an explanation of a number: it has to give that number.
double evaluate(const Expansion& e) {
  double sum = 0;
  switch (e.kind) {
    case Expansion::Kind::products:
      for (const auto& [a, b] : e.terms) sum += a * b;
      return sum + e.addend;
    case Expansion::Kind::sum:
      for (const auto& [a, b] : e.terms) sum += a;
      return sum;
    case Expansion::Kind::softmax:
      for (double s : e.scores) sum += std::exp(s - e.largest);
      return std::exp(e.scores[static_cast<std::size_t>(e.chosen)] - e.largest) / sum;
    case Expansion::Kind::silu:
      for (const auto& [a, b] : e.terms) sum += a * b;
      sum += e.addend;
      return sum / (1 + std::exp(-sum));
    case Expansion::Kind::softcap: {
      const auto& [a, cap] = e.terms.front();
      return cap * std::tanh(a / cap);
    }
    case Expansion::Kind::norm: {
      const auto& [a, w] = e.terms.front();
      return (a - e.mean) / std::sqrt(e.variance + e.eps) * w + e.addend;
    }
    default: return e.value;
  }
}

// Inputs, weights, and Q, K and V where nothing makes them; all else has to say where it is from.
bool is_given(const Explanation& e, const Step& step) {
  const std::string name = step.name.substr(step.name.rfind('.') + 1);
  const bool role = name == "query" || name == "key" || name == "value";
  return name == "input" || name == "memory" || name.starts_with("w_") ||
         (role && e.find("w_" + name) == nullptr && e.find("input") == nullptr);
}

void expect_expansions_hold(const Explanation& e, double tolerance) {
  for (const Step& step : e.steps) {
    if (!step.expand) continue;
    const Dims& shape = step.value->shape();
    const std::int64_t count = element_count(shape),
                       stride = std::max<std::int64_t>(1, count / 200);
    for (std::int64_t n = 0; n < count; n += stride) {
      Dims index = shape;
      std::int64_t rest = n;
      for (int d = shape.rank() - 1; d >= 0; --d) {
        index[d] = rest % shape[d];
        rest /= shape[d];
      }
      const Expansion x = step.expand(index);
      EXPECT_TRUE(x.kind != Expansion::Kind::given || is_given(e, step)) << step.name;
      EXPECT_EQ(x.value, step.value->view().at(index)) << step.name;
      if (x.kind == Expansion::Kind::hidden) {
        EXPECT_TRUE(x.value == 0 || std::isinf(x.value)) << step.name;
      } else if (x.kind == Expansion::Kind::copied) {
        const Step* source = e.find(x.source);
        ASSERT_NE(source, nullptr) << x.source;
        EXPECT_EQ(source->value->view().at(x.source_index), x.value) << step.name;
      } else {
        EXPECT_NEAR(evaluate(x), x.value, tolerance * std::max(1.0, std::abs(x.value)))
            << step.name << to_string(index);
      }
    }
  }
}

TEST(ExplainExpansions, GiveTheNumbersOfTheSmallExamples) {
  for (const char* name : {"dot", "pixels", "channels", "journey", "causal", "heads"}) {
    SCOPED_TRACE(name);
    expect_expansions_hold(example(name), 1e-13);
  }
}

TEST(ExplainExpansions, GiveTheNumbersOfTheLargeExamples) {
  // f32 sums of up to 768 products of size around 1: 768·2^-24.
  for (const char* name : {"vit", "transformer"}) {
    SCOPED_TRACE(name);
    expect_expansions_hold(example(name), 768 * 0x1p-24);
  }
}

// Blocks with everything that a block can have.
TEST(ExplainExpansions, GiveTheNumbersOfBlocks) {
  Generator g(9);
  const auto t = [&](const Dims& shape) {
    return Generator::fill(DType::f64, shape, [&] { return g.uniform(); });
  };
  const Tensor x = t({2, 6, 3, 5}), qkv = t({16, 6, 1, 1}), b1 = t({16}), proj = t({6, 8, 1, 1});
  const Tensor b2 = t({6}), pe = t({8, 1, 3, 3}), b3 = t({8}), up = t({12, 6}), down = t({6, 12});
  PsaBlockWeights psa;
  psa.attention.qkv = {qkv, b1};
  psa.attention.proj = {proj, b2};
  psa.attention.pe = {pe, b3};
  psa.attention.heads = 2;
  psa.attention.key_dim = 2;
  psa.attention.head_dim = 4;
  psa.expand.weight = up;
  psa.reduce.weight = down;
  expect_expansions_hold(explain_psa_block(psa, x, {}), 1e-12);
  psa.shortcut = false;
  expect_expansions_hold(explain_psa_block(psa, x, {}), 1e-12);
  const Tensor cv1 = t({12, 6}), cv2 = t({5, 12}), b4 = t({12});
  C2psaWeights c2psa;
  c2psa.cv1 = {cv1, b4};
  c2psa.cv2.weight = cv2;
  c2psa.blocks = {psa, psa};
  expect_expansions_hold(explain_c2psa(c2psa, x, {}), 1e-12);
  psa.attention.proj = {};
  expect_expansions_hold(explain_detector(psa.attention, x, {}), 1e-12);

  const Tensor q = t({2, 4, 3, 5}), k = t({2, 2, 6, 5}), v = t({2, 2, 6, 3}), bias = t({4, 3, 6});
  const Tensor alibi = t({4}), sinks = t({4});
  AttentionOptions options;
  options.bias = bias;
  options.alibi = alibi;
  options.sinks = sinks;
  options.softcap = 2;
  options.causal = Causal::bottom_right;
  expect_expansions_hold(explain_attention(q, k, v, options), 1e-12);
  const std::int64_t lengths[] = {4, 0};
  options.key_lengths = TensorView::of(lengths);
  expect_expansions_hold(explain_attention(q, k, v, options), 1e-12);

  const Tensor memory = t({2, 7, 5}), tokens = t({2, 3, 4}), wq = t({6, 4}), wk = t({6, 5});
  const Tensor wv = t({4, 5}), wo = t({3, 4}), bq = t({6});
  TransformerWeights w;
  w.query = {wq, bq};
  w.key.weight = wk;
  w.value.weight = wv;
  w.output.weight = wo;
  w.heads = 2;
  expect_expansions_hold(explain_transformer(w, tokens, memory, {}), 1e-12);

  const Tensor fused = t({12, 4}), out = t({4, 4}), gamma = t({2}), beta = t({2});
  VitWeights vit;
  vit.qkv.weight = fused;
  vit.proj.weight = out;
  vit.heads = 2;
  vit.q_norm = NormWeights{.weight = gamma, .bias = beta};
  vit.k_norm = NormWeights{.weight = gamma, .kind = NormKind::rms};
  expect_expansions_hold(explain_vit(vit, tokens, {}), 1e-12);
}

// Formulas are those of what was computed.
TEST(ExplainSteps, FormulasFollowTheOptions) {
  const Tensor q(DType::f64, {1, 1, 2, 4}), bias(DType::f64, {2, 2}), one(DType::f64, {1});
  const auto formula = [&](const AttentionOptions& options, std::string_view step) {
    const Explanation e = explain_attention(q, q, q, options);
    return e.find(step) == nullptr ? "none" : e.find(step)->formula;
  };
  EXPECT_EQ(formula({}, "masked"), "none");
  EXPECT_EQ(formula({.causal = Causal::top_left}, "masked"), "masked = scaled + mask");
  EXPECT_EQ(formula({.bias = bias}, "masked"), "masked = scaled + bias");
  EXPECT_EQ(formula({.softcap = 3.0, .alibi = one}, "masked"),
            "masked = softcapped − slope·|i + offset − j|");
  EXPECT_EQ(formula({}, "weights"), "P = softmax(scaled)");
  EXPECT_EQ(formula({.sinks = one}, "weights"), "P = exp(scaled) / (Σ exp(scaled) + exp(sink))");
  EXPECT_EQ(formula({}, "scaled"), "scaled = S/√D");
  EXPECT_EQ(formula({.scale = 0.25}, "scaled"), "scaled = 0.25·S");
}

// Names go to queries and to keys only where there is one for each.
TEST(ExplainSteps, TokensNameWhatTheyCount) {
  const Tensor q(DType::f64, {1, 1, 2, 4}), k(DType::f64, {1, 1, 3, 4});
  const Explanation e = explain_attention(q, k, k, {}, {"a", "b"});
  EXPECT_EQ(e.find("weights")->rows, (TokenLabels{"a", "b"}));
  EXPECT_TRUE(e.find("weights")->cols.empty());
}

// A key that does not exist has no product, whatever lies in its place.
TEST(ExplainSteps, KeysPastTheLengthHaveNoScores) {
  Tensor q(DType::f64, {1, 1, 1, 2}), k(DType::f64, {1, 1, 3, 2});
  k.view().set({0, 0, 2, 0}, std::nan(""));
  const std::int64_t lengths[] = {2};
  const Explanation e = explain_attention(q, k, k, {.key_lengths = TensorView::of(lengths)});
  for (const char* step : {"scores", "scaled", "masked"}) {
    EXPECT_EQ(e.find(step)->value->view().at({0, 0, 0, 2}), -HUGE_VAL) << step;
  }
}

// --- writers ----------------------------------------------------------------------------------

class ExplainWriters : public ::testing::TestWithParam<std::tuple<std::string, Language>> {
 protected:
  const Explanation& e() const { return example(std::get<0>(GetParam())); }
  WriteOptions options() const {
    WriteOptions o;
    o.language = std::get<1>(GetParam());
    return o;
  }
  // Title and meaning of every step, and every remark, stand in the output.
  void expect_complete(std::string text) const {
    const auto squeeze = [](std::string s) {  // as wrapping and escaping do not matter
      std::erase_if(s, [](char c) { return c == ' ' || c == '\n' || c == '\\'; });
      return s;
    };
    text = squeeze(text);
    const Language l = std::get<1>(GetParam());
    for (const Step& s : e().steps) {
      EXPECT_NE(text.find(squeeze(title_of(s, l))), std::string::npos) << s.name;
      EXPECT_NE(text.find(squeeze(meaning_of(s, l))), std::string::npos) << s.name;
      EXPECT_NE(text.find(squeeze(s.formula)), std::string::npos) << s.name;
      EXPECT_NE(text.find(squeeze(s.name)), std::string::npos) << s.name;
    }
    for (const Remark& r : e().remarks) {
      EXPECT_NE(text.find(squeeze(message(l, r.text, r.arguments))), std::string::npos) << r.text;
    }
    for (const char* key : {"step.", "example.", "writer.", "block."}) {
      EXPECT_EQ(text.find(std::string(key) + "query"), std::string::npos);
      EXPECT_EQ(text.find(std::string("\n") + key), std::string::npos);
    }
    EXPECT_EQ(text.find("{}"), std::string::npos);
  }
};

INSTANTIATE_TEST_SUITE_P(All, ExplainWriters,
                         ::testing::Combine(::testing::ValuesIn(example_names()),
                                            ::testing::ValuesIn(kLanguages)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" +
                                  std::string(code_of(std::get<1>(test.param)));
                         });

TEST_P(ExplainWriters, TextIsComplete) {
  const std::string text = write_text(e(), options());
  expect_complete(text);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);  // no colour unless asked for
}

TEST_P(ExplainWriters, MarkdownIsComplete) { expect_complete(write_markdown(e(), options())); }

TEST_P(ExplainWriters, JsonHasEveryDigit) {
  const auto json = nlohmann::json::parse(write_json(e(), options()));
  EXPECT_EQ(json["block"], e().block);
  ASSERT_EQ(json["steps"].size(), e().steps.size());
  for (std::size_t n = 0; n < e().steps.size(); ++n) {
    const Step& s = e().steps[n];
    const auto& j = json["steps"][n];
    EXPECT_EQ(j["name"], s.name);
    EXPECT_EQ(j["title"], title_of(s, std::get<1>(GetParam())));
    EXPECT_EQ(j["formula"], s.formula);
    EXPECT_EQ(j["shape"],
              std::vector<std::int64_t>(s.value->shape().begin(), s.value->shape().end()));
    // The first entry of the slice, and the last: same bits.
    for (bool last : {false, true}) {
      Dims index;
      const nlohmann::json* value = &j["values"];
      for (const auto& range : j["slice"]) {
        const std::int64_t begin = range[0], end = range[1];
        index.push_back(last ? end - 1 : begin);
        value = &value->at(static_cast<std::size_t>(last ? end - 1 - begin : 0));
      }
      const double expected = s.value->view().at(index);
      if (std::isfinite(expected)) {
        const double found = value->get<double>();
        EXPECT_EQ(s.value->dtype() == DType::f64 ? found : static_cast<float>(found), expected);
      } else {
        EXPECT_EQ(value->get<std::string>(), "-inf");
      }
    }
  }
}

TEST_P(ExplainWriters, CsvHasALineForEachEntry) {
  const std::string csv = write_csv(e(), options());
  std::int64_t expected = 1;
  for (const Step& s : e().steps) {
    std::int64_t count = 1;
    for (const Range& r : select_part(s, options().selection)) count *= r.size();
    expected += count;
  }
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), expected);
  EXPECT_EQ(csv.find("step,title,formula,shape,index,value,row,column\r\n"), 0u);
}

// Labels stand beside the numbers that they belong to, also of a part.
TEST(ExplainData, CarriesTheLabelsOfTokens) {
  const Tensor x(DType::f32, {1, 1, 3, 2});
  const Explanation e = explain_attention(x, x, x, {}, {"a,b", "the \"c\"", "d"});
  WriteOptions options;
  options.selection.rows = Range{1, 3};
  const auto json = nlohmann::json::parse(write_json(e, options));
  for (std::size_t n = 0; n < e.steps.size(); ++n) {
    const auto& step = json["steps"][n];
    const nlohmann::json labels = step.value("labels", nlohmann::json());
    if (step["name"] == "weights") {
      EXPECT_EQ(labels, nlohmann::json::parse(
                            R"([null, null, ["the \"c\"", "d"],
                                        ["a,b", "the \"c\"", "d"]])"));
    }
    if (step["name"] == "query") {
      EXPECT_EQ(labels, nlohmann::json::parse(R"([null, null, ["the \"c\"", "d"], null])"));
    }
  }
  const std::string csv = write_csv(e, options);
  EXPECT_NE(csv.find("\"[0, 0, 2, 0]\",0,\"d\",\"a,b\"\r\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\"[0, 0, 1, 1]\",0,\"the \"\"c\"\"\",\r\n"), std::string::npos) << csv;
  EXPECT_FALSE(
      nlohmann::json::parse(write_json(explain_attention(x, x, x, {}), {}))["steps"][0].contains(
          "labels"));
}

// A token a row as text prints it, whatever the tensor's order.
TEST(ExplainData, LabelsAreThoseOfTheAxis) {
  Explanation e =
      explain_attention(Tensor(DType::f32, {1, 1, 2, 3}), Tensor(DType::f32, {1, 1, 2, 3}),
                        Tensor(DType::f32, {1, 1, 2, 3}), {});
  Step& step = e.steps.front();  // [B, H, width 2, token 3]
  step.tokens_last = true;
  step.cols = {"x", "y", "z"};
  const auto json = nlohmann::json::parse(write_json(e, {}));
  EXPECT_EQ(json["steps"][0].value("labels", nlohmann::json()),
            nlohmann::json::parse(R"([null, null, null, ["x", "y", "z"]])"));
  EXPECT_NE(write_csv(e, {}).find("\"[0, 0, 1, 2]\",0,\"z\",\r\n"), std::string::npos);
}

TEST(ExplainText, ColourIsAHeatMapOfTheWeights) {
  WriteOptions options;
  options.color = true;
  const std::string text = write_text(example("pixels"), options);
  EXPECT_NE(text.find("\x1b[48;5;"), std::string::npos);
  EXPECT_NE(text.find("0.6471"), std::string::npos);
}

TEST(ExplainText, LargeMatricesAreCutAndSaySo) {
  WriteOptions options;
  const std::string text = write_text(example("transformer"), options);
  EXPECT_NE(text.find("…"), std::string::npos);
  EXPECT_NE(text.find("rows 0–5 of 20"), std::string::npos);
  options.selection.batch = 31;
  options.selection.head = 7;
  options.selection.rows = Range{18, 20};
  options.selection.cols = Range{0, 2};
  EXPECT_NE(write_text(example("transformer"), options).find("B 31 of 32"), std::string::npos);
  options.selection.head = 8;
  EXPECT_THROW(write_text(example("transformer"), options), Error);
}

TEST(ExplainText, ExpandsTheEntriesThatAreAskedFor) {
  const Explanation& e = example("pixels");
  WriteOptions options;
  options.expanded.push_back(parse_entry("query[0,1]", e, {}));
  EXPECT_NE(write_text(e, options).find("query[0,1] = 1·0 + 0·0 + 1·1 + 2·0 = 1"),
            std::string::npos);
  EXPECT_EQ(parse_entry("query[0,1]", e, {}).index, (Dims{0, 0, 1, 0}));
  EXPECT_EQ(parse_entry("query[0, 0, 1, 3]", e, {}).index, (Dims{0, 0, 1, 3}));
  for (const char* bad : {"query", "query[]", "query[0]", "query[0,2]", "query[4,0]", "query[0,-1]",
                          "nothing[0,0]", "query[0,1", "query[a,b]", "query[0,0,0,9]", ""}) {
    EXPECT_THROW(parse_entry(bad, e, {}), Error) << bad;
  }
}

// What a smaller step has not is no reason to refuse it of a larger one.
TEST(ExplainText, AStepWithoutTheColumnsAskedForIsShownAsUsual) {
  WriteOptions options;
  options.selection.cols = Range{100, 102};
  const std::string text = write_text(example("transformer"), options);
  EXPECT_NE(text.find("columns 100–101 of 512"), std::string::npos);
  EXPECT_NE(text.find("columns 0–7 of 20"), std::string::npos);
  options.selection.cols = Range{512, 513};
  EXPECT_THROW(write_text(example("transformer"), options), Error);
  EXPECT_THROW(write_markdown(example("transformer"), options), Error);
  EXPECT_THROW(write_json(example("transformer"), options), Error);
  EXPECT_THROW(write_csv(example("transformer"), options), Error);
}

// Entries that are written out anyway follow what is shown.
TEST(ExplainText, WritesOutEntriesOfTheHeadThatIsShown) {
  WriteOptions options;
  EXPECT_NE(write_text(example("heads"), options).find("query[0,1] (h = 0) = "), std::string::npos);
  options.selection.head = 1;
  EXPECT_NE(write_text(example("heads"), options).find("query[0,1] (h = 1) = "), std::string::npos);
  options.selection.rows = Range{1, 3};
  EXPECT_EQ(write_text(example("heads"), options).find("query[0,1]"), std::string::npos);
}

TEST(ExplainText, PixelsAndTheirRolesHaveNames) {
  const std::string pixels = write_text(example("pixels"), {});
  EXPECT_NE(pixels.find("    q0  q1  k0  k1  v0  v1\n"), std::string::npos);
  EXPECT_NE(pixels.find("scaled[0,3] = 5/√2 = 3.5355"), std::string::npos);
  const std::string channels = write_text(example("channels"), {});
  EXPECT_NE(channels.find("h1.v1"), std::string::npos);
  for (const char* name : {"query", "key", "value", "heads"}) {
    EXPECT_EQ(example("channels").find(name)->cols.size(), 9u) << name;
  }
  EXPECT_EQ(example("channels").find("weights")->rows.back(), "p8");
  EXPECT_EQ(example("channels").find("w_pe")->value->shape(), (Dims{4, 3, 3}));
}

TEST(ExplainText, RangesAreParsed) {
  const auto is = [](const char* text, std::int64_t begin, std::int64_t end) {
    const Range r = parse_range(text, "--rows");
    return r.begin == begin && r.end == end;
  };
  EXPECT_TRUE(is("3", 3, 4));
  EXPECT_TRUE(is("2:5", 2, 5));
  EXPECT_TRUE(is(":5", 0, 5));
  EXPECT_TRUE(is("2:", 2, -1));
  EXPECT_TRUE(is("all", 0, -1));
  for (const char* bad : {"", "a", "5:2", "3:3", "-1", "1:2:3", "99999999999999999999", ":0"}) {
    EXPECT_THROW(parse_range(bad, "--rows"), Error) << bad;
  }
}

TEST(Generator, GivesTheSameBitsEverywhere) {
  Generator g(0);
  EXPECT_EQ(g.bits(), 0xe220a8397b1dcdafu);  // SplitMix64's first output for seed 0
  EXPECT_EQ(Generator(1).tenths(), Generator(1).tenths());
  for (int n = 0; n < 1000; ++n) {
    const std::int64_t i = g.integer(-3, 3);
    EXPECT_TRUE(i >= -3 && i <= 3);
    const double u = g.uniform();
    EXPECT_TRUE(u >= -1 && u < 1);
  }
}

}  // namespace
}  // namespace qkv
