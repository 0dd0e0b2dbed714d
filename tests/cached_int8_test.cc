// An int8 cache: how far it is from the numbers that were appended, and what integers make of
// numbers that are hard to round.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "qkv/attention.h"
#include "qkv/cached_attention.h"
#include "tests/attention_cases.h"
#include "tests/attention_oracle.h"

namespace qkv::testing {
namespace {

// int8 against the numbers that were appended: at most 1 % of the output's RMS on normal data.
TEST(CachedInt8, IsWithinAPercent) {
  Random random(6);
  const std::int64_t T = 4096, Hkv = 2, H = 4, D = 64;
  KVCache cache({.heads = Hkv, .D = D, .storage = KVStorage::int8, .capacity = T});
  const std::vector<SequenceId> ids = {cache.add()};
  const Tensor k = normal({1, T, Hkv, D}, random), v = normal({1, T, Hkv, D}, random);
  cache.append(ids[0], k, v);
  const Tensor q = normal({1, H, 1, D}, random);
  Tensor out(DType::f32, {1, H, 1, D}), exact(DType::f32, {1, H, 1, D});
  cached_attention_forward(q, cache, 0, ids, out);
  attention_forward(q, k.view().permute({0, 2, 1, 3}), v.view().permute({0, 2, 1, 3}), exact);
  double error = 0, size = 0;
  for (std::size_t n = 0; n < static_cast<std::size_t>(H * D); ++n) {
    const double e = exact.as<float>()[n];
    error += (out.as<float>()[n] - e) * (out.as<float>()[n] - e);
    size += e * e;
  }
  EXPECT_LE(std::sqrt(error / size), 0.01);
}

// Beyond 512 numbers, sums of integers would not fit into 32 bits.
TEST(CachedInt8, TakesAnyWidth) {
  Random random(11);
  for (const std::int64_t D : {511, 512, 513, 700}) {
    const std::int64_t T = 300;
    KVCache cache({.heads = 1, .D = D, .storage = KVStorage::int8, .capacity = T});
    const std::vector<SequenceId> ids = {cache.add()};
    // Large numbers of one sign: the sums are as large as they get.
    Tensor k(DType::f32, {1, T, 1, D}), q(DType::f32, {1, 1, 1, D});
    std::ranges::fill(k.as<float>(), 1.0f);
    std::ranges::fill(q.as<float>(), 1.0f);
    cache.append(ids[0], k, normal({1, T, 1, D}, random));
    Tensor out(DType::f32, {1, 1, 1, D}), lse(DType::f32, {1, 1, 1});
    cached_attention_forward(q, cache, 0, ids, out, {.kernel = AttentionKernel::decode},
                             {.lse = lse});
    // Where a target has no products of bytes, D terms and T weights are summed as f32 one by one.
    const double score = std::sqrt(static_cast<double>(D));
    const double slack = 0x1p-24 * (static_cast<double>(D + 8) * score + static_cast<double>(T));
    EXPECT_NEAR(lse.as<float>()[0], score + std::log(T), slack) << D;
  }
}

TEST(CachedInt8, KeepsWhatIsNotFinite) {
  Random random(12);
  KVCache cache({.heads = 1, .D = 40, .storage = KVStorage::int8, .capacity = 300});
  const std::vector<SequenceId> ids = {cache.add()};
  cache.append(ids[0], normal({1, 300, 1, 40}, random), normal({1, 300, 1, 40}, random));
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Tensor q = normal({1, 2, 1, 40}, random), out(DType::f32, {1, 2, 1, 40});
    q.as<float>()[39] = odd;  // of head 0
    cached_attention_forward(q, cache, 0, ids, out, {.kernel = AttentionKernel::decode});
    EXPECT_TRUE(std::isnan(out.as<float>()[0]));
    EXPECT_TRUE(std::isfinite(out.as<float>()[40]));
  }
}

// Weights of an int8 cache are rounded beside the largest one of many: few heavy keys among many
// light ones, and values of very different sizes, stay within what f32 may be off by (semantics
// 12).
TEST(CachedInt8, WeighsHeavyAndLight) {
  Random random(14);
  const std::int64_t T = 3000, Hkv = 2, Hq = 8, D = 64, Dv = 72;
  for (const double spread : {0.0, 4.0}) {
    for (const float sharp : {1.0f, 2.0f, 6.0f}) {
      KVCache cache({.heads = Hkv, .D = D, .Dv = Dv, .storage = KVStorage::int8, .capacity = T});
      const std::vector<SequenceId> ids = {cache.add()};
      Tensor v = normal({1, T, Hkv, Dv}, random), q = normal({1, Hq, 1, D}, random);
      for (std::int64_t n = 0; n < T * Hkv; ++n) {
        const auto size =
            static_cast<float>(std::exp(std::uniform_real_distribution(-spread, spread)(random)));
        for (float& x : v.as<float>().subspan(static_cast<std::size_t>(n * Dv), Dv)) x *= size;
      }
      for (float& x : q.as<float>()) x *= sharp;
      cache.append(ids[0], normal({1, T, Hkv, D}, random), v);
      Tensor out(DType::f32, {1, Hq, 1, Dv}), plain(DType::f32, {1, Hq, 1, Dv});
      cached_attention_forward(q, cache, 0, ids, out, {.kernel = AttentionKernel::decode});
      const Tensor stored_k = cache.keys(ids[0], 0), stored_v = cache.values(ids[0], 0);
      const TensorView k = stored_k.view().unflatten(0, {1, Hkv}),
                       w = stored_v.view().unflatten(0, {1, Hkv});
      attention_forward(q, k, w, plain, {.kernel = AttentionKernel::reference});
      const AttentionOracle e = attention_oracle(q, k, w, {});
      const auto largest = [](std::span<const float> x) {
        return std::abs(*std::ranges::max_element(x, {}, [](float y) { return std::abs(y); }));
      };
      double of_plain = 0, found = 0, score = 0;
      for (std::size_t n = 0; n < e.out.size(); ++n) {
        of_plain = std::max(of_plain, std::abs(plain.as<float>()[n] - e.out[n]));
        found = std::max(found, std::abs(out.as<float>()[n] - e.out[n]));
      }
      for (const double s : e.scores) score = std::max(score, std::abs(s));
      EXPECT_LE(found, 2 * of_plain + 0x1p-23 * (8 + score) * largest(stored_v.as<float>()))
          << spread << " " << sharp << ": plain " << of_plain << ", score " << score;
    }
  }
}

// One heavy key, and light ones that would all be rounded away beside it.
TEST(CachedInt8, LosesNoneOfManyLightKeys) {
  const std::int64_t D = 16, Dv = 64;
  for (const std::int64_t T : {512, 10240}) {
    for (const float heavy : {0.0f, 1.0f}) {
      for (const float x : {3.0f, 4.35f, 4.4f}) {
        KVCache cache({.heads = 1, .D = D, .Dv = Dv, .storage = KVStorage::int8, .capacity = T});
        const std::vector<SequenceId> ids = {cache.add()};
        Tensor k(DType::f32, {1, T, 1, D}), v(DType::f32, {1, T, 1, Dv}),
            q(DType::f32, {1, 1, 1, D});
        std::ranges::fill(k.as<float>().last(D), 1.0f);
        std::ranges::fill(v.as<float>(), 1.0f);
        std::ranges::fill(v.as<float>().last(Dv), heavy);
        std::ranges::fill(q.as<float>(), x);
        cache.append(ids[0], k, v);
        Tensor out(DType::f32, {1, 1, 1, Dv});
        cached_attention_forward(q, cache, 0, ids, out, {.kernel = AttentionKernel::decode});
        const double score = static_cast<double>(x) * 4;
        const double light = static_cast<double>(T - 1) * std::exp(-score);
        const double expected = (light + static_cast<double>(heavy)) / (light + 1);
        EXPECT_NEAR(out.as<float>()[5], expected, 0x1p-23 * (8 + score)) << T << " " << x;
      }
    }
  }
}

// Values that are not finite, and rows beside them that do not see them.
TEST(CachedInt8, ValuesThatAreNotFinite) {
  Random random(15);
  const std::int64_t T = 600, D = 8, Dv = 70;
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    KVCache cache({.heads = 1, .D = D, .Dv = Dv, .storage = KVStorage::int8, .capacity = T});
    const std::vector<SequenceId> ids = {cache.add()};
    Tensor v = normal({1, T, 1, Dv}, random);
    v.as<float>()[static_cast<std::size_t>((T - 2) * Dv + 3)] = odd;  // seen by the last two
    cache.append(ids[0], normal({1, T, 1, D}, random), v);
    const Tensor q = normal({1, 2, 4, D}, random);
    Tensor out(DType::f32, {1, 2, 4, Dv}), plain(DType::f32, {1, 2, 4, Dv});
    cached_attention_forward(q, cache, 0, ids, out, {.kernel = AttentionKernel::decode});
    const Tensor k = cache.keys(ids[0], 0), w = cache.values(ids[0], 0);
    attention_forward(
        q, k.view().unflatten(0, {1, 1}), w.view().unflatten(0, {1, 1}), plain,
        {.causal = Causal::aligned, .offset = T - 4, .kernel = AttentionKernel::reference});
    for (std::size_t n = 0; n < out.as<float>().size(); ++n) {
      const float x = out.as<float>()[n], y = plain.as<float>()[n];
      ASSERT_TRUE(std::isnan(y) ? std::isnan(x) : std::abs(x - y) < 1e-5)
          << n << ": " << x << " for " << y;
      if (n / Dv % 4 < 2) {
        ASSERT_TRUE(std::isfinite(x)) << n;
      }
    }
  }
}

}  // namespace
}  // namespace qkv::testing
