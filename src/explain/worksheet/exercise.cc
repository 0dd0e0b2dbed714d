// Exercises on small integers.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "explain/explain.h"
#include "explain/generator.h"
#include "explain/worksheet/worksheet.h"
#include "qkv/error.h"

namespace qkv::worksheet {
namespace {

using Integers = std::vector<std::int64_t>;  // row-major

void check(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return;
  throw Error(ErrorKind::value, "worksheet", name, fmt::format("{} to {}", low, high),
              fmt::format("{}", value));
}

Integers draw(Generator& g, std::int64_t count, std::int64_t low, std::int64_t high) {
  Integers result(static_cast<std::size_t>(count));
  for (std::int64_t& x : result) x = g.integer(low, high);
  return result;
}

// a [rows, inner] · b [inner, cols]
Integers multiply(const Integers& a, const Integers& b, std::int64_t inner) {
  const std::int64_t rows = static_cast<std::int64_t>(a.size()) / inner;
  const std::int64_t cols = static_cast<std::int64_t>(b.size()) / inner;
  Integers result(static_cast<std::size_t>(rows * cols), 0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t n = 0; n < inner; ++n) {
      for (std::int64_t c = 0; c < cols; ++c) {
        result[static_cast<std::size_t>(r * cols + c)] +=
            a[static_cast<std::size_t>(r * inner + n)] * b[static_cast<std::size_t>(n * cols + c)];
      }
    }
  }
  return result;
}

std::int64_t largest_size(const Integers& values) {
  std::int64_t result = 0;
  for (std::int64_t x : values) result = std::max({result, x, -x});
  return result;
}

bool same_rows(const Integers& values, std::int64_t i, std::int64_t j, std::int64_t width) {
  const auto row = [&](std::int64_t n) { return values.begin() + n * width; };
  return std::equal(row(i), row(i) + width, row(j));
}

struct Draft {
  Integers x, wq, wk, wv, wo;
};

// How far a draft is from pleasant, 0 being pleasant: Q, K and V of one digit or little more, and
// in each row scores that differ, but by no more than softmax shows in a few decimals. Whole
// numbers only, so that every machine agrees.
std::int64_t unpleasant(const Draft& draft, const ExerciseOptions& o) {
  constexpr std::int64_t kLargestEntry = 6, kLargestSpread = 8;
  const Integers q = multiply(draft.x, draft.wq, o.width), k = multiply(draft.x, draft.wk, o.width);
  const Integers v = multiply(draft.x, draft.wv, o.width);
  const auto above = [](std::int64_t value, std::int64_t limit) {
    return std::max<std::int64_t>(value - limit, 0);
  };
  std::int64_t result = 0;
  for (const Integers& each : {q, k, v}) result += above(largest_size(each), kLargestEntry);
  for (std::int64_t i = 1; i < o.tokens; ++i) {
    for (std::int64_t j = 0; j < i; ++j) result += same_rows(draft.x, i, j, o.width) ? 2 : 0;
  }
  const std::int64_t wide = o.heads * o.head_width;
  for (std::int64_t h = 0; h < o.heads; ++h) {
    for (std::int64_t i = 0; i < o.tokens; ++i) {
      std::int64_t low = std::numeric_limits<std::int64_t>::max(), high = -low;
      for (std::int64_t j = 0; j < o.tokens; ++j) {
        std::int64_t score = 0;
        for (std::int64_t d = h * o.head_width; d < (h + 1) * o.head_width; ++d) {
          score +=
              q[static_cast<std::size_t>(i * wide + d)] * k[static_cast<std::size_t>(j * wide + d)];
        }
        low = std::min(low, score);
        high = std::max(high, score);
      }
      result += above(high - low, kLargestSpread) + (high == low ? 2 : 0);
    }
  }
  return result;
}

Draft draw_pleasant(const ExerciseOptions& o) {
  constexpr int kAttempts = 400;
  Generator g(o.seed);
  const std::int64_t wide = o.heads * o.head_width;
  Draft best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int n = 0; n < kAttempts && least > 0; ++n) {
    Draft draft;
    draft.x = draw(g, o.tokens * o.width, 0, 3);
    for (Integers* w : {&draft.wq, &draft.wk, &draft.wv}) *w = draw(g, o.width * wide, -1, 2);
    draft.wo = draw(g, wide * o.width, -1, 2);
    const std::int64_t faults = unpleasant(draft, o);
    if (faults < least) {
      least = faults;
      best = std::move(draft);
    }
  }
  return best;
}

Tensor tensor_of(const Integers& values, const Dims& shape) {
  auto next = values.begin();
  return Generator::fill(DType::f64, shape, [&] { return static_cast<double>(*next++); });
}

// [in, out] as drawn to [out, in] as linear maps hold it.
Tensor weight_of(const Integers& values, std::int64_t in, std::int64_t out) {
  return Tensor::copy_of(tensor_of(values, {in, out}).view().transpose(0, 1));
}

}  // namespace

Explanation make_exercise(const ExerciseOptions& o) {
  constexpr std::uint64_t kLargestSeed = std::numeric_limits<std::int64_t>::max();
  if (o.seed > kLargestSeed) {
    throw Error(ErrorKind::value, "worksheet", "seed", fmt::format("0 to {}", kLargestSeed),
                fmt::format("{}", o.seed));
  }
  check("tokens", o.tokens, 2, 6);
  check("width", o.width, 2, 6);
  check("head_width", o.head_width, 1, 4);
  check("heads", o.heads, 1, 3);
  const Draft draft = draw_pleasant(o);
  const std::int64_t wide = o.heads * o.head_width;
  const Tensor x = tensor_of(draft.x, {1, o.tokens, o.width});
  const Tensor wq = weight_of(draft.wq, o.width, wide), wk = weight_of(draft.wk, o.width, wide);
  const Tensor wv = weight_of(draft.wv, o.width, wide), wo = weight_of(draft.wo, wide, o.width);
  TransformerWeights weights;
  weights.query.weight = wq;
  weights.key.weight = wk;
  weights.value.weight = wv;
  weights.output.weight = wo;
  weights.heads = o.heads;
  BlockOptions options;
  if (o.causal) options.attention.causal = Causal::aligned;
  TokenLabels tokens;
  for (std::int64_t t = 0; t < o.tokens; ++t) tokens.push_back(fmt::format("t{}", t));
  Explanation e = explain_transformer(weights, x, {}, options, tokens);
  e.block = "exercise";
  e.text = "worksheet.exercise";
  for (Step& step : e.steps) {
    if (step.name == "masked") step.formula = "masked[i, j] = scaled[i, j] if j ≤ i, else −inf";
    if (step.name == "heads" && o.heads == 1) step.text = "step.attention_output";
  }
  // One head needs nothing to join heads.
  std::erase_if(e.steps, [&](const Step& s) {
    const bool joins = s.name == "concat" || s.name == "w_output" || s.name == "output";
    return (joins && o.heads == 1) || (s.name == "masked" && !o.causal);
  });
  return e;
}

Worksheet exercise_worksheet(const ExerciseOptions& options, int digits) {
  Worksheet sheet = make_worksheet(make_exercise(options), digits);
  sheet.intro_arguments = {fmt::format("{}", options.seed)};
  return sheet;
}

}  // namespace qkv::worksheet
