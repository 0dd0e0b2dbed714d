// attention_forward against an independent evaluation, on random calls that mix every option, and
// the properties that hold for each of them.

#include "qkv/attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/attention_cases.h"
#include "tests/attention_oracle.h"
#include "tests/effort.h"
#include "tests/engines.h"

namespace qkv::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Half a unit in the last place of 1.
double rounding_unit(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

DType accumulation(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

struct Result {
  Tensor out, lse, scores, softcapped, masked, weights;
};

// Runs a case and asks for everything.
Result run(const AttentionCase& c, const AttentionOptions& options) {
  const DType real = accumulation(c.dtype);
  const Dims full{c.B, c.Hq, c.Tq, c.Tk};
  Result r{Tensor(),           Tensor(real, {c.B, c.Hq, c.Tq}),
           Tensor(real, full), Tensor(real, full),
           Tensor(real, full), Tensor(real, full)};
  AttentionStages stages;
  stages.lse = r.lse;
  stages.scores = r.scores;
  stages.softcapped = r.softcapped;
  stages.masked = r.masked;
  stages.weights = r.weights;
  attention_forward(c.query->view(), c.key->view(), c.value->view(), c.out->view(), options,
                    stages);
  r.out = Tensor::copy_of(c.out->view());
  return r;
}

// Compares [rows, width] with expected, each row within slack[row]·u (+ a rounding to the dtype).
void expect_near(const std::string& what, const Tensor& found, const std::vector<double>& expected,
                 const std::vector<double>& slack, double u, double store_unit) {
  const Tensor wide = Tensor::copy_of(found.view(), DType::f64);
  const std::span<const double> values = wide.as<double>();
  ASSERT_EQ(values.size(), expected.size()) << what;
  const std::size_t width = slack.empty() ? 1 : expected.size() / slack.size();
  for (std::size_t n = 0; n < expected.size(); ++n) {
    const double f = values[n], e = expected[n];
    if (f == e) continue;
    // 16-bit outputs below their normal range round absolutely.
    const double tolerance =
        slack[n / width] * u * 1.01 + std::abs(e) * store_unit + (store_unit > 1e-4 ? 0x1p-24 : 0);
    ASSERT_LE(std::abs(f - e), tolerance) << what << " element " << n << ": " << f << " for " << e;
  }
}

class AttentionCases : public ::testing::TestWithParam<Engine> {
 protected:
  static constexpr int kSeeds = share_of(160);
  template <typename Fn>
  void for_each_case(Fn&& fn) {
    for (int n = 0; n < kSeeds; ++n) {
      AttentionCase c(static_cast<std::uint64_t>(n));
      c.options.kernel = GetParam().kernel;
      c.options.target = GetParam().target;
      SCOPED_TRACE(c.description);
      fn(c);
      if (HasFatalFailure()) return;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, AttentionCases, ::testing::ValuesIn(engines()),
                         [](const auto& each) { return each.param.name; });

TEST_P(AttentionCases, MatchesTheOracleInEveryStage) {
  for_each_case([](const AttentionCase& c) {
    const AttentionOracle e =
        attention_oracle(c.query->view(), c.key->view(), c.value->view(), c.options);
    const Result r = run(c, c.options);
    const double u = rounding_unit(accumulation(c.dtype));
    // Raw scores of hidden keys have no slack of their own: skip what no row bounds.
    expect_near("masked", r.masked, e.masked, e.score_slack, u, u);
    expect_near("weights", r.weights, e.weights, e.weight_slack, u, 0);
    expect_near("out", r.out, e.out, e.out_slack, u, rounding_unit(c.dtype));
    std::vector<double> lse_slack = e.weight_slack;
    for (std::size_t n = 0; n < lse_slack.size(); ++n) lse_slack[n] += std::abs(e.lse[n]) + 2;
    expect_near("lse", r.lse, e.lse, lse_slack, u, u);
    EXPECT_TRUE(c.out->guards_intact());
  });
}

TEST_P(AttentionCases, SoftcapsOfAnySize) {
  constexpr double kCaps[] = {1e-300, 1e-50, 1e-40, 1e-25, 0.5, 1e4, 1e25, 1e35, 3e38, 1e300};
  for (int n = 0; n < share_of(24); ++n) {
    AttentionCase c(static_cast<std::uint64_t>(n));
    c.options.kernel = GetParam().kernel;
    c.options.target = GetParam().target;
    for (const double cap : kCaps) {
      SCOPED_TRACE(fmt::format("{} but softcap {}", c.description, cap));
      c.options.softcap = cap;
      if (n % 4 == 0) c.options.scale = 0;  // 0 / 0 has to be 0
      const AttentionOracle e =
          attention_oracle(c.query->view(), c.key->view(), c.value->view(), c.options);
      const Result r = run(c, c.options);
      const double u = rounding_unit(accumulation(c.dtype));
      expect_near("masked", r.masked, e.masked, e.score_slack, u, u);
      expect_near("out", r.out, e.out, e.out_slack, u, rounding_unit(c.dtype));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionCases, RawScoresExistForHiddenKeysToo) {
  for_each_case([](const AttentionCase& c) {
    AttentionOptions options = c.options;
    options.accumulate = Accumulate::f64;
    const AttentionOracle e =
        attention_oracle(c.query->view(), c.key->view(), c.value->view(), options);
    const Result r = run(c, options);
    // In f64, stored as f32 (or f64): the rounding of the store is all.
    const double u = rounding_unit(accumulation(c.dtype));
    const double size = 64 * 65 * 20.0;  // |q·k| of the widest case, generously
    const std::vector<double> slack(e.scores.size(), size * 0x1p-53 / u);
    expect_near("scores", r.scores, e.scores, slack, u, u);
    expect_near("softcapped", r.softcapped, e.softcapped, slack, u, u);
  });
}

TEST_P(AttentionCases, HiddenKeysAndValuesAreNotRead) {
  for_each_case([](const AttentionCase& c) {
    const Result before = run(c, c.options);
    // Keys that no query of any head of the group attends become poison.
    const Tensor weights = Tensor::copy_of(before.masked.view(), DType::f64);
    const std::int64_t group = c.Hq / c.Hkv;
    for (std::int64_t b = 0; b < c.B; ++b) {
      for (std::int64_t h = 0; h < c.Hkv; ++h) {
        for (std::int64_t j = 0; j < c.Tk; ++j) {
          bool seen = false;
          for (std::int64_t g = 0; g < group * c.Tq && !seen; ++g) {
            const double s = weights.view().at({b, h * group + g / c.Tq, g % c.Tq, j});
            seen = s != -std::numeric_limits<double>::infinity();
          }
          if (seen) continue;
          const double poison = j % 3 == 0 ? kNaN : j % 3 == 1 ? HUGE_VAL : 1e30;
          for (std::int64_t d = 0; d < c.D; ++d) c.key->view().set({b, h, j, d}, poison);
          for (std::int64_t d = 0; d < c.Dv; ++d) c.value->view().set({b, h, j, d}, poison);
        }
      }
    }
    c.out->poison();
    AttentionStages stages;  // no raw scores: those would read hidden keys
    Tensor lse(accumulation(c.dtype), before.lse.shape());
    Tensor w(accumulation(c.dtype), before.weights.shape());
    stages.lse = lse;
    stages.weights = w;
    attention_forward(c.query->view(), c.key->view(), c.value->view(), c.out->view(), c.options,
                      stages);
    const auto bytes = [](const Tensor& t) {
      return std::string(static_cast<const char*>(t.view().data()),
                         static_cast<std::size_t>(t.size()) * size_of(t.dtype()));
    };
    EXPECT_EQ(bytes(Tensor::copy_of(c.out->view())), bytes(before.out));
    EXPECT_EQ(bytes(lse), bytes(before.lse));
    EXPECT_EQ(bytes(w), bytes(before.weights));
  });
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.size() == 0 ||
          std::memcmp(a.view().data(), b.view().data(),
                      static_cast<std::size_t>(a.size()) * size_of(a.dtype())) == 0);
}

TEST_P(AttentionCases, AskingForStagesChangesNothing) {
  for_each_case([](const AttentionCase& c) {
    const Result all = run(c, c.options);
    attention_forward(c.query->view(), c.key->view(), c.value->view(), c.out->view(), c.options);
    EXPECT_TRUE(same_bits(Tensor::copy_of(c.out->view()), all.out));
  });
}

TEST_P(AttentionCases, ChosenRowsHaveTheBitsOfTheWhole) {
  for_each_case([](const AttentionCase& c) {
    const Result all = run(c, c.options);
    const std::int64_t n = 5;
    Tensor rows(DType::i64, {n, 3});
    Random random(7);
    for (std::int64_t r = 0; r < n; ++r) {
      const std::int64_t extents[3] = {c.B, c.Hq, c.Tq};
      for (std::int64_t i = 0; i < 3; ++i) {
        rows.view().set({r, i},
                        static_cast<double>(random() % static_cast<std::uint64_t>(extents[i])));
      }
    }
    const DType real = accumulation(c.dtype);
    Tensor scores(real, {n, c.Tk}), weights(real, {n, c.Tk});
    AttentionStages stages;
    stages.scores = scores;
    stages.weights = weights;
    stages.rows = rows;
    attention_forward(c.query->view(), c.key->view(), c.value->view(), c.out->view(), c.options,
                      stages);
    EXPECT_TRUE(same_bits(Tensor::copy_of(c.out->view()), all.out));
    for (std::int64_t r = 0; r < n; ++r) {
      const auto pick = [&](const Tensor& whole) {
        const auto i = rows.as<std::int64_t>().subspan(static_cast<std::size_t>(3 * r), 3);
        return Tensor::copy_of(whole.view().select(0, i[0]).select(0, i[1]).select(0, i[2]));
      };
      EXPECT_TRUE(same_bits(Tensor::copy_of(scores.view().select(0, r)), pick(all.scores)));
      EXPECT_TRUE(same_bits(Tensor::copy_of(weights.view().select(0, r)), pick(all.weights)));
    }
  });
}

TEST_P(AttentionCases, SameBitsForAnyNumberOfThreads) {
  for_each_case([](const AttentionCase& c) {
    AttentionOptions options = c.options;
    options.threads = 1;
    const Result one = run(c, options);
    for (int threads : {2, 3, 7}) {
      options.threads = threads;
      const Result many = run(c, options);
      EXPECT_TRUE(same_bits(one.out, many.out));
      EXPECT_TRUE(same_bits(one.lse, many.lse));
      EXPECT_TRUE(same_bits(one.weights, many.weights));
    }
  });
}

// A batch entry alone gives the bits that it gives in company.
TEST_P(AttentionCases, DoNotDependOnTheRestOfTheBatch) {
  for_each_case([](const AttentionCase& c) {
    if (c.B == 1) return;
    const Result together = run(c, c.options);
    for (std::int64_t b = 0; b < c.B; ++b) {
      AttentionOptions options = c.options;
      const auto entry = [b](TensorView& view) {
        if (view.has_value()) view = view.slice(0, b, b + 1);
      };
      entry(options.offsets);
      entry(options.prefix);
      entry(options.key_lengths);
      if (options.mask.rank() == 4 && options.mask.dim(0) > 1) entry(options.mask);
      if (options.bias.rank() == 4 && options.bias.dim(0) > 1) entry(options.bias);
      Tensor out(c.dtype, {1, c.Hq, c.Tq, c.Dv});
      attention_forward(c.query->view().slice(0, b, b + 1), c.key->view().slice(0, b, b + 1),
                        c.value->view().slice(0, b, b + 1), out, options);
      EXPECT_TRUE(same_bits(out, Tensor::copy_of(together.out.view().slice(0, b, b + 1))));
    }
  });
}

// A sequence of a packed batch gives the bits that it gives alone.
TEST_P(AttentionCases, PackedSequencesAreIndependent) {
  for_each_case([](const AttentionCase& c) {
    if (c.query_starts.size() == 0) return;
    const Result together = run(c, c.options);
    for (std::int64_t s = 0; s + 1 < c.query_starts.dim(0); ++s) {
      const auto at = [s](const Tensor& starts, std::int64_t i) {
        return starts.as<std::int64_t>()[static_cast<std::size_t>(s + i)];
      };
      const std::int64_t q0 = at(c.query_starts, 0), q1 = at(c.query_starts, 1);
      const std::int64_t k0 = at(c.key_starts, 0), k1 = at(c.key_starts, 1);
      AttentionOptions options = c.options;
      options.query_starts = options.key_starts = TensorView();
      for (TensorView* view : {&options.offsets, &options.prefix, &options.key_lengths}) {
        if (view->has_value()) *view = view->slice(0, s, s + 1);
      }
      for (TensorView* view : {&options.mask, &options.bias}) {
        if (!view->has_value()) continue;
        *view = view->broadcast_to({1, c.Hq, c.Tq, c.Tk}).slice(2, q0, q1).slice(3, k0, k1);
      }
      Tensor out(c.dtype, {1, c.Hq, q1 - q0, c.Dv});
      attention_forward(c.query->view().slice(2, q0, q1), c.key->view().slice(2, k0, k1),
                        c.value->view().slice(2, k0, k1), out, options);
      EXPECT_TRUE(same_bits(out, Tensor::copy_of(together.out.view().slice(2, q0, q1))));
    }
  });
}

}  // namespace
}  // namespace qkv::testing
