// Worked examples printed in books, tutorials and documentation (golden_examples.json): the numbers
// as printed, and the same recomputed in f64 by whoever collected them. All are run in f64.

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>

#include "qkv/attention.h"
#include "tests/conformance_case.h"

namespace qkv::testing {
namespace {

using nlohmann::json;

std::vector<CaseParam> golden_params() {
  std::vector<CaseParam> params;
  for (const Engine& engine : engines()) {
    for (const json& example : golden_examples()) {
      params.push_back({"golden_examples.json", example.value("id", "unnamed"), engine});
    }
  }
  return params;
}

double number(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("a number that is " + text);
}

void collect(const json& value, std::vector<double>& numbers, Dims* shape) {
  if (!value.is_array()) return numbers.push_back(number(value));
  if (shape != nullptr) shape->push_back(static_cast<std::int64_t>(value.size()));
  bool first = true;
  for (const json& entry : value) {
    collect(entry, numbers, first ? shape : nullptr);
    first = false;
  }
}

// Nested lists as an f64 tensor.
Tensor tensor(const json& value) {
  std::vector<double> numbers;
  Dims shape;
  collect(value, numbers, &shape);
  return Tensor::copy_of(TensorView::of(std::span<const double>(numbers), shape));
}

// x [n, in] by a matrix [in, out]; a PyTorch Linear's [out, in] is passed transposed.
Tensor matmul(const TensorView& x, const TensorView& matrix) {
  Tensor out(DType::f64, {x.dim(0), matrix.dim(1)});
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    for (std::int64_t c = 0; c < matrix.dim(1); ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.dim(1); ++i) sum += x.at({r, i}) * matrix.at({i, c});
      out.view().set({r, c}, sum);
    }
  }
  return out;
}

// What one example asks for, computed: name in `expected` → tensor of the same rank.
using Results = std::map<std::string, Tensor>;

// All of one call; [T, ·] or [H, T, ·], the batch axis left out.
struct Computed {
  Tensor out, scores, masked, weights;
};

class Golden : public ::testing::TestWithParam<CaseParam> {
 public:
  // q, k, v of rank 2 are one head, of rank 3 several, of rank 4 what they are.
  Computed run(const TensorView& q, const TensorView& k, const TensorView& v,
               AttentionOptions options) const {
    const auto full = [](const TensorView& view) {
      return view.rank() == 4   ? view
             : view.rank() == 3 ? view.unflatten(0, {1, view.dim(0)})
                                : view.unflatten(0, {1, 1, view.dim(0)});
    };
    const TensorView Q = full(q), K = full(k), V = full(v);
    const std::int64_t B = Q.dim(0), H = Q.dim(1), Tq = Q.dim(2), Tk = K.dim(2), Dv = V.dim(3);
    Computed result{poisoned(DType::f64, {B, H, Tq, Dv}), poisoned(DType::f64, {B, H, Tq, Tk}),
                    poisoned(DType::f64, {B, H, Tq, Tk}), poisoned(DType::f64, {B, H, Tq, Tk})};
    AttentionStages stages;
    stages.scores = result.scores;
    stages.masked = result.masked;
    stages.weights = result.weights;
    options.kernel = GetParam().engine.kernel;
    options.target = GetParam().engine.target;
    attention_forward(Q, K, V, result.out, options, stages);
    return result;
  }

  // The only batch entry and head.
  static Tensor first(const Tensor& tensor) {
    return Tensor::copy_of(tensor.view().select(0, 0).select(0, 0));
  }

  Tensor in(const char* name) const { return tensor(example_.at("inputs").at(name)); }

  // x·Wᵀ, with the weights of PyTorch's Linear.
  Tensor linear(const char* name) const { return matmul(in("X"), in(name).view().transpose(0, 1)); }

  Results compute() const;

 protected:
  void SetUp() override {
    for (const json& example : golden_examples()) {
      if (example.at("id") == GetParam().name) example_ = example;
    }
    ASSERT_FALSE(example_.is_null());
  }

  json example_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Golden);

AttentionOptions scaled(double scale, Causal causal = Causal::none) {
  AttentionOptions options;
  options.scale = scale;
  options.causal = causal;
  return options;
}

AttentionOptions aligned(Causal causal) {
  AttentionOptions options;
  options.causal = causal;
  return options;
}

using Example = std::function<Results(const Golden&)>;

Results simple_self_attention(const Golden& g) {
  const Tensor x = g.in("X");
  const Computed run = g.run(x, x, x, scaled(1));
  Results r;
  r.emplace("scores", g.first(run.scores));
  r.emplace("weights", g.first(run.weights));
  r.emplace("context", g.first(run.out));
  return r;
}

Results self_attention_v1(const Golden& g) {
  const Tensor x = g.in("X");
  const Tensor q = matmul(x, g.in("Wq")), k = matmul(x, g.in("Wk")), v = matmul(x, g.in("Wv"));
  const Computed run = g.run(q, k, v, {});
  const Computed raw = g.run(q, k, v, scaled(1));
  const auto second = [](const Tensor& t) {
    return Tensor::copy_of(t.view().select(t.view().rank() - 2, 1));
  };
  Results r;
  r.emplace("query_2", second(q));
  r.emplace("raw_scores_row2", second(g.first(raw.scores)));
  r.emplace("weights_row2", second(g.first(run.weights)));
  r.emplace("context", g.first(run.out));
  return r;
}

Results self_attention_v2(const Golden& g) {
  const Tensor q = g.linear("Wq"), k = g.linear("Wk"), v = g.linear("Wv");
  const Computed run = g.run(q, k, v, {});
  Results r;
  r.emplace("context", g.first(run.out));
  r.emplace("weights", g.first(run.weights));
  r.emplace("masked_raw_scores", g.first(g.run(q, k, v, scaled(1, Causal::top_left)).masked));
  r.emplace("causal_weights", g.first(g.run(q, k, v, aligned(Causal::top_left)).weights));
  return r;
}

Results two_causal_heads(const Golden& g) {
  Results r;
  r.emplace("context_h0", g.first(g.run(g.linear("Wq_h0"), g.linear("Wk_h0"), g.linear("Wv_h0"),
                                        aligned(Causal::bottom_right))
                                      .out));
  r.emplace("context_h1", g.first(g.run(g.linear("Wq_h1"), g.linear("Wk_h1"), g.linear("Wv_h1"),
                                        aligned(Causal::aligned))
                                      .out));
  return r;
}

Results exercise_3_1(const Golden& g) {
  Results r;
  r.emplace("context", g.first(g.run(g.linear("Wq"), g.linear("Wk"), g.linear("Wv"), {}).out));
  return r;
}

Results multi_head_attention(const Golden& g) {
  const Tensor q = g.linear("Wq"), k = g.linear("Wk"), v = g.linear("Wv");
  const auto heads = [](const Tensor& t) {  // [T, H·D] as [H, T, D]
    return t.view().unflatten(1, {2, 1}).transpose(0, 1);
  };
  const Computed run = g.run(heads(q), heads(k), heads(v), aligned(Causal::top_left));
  const Tensor joined = Tensor::copy_of(run.out.view().select(0, 0).transpose(0, 1));
  Tensor y = matmul(joined.view().flatten(1, 2), g.in("Wo").view().transpose(0, 1));
  const Tensor bo = g.in("bo");
  for (std::int64_t t = 0; t < y.dim(0); ++t) {
    for (std::int64_t c = 0; c < y.dim(1); ++c) {
      y.view().set({t, c}, y.view().at({t, c}) + bo.view().at({c}));
    }
  }
  Results r;
  r.emplace("Y", std::move(y));
  return r;
}

Results batched_qk(const Golden& g) {
  const Tensor a = g.in("A");
  Results r;
  r.emplace("scores", Tensor::copy_of(g.run(a, a, a, scaled(1)).scores.view().select(0, 0)));
  return r;
}

Results weights_and_context(const Golden& g, const AttentionOptions& options) {
  const Computed run = g.run(g.in("Q"), g.in("K"), g.in("V"), options);
  Results r;
  r.emplace("weights", g.first(run.weights));
  r.emplace("context", g.first(run.out));
  return r;
}

Results tf_tutorial(const Golden& g) { return weights_and_context(g, {}); }

Results keras_correctness(const Golden& g) { return weights_and_context(g, scaled(1)); }

// Keras hides keys in the softmax, and queries only afterwards, in the output.
Results keras_with_mask(const Golden& g) {
  AttentionOptions options = scaled(1);
  const Tensor keys = Tensor::copy_of(g.in("key_mask"), DType::boolean);
  const Tensor queries = Tensor::copy_of(g.in("query_mask"), DType::boolean);
  Tensor both(DType::boolean, {2, 2});
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      both.view().set({i, j}, queries.view().at({i}) * keys.view().at({j}));
    }
  }
  options.mask = keys;
  Results weights = weights_and_context(g, options);
  options.mask = both;
  Results r;
  r.insert(weights.extract("weights"));
  r.insert(weights_and_context(g, options).extract("context"));
  return r;
}

// Any query will do: equal keys weigh the same for each.
Results d2l_valid_lengths(const Golden& g) {
  const Tensor k = g.in("K"), v = g.in("V");
  const Tensor lengths = Tensor::copy_of(g.in("valid_lens"), DType::i64);
  const std::vector<double> query{0.5, -3, 7, 0.25};
  AttentionOptions options;
  options.key_lengths = lengths;
  const Computed run =
      g.run(TensorView::of(std::span<const double>(query), {2, 1, 1, 2}),
            k.view().broadcast_to({2, 1, 10, 2}), v.view().broadcast_to({2, 1, 10, 4}), options);
  Results r;
  r.emplace("context", Tensor::copy_of(run.out.view().select(1, 0).select(1, 0)));
  return r;
}

Results neginf_fully_masked(const Golden& g) {
  const Tensor bias = g.in("mask");
  AttentionOptions options;
  options.bias = bias;
  return weights_and_context(g, options);
}

// A finite number instead of a mask: the row's other key keeps its (vanishing) weight.
Results qk_padding_bias(const Golden& g) {
  Tensor bias = g.in("attention_bias");
  const Tensor mask = g.in("key_padding_mask");
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      if (mask.view().at({j}) == 0) bias.view().set({i, j}, bias.view().at({i, j}) - 10000);
    }
  }
  AttentionOptions options = scaled(1);
  options.bias = bias;
  const Computed run = g.run(g.in("Q"), g.in("K"), g.in("V"), options);
  Results r;
  r.emplace("qk", g.first(run.masked));
  r.emplace("context", g.first(run.out));
  return r;
}

// The shapes are ONNX Runtime's (B, T, H·D), here with H = D = 1.
Results empty_dimensions(const Golden& g) {
  const auto shape_of = [&](const Dims& query, const Dims& key) {
    const Tensor q(DType::f64, query), k(DType::f64, key);
    return g.run(q, k, k, {}).out;
  };
  EXPECT_EQ(shape_of({0, 1, 2, 1}, {0, 1, 2, 1}).shape(), (Dims{0, 1, 2, 1}));
  EXPECT_EQ(shape_of({1, 1, 0, 1}, {1, 1, 2, 1}).shape(), (Dims{1, 1, 0, 1}));
  const Tensor no_keys = shape_of({1, 1, 2, 1}, {1, 1, 0, 1});
  EXPECT_TRUE(close(no_keys, Tensor(DType::f64, {1, 1, 2, 1}), 0, 0));
  return {};
}

// Which keys are seen: where weights are above 0.
Results causal_alignment(const Golden& g) {
  const Tensor q(DType::f64, {3, 1}), k(DType::f64, {4, 1});
  Results r;
  for (const auto& [name, causal] : {std::pair{"upper_left", Causal::top_left},
                                     std::pair{"lower_right", Causal::bottom_right}}) {
    const Computed run = g.run(q, k, k, aligned(causal));
    r.emplace(name,
              Tensor::copy_of(Tensor::copy_of(g.first(run.weights), DType::boolean), DType::f64));
  }
  return r;
}

Results bidirectional_window(const Golden& g) {
  const Tensor zero(DType::f64, {5, 1}), v = g.in("V");
  AttentionOptions options;
  options.window = {1, 2};
  const Computed run = g.run(zero, zero, v.view().unflatten(0, {5, 1}), options);
  Results r;
  r.emplace("Y", Tensor::copy_of(g.first(run.out).view().select(1, 0)));
  return r;
}

const std::map<std::string, Example>& computations() {
  static const std::map<std::string, Example> all = {
      {"llmfs_simple_self_attention", simple_self_attention},
      {"llmfs_self_attention_v1", self_attention_v1},
      {"llmfs_self_attention_v2_and_causal", self_attention_v2},
      {"llmfs_causal_attention_2heads_stacked", two_causal_heads},
      {"llmfs_causal_attention_printed_weights", two_causal_heads},
      {"llmfs_exercise_3_1", exercise_3_1},
      {"llmfs_multi_head_attention", multi_head_attention},
      {"llmfs_batched_qk", batched_qk},
      {"tf_tutorial_temp_qkv", tf_tutorial},
      {"keras_attention_correctness", keras_correctness},
      {"keras_attention_with_mask", keras_with_mask},
      {"d2l_valid_lens", d2l_valid_lengths},
      {"ort_neginf_fully_masked", neginf_fully_masked},
      {"ort_output_qk_padding_bias", qk_padding_bias},
      {"ort_empty_dims", empty_dimensions},
      {"torch_causal_alignment", causal_alignment},
      {"onnx_bidirectional_window", bidirectional_window},
  };
  return all;
}

Results Golden::compute() const { return computations().at(GetParam().name)(*this); }

TEST_P(Golden, GivesWhatWasPrinted) {
  ASSERT_TRUE(computations().contains(GetParam().name));
  const Results results = compute();
  if (GetParam().name == "ort_empty_dims") return;  // says it in words; checked on the way
  const json& expected = example_.at("expected");
  ASSERT_EQ(results.size(), expected.size());
  for (const auto& [name, result] : results) {
    const double atol = example_.at("suggested_atol");
    EXPECT_TRUE(close(result, tensor(expected.at(name)), 0, atol)) << name;
    if (!example_.contains("float64_values")) continue;
    // Both are f64, in sums of at most 10 terms of size 1 to 1000, with scores up to 60: a few
    // hundred units in the last place at most.
    EXPECT_TRUE(close(result, tensor(example_.at("float64_values").at(name)), 1e-13, 1e-13))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Published, Golden, ::testing::ValuesIn(golden_params()), param_name);

}  // namespace
}  // namespace qkv::testing
