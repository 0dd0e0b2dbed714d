// A target may have several fused kernels, for vectors of different widths, and steps of several
// blocks of keys. Which one runs, and how many go past at a time, is a matter of speed alone: the
// bits are the same.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/attention/fused.h"
#include "ops/attention_check.h"
#include "qkv/cpu.h"
#include "tests/attention_cases.h"
#include "tests/effort.h"

namespace qkv::testing {
namespace {

struct Results {
  Tensor out, lse, weights;
  bool rest_apart = false;
};

struct Inputs {
  TensorView query, key, value;
};

Results run(const Inputs& x, const AttentionOptions& options, const FusedKernel& kernel, DType real,
            const FusedTuning& tuning = {}, int threads = 2) {
  Dims out = x.query.shape(), weights = out;
  out[3] = x.value.dim(3);
  weights[3] = x.key.dim(2);
  Results r{Tensor(real, out), Tensor(real, {out[0], out[1], out[2]}), Tensor(real, weights)};
  AttentionStages stages;
  stages.lse = r.lse;
  stages.weights = r.weights;
  const AttentionProblem problem = check_attention(x.query, x.key, x.value, r.out, options, stages);
  const FusedSplit split = split_fused(problem, kernel, threads, tuning);
  r.rest_apart = split.rest != nullptr;
  Tensor workspace(DType::u8, {fused_workspace(problem, split, threads)});
  attention_fused(problem, kernel, split, threads,
                  reinterpret_cast<std::byte*>(workspace.as<std::uint8_t>().data()));
  return r;
}

Results run(const AttentionCase& c, const FusedKernel& kernel, DType real,
            const FusedTuning& tuning = {}) {
  return run({c.query->view(), c.key->view(), c.value->view()}, c.options, kernel, real, tuning);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.size() == 0 || std::memcmp(a.view().data(), b.view().data(),
                                      static_cast<std::size_t>(a.size()) * size_of(a.dtype())) == 0;
}

// The same, but any NaN is as good as another.
bool same_numbers(Tensor& a, Tensor& b) {
  const auto settle = [](auto numbers) {
    for (auto& x : numbers) {
      if (x != x) x = 12345;
    }
  };
  for (Tensor* t : {&a, &b}) {
    t->dtype() == DType::f64 ? settle(t->as<double>()) : settle(t->as<float>());
  }
  return same_bits(a, b);
}

TEST(FusedKernels, OfOneTargetGiveTheSameBits) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(share_of(60)); ++seed) {
    const AttentionCase c(seed);
    const bool wide = c.dtype == DType::f64 || c.options.accumulate == Accumulate::f64;
    const DType real = wide ? DType::f64 : DType::f32;
    const auto kernels = wide ? fused_kernels_f64() : fused_kernels_f32();
    for (std::size_t i = 1; i < kernels.size(); ++i) {
      const auto& targets = simd_targets();
      if (kernels[i].target != kernels[i - 1].target) continue;
      if (std::find(targets.begin(), targets.end(), kernels[i].target) == targets.end()) continue;
      const Results a = run(c, kernels[i - 1], real), b = run(c, kernels[i], real);
      EXPECT_TRUE(same_bits(a.out, b.out)) << c.description;
      EXPECT_TRUE(same_bits(a.lse, b.lse)) << c.description;
      EXPECT_TRUE(same_bits(a.weights, b.weights)) << c.description;
      ++compared;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no target of this CPU has two kernels";
}

// The kernels of this CPU that compute what a case does.
std::vector<FusedKernel> kernels_of(bool f64) {
  const auto& targets = simd_targets();
  std::vector<FusedKernel> found;
  for (const FusedKernel& kernel : f64 ? fused_kernels_f64() : fused_kernels_f32()) {
    if (std::find(targets.begin(), targets.end(), kernel.target) != targets.end()) {
      found.push_back(kernel);
    }
  }
  return found;
}

TEST(FusedKernels, StepsOfSeveralBlocksGiveTheSameBits) {
  for (std::uint64_t seed = 100; seed < 100 + static_cast<std::uint64_t>(share_of(80)); ++seed) {
    const AttentionCase c(seed);
    const bool wide = c.dtype == DType::f64 || c.options.accumulate == Accumulate::f64;
    const DType real = wide ? DType::f64 : DType::f32;
    // Every other case has a value that is no number: where it is hidden, it is left out.
    if (seed % 2 == 1) {
      const MutableTensorView token = c.value->view().select(2, c.Tk / 2);
      for (std::int64_t i = 0; i < c.Dv; ++i) {
        token.set({0, 0, i}, std::numeric_limits<double>::quiet_NaN());
      }
    }
    for (const FusedKernel& kernel : kernels_of(wide)) {
      Results one = run(c, kernel, real, {.step_blocks = 1});
      for (const std::int64_t blocks : {2, 4}) {
        Results more = run(c, kernel, real, {.step_blocks = blocks});
        EXPECT_TRUE(same_numbers(one.out, more.out)) << c.description;
        EXPECT_TRUE(same_numbers(one.lse, more.lse)) << c.description;
        EXPECT_TRUE(same_numbers(one.weights, more.weights)) << c.description;
      }
    }
  }
}

// Options of every kind, for so many queries and keys of 3 heads.
struct EveryOption {
  Tensor mask, bias, slopes, sinks, lengths, prefix;
  std::vector<AttentionOptions> all;

  EveryOption(std::int64_t tokens, DType real, Random& random)
      : mask(DType::boolean, {1, 1, tokens, tokens}),
        bias(Tensor::copy_of(normal({3, tokens, tokens}, random), real)),
        slopes(normal({3}, random, 0.1)),
        sinks(normal({3}, random)),
        lengths(DType::i64, {1}),
        prefix(DType::i64, {1}),
        all(5) {
    for (bool& m : mask.as<bool>()) m = random() % 2 == 0;
    lengths.as<std::int64_t>()[0] = tokens - 3;
    prefix.as<std::int64_t>()[0] = 5;
    all[1].causal = Causal::top_left;
    all[1].softcap = 2;
    all[2].mask = mask;
    all[2].alibi = slopes;
    all[3].bias = bias;
    all[3].key_lengths = lengths;
    all[4].window = {20, 3};
    all[4].prefix = prefix;
    all[4].sinks = sinks;
  }
};

// Whole vectors of queries by one kernel, what is left by the other.
TEST(FusedKernels, TheRestApartGivesTheSameBits) {
  Random random(7);
  int compared = 0;
  const auto compare = [&](const FusedKernel& kernel, DType real, const Dims& heads_tokens_width,
                           const AttentionOptions& options) {
    const std::int64_t heads = heads_tokens_width[0], tokens = heads_tokens_width[1];
    const Tensor q = Tensor::copy_of(normal({1, 3, tokens, 17}, random), real);
    const Tensor k = Tensor::copy_of(normal({1, heads, tokens, 17}, random), real);
    const Tensor v =
        Tensor::copy_of(normal({1, heads, tokens, heads_tokens_width[2]}, random), real);
    const Inputs x{q, k, v};
    const Results one = run(x, options, kernel, real, {.rest_apart = false});
    const Results two = run(x, options, kernel, real, {.rest_apart = true});
    EXPECT_FALSE(one.rest_apart);
    EXPECT_TRUE(two.rest_apart) << to_string(heads_tokens_width);
    EXPECT_TRUE(same_bits(one.out, two.out)) << to_string(heads_tokens_width);
    EXPECT_TRUE(same_bits(one.lse, two.lse)) << to_string(heads_tokens_width);
    EXPECT_TRUE(same_bits(one.weights, two.weights)) << to_string(heads_tokens_width);
    ++compared;
  };
  for (const DType real : {DType::f32, DType::f64}) {
    for (const FusedKernel& kernel : kernels_of(real == DType::f64)) {
      const FusedKernel* narrower = find_narrower_kernel(kernel);
      if (narrower == nullptr) continue;
      const std::int64_t lanes = kernel.lanes, block = lanes * kernel.max_vectors;
      for (const std::int64_t rest : {std::int64_t{1}, std::int64_t{narrower->lanes}, lanes - 1}) {
        // Units of one block; of several; the last one of a single vector, and of less than that.
        for (const std::int64_t whole : {block, 3 * block, 8 * block + lanes, 9 * block}) {
          for (const AttentionOptions& options : EveryOption(whole + rest, real, random).all) {
            compare(kernel, real, {3, whole + rest, 32}, options);
          }
        }
        // Heads in a group; values whose columns the narrower vectors alone divide, and nobody.
        compare(kernel, real, {1, block + rest, 32}, {});
        compare(kernel, real, {3, block + rest, 3 * std::int64_t{narrower->lanes}}, {});
        compare(kernel, real, {3, block + rest, 19}, {});
        Tensor starts(DType::i64, {4});
        const std::int64_t ends[] = {0, rest, block + 2 * rest, 6 * block};
        std::copy(std::begin(ends), std::end(ends), starts.as<std::int64_t>().begin());
        compare(kernel, real, {3, ends[3], 32}, {.query_starts = starts, .key_starts = starts});
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << "no target of this CPU has two kernels";
}

// The few queries that a wide kernel has left go by other tiles than those of a narrow one.
TEST(FusedKernels, FewQueriesApartHaveTheSameBits) {
  const std::vector<FusedKernel> kernels = kernels_of(false);
  const FusedKernel* narrow = kernels.empty() ? nullptr : find_narrower_kernel(kernels.front());
  if (narrow == nullptr) GTEST_SKIP() << "no target of this CPU has two kernels";
  Random random(8);
  // One thread: a unit has them and the whole vectors before them.
  const auto compare_views = [&](const Inputs& x, const AttentionOptions& options) {
    const FusedTuning tuning{.rest_apart = false};
    const Results wide = run(x, options, kernels.front(), DType::f32, tuning, 1);
    const Results other = run(x, options, *narrow, DType::f32, tuning, 1);
    const std::string what =
        fmt::format("{} queries, {} keys of {}", x.query.dim(2), x.key.dim(2), x.key.dim(3));
    EXPECT_TRUE(same_bits(wide.out, other.out)) << what;
    EXPECT_TRUE(same_bits(wide.lse, other.lse)) << what;
    EXPECT_TRUE(same_bits(wide.weights, other.weights)) << what;
  };
  const auto compare = [&](std::int64_t queries, std::int64_t keys, std::int64_t depth,
                           const AttentionOptions& options) {
    const Tensor q = normal({1, 3, queries, depth}, random),
                 k = normal({1, 3, keys, depth}, random);
    compare_views({q, k, normal({1, 3, keys, 32}, random)}, options);
  };
  const std::int64_t lanes = kernels.front().lanes, block = lanes * kernels.front().max_vectors;
  for (std::int64_t few = 1; few <= lanes / 2 + 1; ++few) {
    for (const std::int64_t depth : {64, 65, 68, 69, 71, 127}) {
      compare(block + few, 3 + 8 * few, depth, {});
      for (const AttentionOptions& options : EveryOption(block + few, DType::f32, random).all) {
        compare(block + few, block + few, depth, options);
      }
    }
  }
  // Each number of keys that a tile may have left.
  for (std::int64_t keys = 1; keys <= 49; ++keys) compare(block + 5, keys, 64, {});
  compare(3 * block + 5, 3 * block + 5, 64, {});
  // Several blocks of keys, and the rest of the last one.
  for (const AttentionOptions& options : EveryOption(8 * block + 5, DType::f32, random).all) {
    compare(8 * block + 5, 8 * block + 5, 64, options);
  }
  // Tokens that do not follow each other, surrounded by what must not be read.
  const std::int64_t tokens = block + 3, depth = 70;
  Tensor x(DType::f32, {1, tokens, 3, depth + 9});
  std::fill(x.as<float>().begin(), x.as<float>().end(), std::numeric_limits<float>::quiet_NaN());
  const MutableTensorView inside = x.view().slice(3, 4, 4 + depth).transpose(1, 2);
  for (std::int64_t h = 0; h < 3; ++h) {
    Tensor numbers = normal({tokens * depth}, random);
    for (std::int64_t n = 0; n < tokens * depth; ++n) {
      inside.set({0, h, n / depth, n % depth}, numbers.as<float>()[static_cast<std::size_t>(n)]);
    }
  }
  compare_views({inside, inside, inside}, {});
}

}  // namespace
}  // namespace qkv::testing
