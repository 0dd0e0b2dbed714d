// Explanations of a layer of a whole GPT: every entry that is said to be a sum of products is one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "explain/explain.h"
#include "explain/writers/writer.h"
#include "qkv/gpt_model.h"
#include "tests/gpt_folder.h"

namespace qkv::testing {
namespace {

using ::testing::HasSubstr;

double evaluate(const Expansion& e) {
  double sum = e.addend;
  if (e.kind == Expansion::Kind::softmax) {
    for (const double s : e.scores) sum += std::exp(s - e.largest);
    return std::exp(e.scores[static_cast<std::size_t>(e.chosen)] - e.largest) / sum;
  }
  for (const auto& [a, b] : e.terms) sum += a * b;
  return sum;
}

// Entries of f32 sums of up to 96 products of numbers up to 8.
constexpr double kBound = 1e-4;

void expect_expansions_hold(const Explanation& e, std::int64_t cached) {
  for (const Step& step : e.steps) {
    const Tensor& value = *step.value;
    ASSERT_EQ(static_cast<int>(step.axes.size()), value.shape().rank()) << step.name;
    for (std::int64_t n = 0; n < value.size(); n += 5) {
      Dims index = value.shape();
      std::int64_t rest = n;
      for (int d = index.rank() - 1; d >= 0; --d) {
        index[d] = rest % value.dim(d);
        rest /= value.dim(d);
      }
      const Expansion x = step.expand(index);
      EXPECT_EQ(x.value, value.view().at(index)) << step.name;
      const bool of_keys = step.axes.size() == 4 && step.axes[2] == "keys";
      if (x.kind == Expansion::Kind::given) {
        EXPECT_TRUE(step.name == "input" || step.name.starts_with("w_") ||
                    (of_keys && index[2] < cached))
            << step.name;
      } else if (x.kind == Expansion::Kind::copied) {
        EXPECT_EQ(e.find(x.source)->value->view().at(x.source_index), x.value) << step.name;
      } else if (x.kind == Expansion::Kind::hidden) {
        EXPECT_TRUE(x.value == 0 || std::isinf(x.value));
        EXPECT_GT(index[3], index[2] + cached);
      } else {
        EXPECT_NEAR(evaluate(x), x.value, kBound) << step.name << to_string(index);
      }
    }
  }
}

class ExplainDecoder : public GptFolderTest, public ::testing::WithParamInterface<int> {};

TEST_P(ExplainDecoder, StepsAreThoseOfTheModel) {
  const TestGpt gpt = GetParam() == 0 ? small_gpt2(true) : small_llama();
  gpt.save(directory_);
  const GptModel model = GptModel::load(directory_);
  const std::vector<std::int32_t> tokens{3, 30, 0, 7, 12};
  const TokenLabels labels{"a", "b", "c", "d", "e"};
  for (const std::int64_t cached : {0, 3}) {
    const Explanation e =
        explain_decoder(model.decoder(), model.weights(), tokens, {1, cached, 0}, labels);
    expect_expansions_hold(e, cached);
    const Step& weights = *e.find("weights");
    EXPECT_EQ(weights.value->dim(2), 5 - cached);
    EXPECT_EQ(weights.value->dim(3), 5);
    EXPECT_EQ(weights.rows.front(), cached == 0 ? "a" : "d");
    EXPECT_EQ(weights.cols.front(), cached == 0 ? "a" : "‹a›");
    EXPECT_EQ(weights.cols.back(), "e");
    EXPECT_EQ(e.find("value")->rows, weights.cols);
    EXPECT_EQ(e.find("input")->rows, weights.rows);
    EXPECT_EQ(e.find("query_rope") != nullptr, gpt.oracle.llama);
    for (const Language language : kLanguages) {
      WriteOptions options;
      options.language = language;
      const std::string text = write_text(e, options);
      EXPECT_EQ(text.find("decoder."), text.npos) << text;  // every key has its sentence
      EXPECT_EQ(text.find("step."), text.npos) << text;
    }
  }
}

TEST_P(ExplainDecoder, CachedOrNotIsTheSame) {
  const TestGpt gpt = GetParam() == 0 ? small_gpt2(false) : small_llama(true);
  gpt.save(directory_);
  const GptModel model = GptModel::load(directory_);
  const std::vector<std::int32_t> tokens{3, 30, 0, 7, 12};
  const Explanation whole = explain_decoder(model.decoder(), model.weights(), tokens, {1, 0, 0});
  const Explanation step = explain_decoder(model.decoder(), model.weights(), tokens, {1, 4, 0});
  for (std::int64_t h = 0; h < model.decoder().shape().heads; ++h) {
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_NEAR(whole.find("weights")->value->view().at({0, h, 4, j}),
                  step.find("weights")->value->view().at({0, h, 0, j}), 1e-5);
    }
  }
}

TEST_P(ExplainDecoder, RefusesPlacesThatAreNotThere) {
  const TestGpt gpt = small_llama();
  gpt.save(directory_);
  const GptModel model = GptModel::load(directory_);
  const std::vector<std::int32_t> tokens{3, 30};
  for (const DecoderPlace place : {DecoderPlace{2, 0, 0}, DecoderPlace{-1, 0, 0},
                                   DecoderPlace{0, 2, 0}, DecoderPlace{0, -1, 0}}) {
    EXPECT_THROW((void)explain_decoder(model.decoder(), model.weights(), tokens, place), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExplainDecoder, ::testing::Range(0, 2));

}  // namespace
}  // namespace qkv::testing
