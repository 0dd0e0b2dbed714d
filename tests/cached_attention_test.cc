// Attention over a cache against the f64 oracle on the numbers that the cache holds: random kinds,
// storages, lengths, forks and options.

#include "qkv/cached_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>

#include "base/cpu.h"
#include "qkv/error.h"
#include "tests/attention_cases.h"
#include "tests/attention_oracle.h"
#include "tests/effort.h"
#include "tests/engines.h"

namespace qkv::testing {
namespace {

std::int64_t pick(Random& random, std::initializer_list<std::int64_t> from) {
  return from.begin()[random() % from.size()];
}
bool one_in(Random& random, std::uint64_t n) { return random() % n == 0; }

// A cache with a few sequences of different lengths, and a call on one layer of it.
struct CachedCase {
  explicit CachedCase(std::uint64_t seed);

  std::string description;
  std::unique_ptr<KVCache> cache;
  std::vector<SequenceId> ids;
  std::int64_t layer, B, Hq, Hkv, Tq, D, Dv;
  std::unique_ptr<Strided> query, out;
  Tensor alibi, sinks, key_lengths;
  CachedAttentionOptions options;

 private:
  void choose_cache(Random& random);
  void grow(Random& random, SequenceId id, std::int64_t tokens);
  void choose_options(Random& random);
};

void CachedCase::choose_cache(Random& random) {
  KVCacheConfig c;
  c.layers = 2;
  c.heads = Hkv;
  c.D = D;
  c.Dv = Dv;
  c.kind = static_cast<KVCacheKind>(random() % 3);
  c.storage = static_cast<KVStorage>(random() % 4);
  c.page_tokens = pick(random, {16, 32, 48, 64});
  c.capacity = c.kind == KVCacheKind::paged ? 16384 : 2100;
  c.sequences = 8;
  if (c.kind == KVCacheKind::windowed) {
    c.window = pick(random, {1, 7, 33, 300});
    c.capacity = c.window + pick(random, {15, 40, 900});
  }
  cache = std::make_unique<KVCache>(c);
  description += std::string(name_of(c.kind)) + " " + std::string(name_of(c.storage));
}

// Appends in chunks, as far as the cache lets.
void CachedCase::grow(Random& random, SequenceId id, std::int64_t tokens) {
  const KVCacheConfig& c = cache->config();
  while (tokens > 0) {
    std::int64_t n = std::min<std::int64_t>(tokens, pick(random, {1, 15, 16, 17, 500}));
    if (c.kind == KVCacheKind::windowed) n = std::min(n, c.capacity - c.window + 1);
    const Tensor k = normal({c.layers, n, Hkv, D}, random),
                 v = normal({c.layers, n, Hkv, Dv}, random);
    cache->append(id, k, v);
    tokens -= n;
  }
}

void CachedCase::choose_options(Random& random) {
  if (one_in(random, 4)) options.scale = 0.3;
  if (one_in(random, 4)) options.softcap = 2.5;
  options.causal = !one_in(random, 4);
  if (one_in(random, 3)) options.window.left = pick(random, {0, 1, 15, 16, 100});
  if (one_in(random, 4)) options.window.right = pick(random, {0, 1, 3});
  const Dims heads{Hq};
  if (one_in(random, 3)) options.alibi = alibi = normal(heads, random, 0.1);
  if (one_in(random, 3)) {
    sinks = normal(heads, random);
    if (Hq > 1) sinks.view().set({Hq - 1}, -HUGE_VAL);
    options.sinks = sinks;
  }
  if (one_in(random, 3)) {
    key_lengths = Tensor(DType::i32, {B});
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t n = cache->length(ids[static_cast<std::size_t>(b)]);
      key_lengths.view().set({b},
                             static_cast<double>(random() % static_cast<std::uint64_t>(n + 1)));
    }
    options.key_lengths = key_lengths;
  }
}

CachedCase::CachedCase(std::uint64_t seed) : description("seed " + std::to_string(seed) + ": ") {
  Random random(seed);
  Hkv = pick(random, {1, 2, 3});
  Hq = Hkv * pick(random, {1, 2, 3, 4, 7});
  D = pick(random, {1, 3, 15, 16, 17, 32, 64, 80, 128});
  Dv = one_in(random, 2) ? D : pick(random, {1, 5, 16, 31, 64, 96});
  choose_cache(random);
  B = pick(random, {1, 2, 3});
  Tq = pick(random, {1, 1, 1, 2, 3, 5, 8, 15});
  layer = static_cast<std::int64_t>(random() % 2);
  for (std::int64_t b = 0; b < B; ++b) {
    if (b > 0 && one_in(random, 2)) {
      ids.push_back(cache->fork(ids.back()));
      grow(random, ids.back(), 3);
    } else {
      ids.push_back(cache->add());
      grow(random, ids.back(), Tq + pick(random, {0, 1, 2, 15, 16, 47, 113, 203, 600, 1100}));
    }
  }
  const DType dtype =
      one_in(random, 4) ? (one_in(random, 2) ? DType::f16 : DType::bf16) : DType::f32;
  const auto layout = [&] { return static_cast<Strided::Layout>(random() % 5); };
  query = std::make_unique<Strided>(dtype, Dims{B, Hq, Tq, D}, layout());
  out = std::make_unique<Strided>(dtype, Dims{B, Hq, Tq, Dv}, layout());
  fill_normal(query->view(), random);
  choose_options(random);
  description += " Hq " + std::to_string(Hq) + " Hkv " + std::to_string(Hkv) + " Tq " +
                 std::to_string(Tq) + " D " + std::to_string(D) + " Dv " + std::to_string(Dv);
}

// What the call means, on dense copies, for one batch entry.
AttentionOptions dense_options(const CachedCase& c, std::int64_t b, std::int64_t first,
                               std::int64_t end, Tensor& lengths) {
  AttentionOptions o;
  o.scale = c.options.scale;
  o.softcap = c.options.softcap;
  o.causal = c.options.causal ? Causal::aligned : Causal::none;
  o.window = c.options.window;
  const KVCacheConfig& config = c.cache->config();
  if (config.kind == KVCacheKind::windowed &&
      (o.window.left < 0 || o.window.left >= config.window)) {
    o.window.left = config.window - 1;
  }
  o.offset = end - c.Tq - first;  // positions count from the first key that is kept
  o.alibi = c.options.alibi;
  o.sinks = c.options.sinks;
  if (c.options.key_lengths.has_value()) {
    lengths.view().set({0},
                       std::max(0.0, c.key_lengths.view().at({b}) - static_cast<double>(first)));
    o.key_lengths = lengths;
  }
  return o;
}

std::vector<Engine> cached_engines() {
  std::vector<Engine> all = engines();
  for (const SimdTarget target : simd_targets()) {
    all.push_back({"decode_" + std::string(name_of(target)), AttentionKernel::decode, target});
  }
  return all;
}

class CachedAttention : public ::testing::TestWithParam<Engine> {
 protected:
  // The others take a copy of the cache, and are tested without one elsewhere.
  static int seeds() { return share_of(GetParam().kernel == AttentionKernel::decode ? 80 : 12); }
};
INSTANTIATE_TEST_SUITE_P(, CachedAttention, ::testing::ValuesIn(cached_engines()),
                         [](const auto& each) { return each.param.name; });

double rounding_unit(DType dtype) {
  return dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

// What a score may be off by where int8 keys are multiplied by the query as integers
// (decode_bytes-inl.h): a number of the query by 2^-23 of the largest, and each of 16 lanes by half
// of 2^-15 of it.
double word_slack(const CachedCase& c, const TensorView& q, const TensorView& k, std::int64_t row) {
  const bool words =
      c.cache->config().storage == KVStorage::int8 && cpu_has("avx512vnni") &&
      (c.options.kernel == AttentionKernel::decode ||
       c.options.kernel == AttentionKernel::automatic) &&
      (c.options.target == SimdTarget::avx512 || c.options.target == SimdTarget::automatic);
  if (!words) return 0;
  const std::int64_t h = row / c.Tq, kv = h / (c.Hq / c.Hkv), D = q.dim(3);
  double largest = 0, most = 0, highest = 0;
  for (std::int64_t d = 0; d < D; ++d) {
    largest = std::max(largest, std::abs(q.at({0, h, row % c.Tq, d})));
  }
  for (std::int64_t j = 0; j < k.dim(1); ++j) {
    double sum = 0;
    for (std::int64_t d = 0; d < D; ++d) {
      sum += std::abs(k.at({kv, j, d}));
      highest = std::max(highest, std::abs(k.at({kv, j, d})));
    }
    most = std::max(most, sum);
  }
  const double scale = c.options.scale.value_or(1 / std::sqrt(static_cast<double>(D)));
  return std::abs(scale) * largest * (most * 0x1p-23 + highest / 127 * 8 * 0x1p-15);
}

// out_slack is what f32 may be off by (attention_oracle.cc), in units of 2⁻²⁴. Scores that are off
// by up to x change a weight by a factor between e^-2x and e^2x.
void expect_row_block(const CachedCase& c, std::int64_t b, const TensorView& lse) {
  const std::int64_t first = c.cache->first(c.ids[static_cast<std::size_t>(b)]);
  const std::int64_t end = c.cache->length(c.ids[static_cast<std::size_t>(b)]);
  const Tensor k = c.cache->keys(c.ids[static_cast<std::size_t>(b)], c.layer);
  const Tensor v = c.cache->values(c.ids[static_cast<std::size_t>(b)], c.layer);
  Tensor lengths(DType::i64, {1});
  const Tensor q = Tensor::copy_of(c.query->view().slice(0, b, b + 1), DType::f32);
  const AttentionOracle e =
      attention_oracle(q, k.view().unflatten(0, {1, c.Hkv}), v.view().unflatten(0, {1, c.Hkv}),
                       dense_options(c, b, first, end, lengths));
  const double store = rounding_unit(c.out->view().dtype());
  for (std::int64_t row = 0; row < c.Hq * c.Tq; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const double words = word_slack(c, q, k, row);
    for (std::int64_t d = 0; d < c.Dv; ++d) {
      double value = 0;
      for (std::int64_t j = 0; words > 0 && j < v.view().dim(1); ++j) {
        value = std::max(value, std::abs(v.view().at({row / c.Tq / (c.Hq / c.Hkv), j, d})));
      }
      const double expected = e.out[static_cast<std::size_t>(row * c.Dv + d)];
      const double found = c.out->view().at({b, row / c.Tq, row % c.Tq, d});
      const double bound = e.out_slack[r] * 0x1p-24 * 1.01 + std::abs(expected) * store +
                           (store > 1e-4 ? 0x1p-24 : 0) + std::expm1(2 * words) * value;
      ASSERT_LE(std::abs(found - expected), bound)
          << "row " << row << " d " << d << ": " << found << " for " << expected;
    }
    const double found = lse.at({b, row / c.Tq, row % c.Tq});
    if (found == e.lse[r]) continue;
    ASSERT_LE(std::abs(found - e.lse[r]),
              (e.weight_slack[r] + 2 * std::abs(e.lse[r]) + 2) * 0x1p-24 * 1.01 + words)
        << "lse of row " << row;
  }
}

TEST_P(CachedAttention, MatchesTheOracle) {
  for (int n = 0; n < seeds(); ++n) {
    CachedCase c(static_cast<std::uint64_t>(n));
    SCOPED_TRACE(c.description);
    c.options.kernel = GetParam().kernel;
    c.options.target = GetParam().target;
    Tensor lse(DType::f32, {c.B, c.Hq, c.Tq});
    AttentionStages stages;
    stages.lse = lse;
    cached_attention_forward(c.query->view(), *c.cache, c.layer, c.ids, c.out->view(), c.options,
                             stages);
    EXPECT_TRUE(c.out->guards_intact());
    for (std::int64_t b = 0; b < c.B; ++b) {
      expect_row_block(c, b, lse);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CachedAttention, SameBitsForAnyNumberOfThreadsAlsoInASnapshot) {
  for (int n = 0; n < share_of(12); ++n) {
    CachedCase c(static_cast<std::uint64_t>(n));
    SCOPED_TRACE(c.description);
    c.options.kernel = GetParam().kernel;
    c.options.target = GetParam().target;
    const auto run = [&](int threads, bool snapshot) {
      c.options.threads = threads;
      c.out->poison();
      if (snapshot) {
        cached_attention_forward(c.query->view(), c.cache->snapshot(c.ids), c.layer, c.out->view(),
                                 c.options);
      } else {
        cached_attention_forward(c.query->view(), *c.cache, c.layer, c.ids, c.out->view(),
                                 c.options);
      }
      const Tensor dense = Tensor::copy_of(c.out->view());
      return std::string(static_cast<const char*>(dense.view().data()),
                         static_cast<std::size_t>(dense.size()) * size_of(dense.dtype()));
    };
    const std::string once = run(1, false);
    EXPECT_EQ(run(2, false), once);
    EXPECT_EQ(run(3, true), once);
    EXPECT_EQ(run(7, false), once);
  }
}

// Token by token, in chunks and at once: each to the bound against the same oracle, so here only
// that the three agree to twice that.
TEST_P(CachedAttention, StepByStepIsAllAtOnce) {
  Random random(3);
  const std::int64_t T = 100, H = 4, Hkv = 2, D = 32;
  const Tensor q = normal({1, H, T, D}, random), k = normal({1, T, Hkv, D}, random),
               v = normal({1, T, Hkv, D}, random);
  AttentionOptions all;
  all.causal = Causal::aligned;
  const AttentionOracle e =
      attention_oracle(q, k.view().permute({0, 2, 1, 3}), v.view().permute({0, 2, 1, 3}), all);
  for (const KVCacheKind kind : {KVCacheKind::contiguous, KVCacheKind::paged}) {
    for (const std::int64_t step : {1, 3, 16, 33, 100}) {
      SCOPED_TRACE(std::string(name_of(kind)) + " by " + std::to_string(step));
      KVCache cache({.heads = Hkv, .D = D, .kind = kind, .capacity = 112, .page_tokens = 16});
      const std::vector<SequenceId> ids = {cache.add()};
      CachedAttentionOptions options;
      options.kernel = GetParam().kernel;
      options.target = GetParam().target;
      Tensor out(DType::f32, {1, H, T, D});
      for (std::int64_t t = 0; t < T; t += step) {
        const std::int64_t end = std::min(T, t + step);
        cache.reserve(ids, end - t);
        cache.write(ids[0], 0, k.view().select(0, 0).slice(0, t, end),
                    v.view().select(0, 0).slice(0, t, end));
        cached_attention_forward(q.view().slice(2, t, end), cache, 0, ids,
                                 out.view().slice(2, t, end), options);
        cache.commit(ids);
      }
      for (std::size_t n = 0; n < e.out.size(); ++n) {
        ASSERT_LE(std::abs(out.as<float>()[n] - e.out[n]),
                  e.out_slack[n / static_cast<std::size_t>(D)] * 0x1p-24 * 1.01)
            << "element " << n;
      }
    }
  }
}

// More keys than a piece that is copied at a time has, of every kind and storage.
TEST(CachedAttentionEdge, LongPrefillGoesInPieces) {
  Random random(5);
  const std::int64_t T = 4500, Tq = 20, H = 2, Hkv = 1, D = 8;
  const Tensor sinks = normal({H}, random);
  for (const KVCacheKind kind : {KVCacheKind::contiguous, KVCacheKind::paged}) {
    for (const KVStorage storage : {KVStorage::f32, KVStorage::int8}) {
      KVCache cache({.heads = Hkv, .D = D, .kind = kind, .storage = storage, .capacity = T});
      const std::vector<SequenceId> ids = {cache.add()};
      cache.append(ids[0], normal({1, T, Hkv, D}, random), normal({1, T, Hkv, D}, random));
      const Tensor q = normal({1, H, Tq, D}, random), k = cache.keys(ids[0], 0),
                   v = cache.values(ids[0], 0);
      Tensor out(DType::f32, {1, H, Tq, D}), lse(DType::f32, {1, H, Tq});
      cached_attention_forward(q, cache, 0, ids, out, {.sinks = sinks}, {.lse = lse});
      const AttentionOracle e =
          attention_oracle(q, k.view().unflatten(0, {1, Hkv}), v.view().unflatten(0, {1, Hkv}),
                           {.causal = Causal::aligned, .offset = T - Tq, .sinks = sinks});
      for (std::size_t n = 0; n < e.out.size(); ++n) {
        ASSERT_LE(std::abs(out.as<float>()[n] - e.out[n]), e.out_slack[n / 8] * 0x1p-24 * 1.01);
      }
      for (std::size_t n = 0; n < e.lse.size(); ++n) {
        ASSERT_NEAR(lse.as<float>()[n], e.lse[n], 1e-5);
      }
    }
  }
}

// Chunks of every length in one call, several pages in each, and more rows than have scores at a
// time: alone, with others and in pages, a row has the same bits, and they are right.
TEST(CachedAttentionEdge, LongSequencesTogether) {
  Random random(13);
  const std::int64_t Hq = 12, Hkv = 2, Tq = 6, D = 33, Dv = 40;
  const std::vector<std::int64_t> lengths = {300, 3000, 9000};
  for (const KVStorage storage : {KVStorage::f32, KVStorage::bf16, KVStorage::int8}) {
    const KVCacheConfig config{
        .heads = Hkv, .D = D, .Dv = Dv, .storage = storage, .capacity = 9000, .sequences = 3};
    KVCacheConfig paged = config;
    paged.kind = KVCacheKind::paged;
    paged.page_tokens = 16;
    paged.capacity = 13000;
    KVCache plain_cache(config), paged_cache(paged);
    std::vector<SequenceId> ids, paged_ids;
    for (const std::int64_t T : lengths) {
      const Tensor k = normal({1, T, Hkv, D}, random), v = normal({1, T, Hkv, Dv}, random);
      ids.push_back(plain_cache.add());
      paged_ids.push_back(paged_cache.add());
      plain_cache.append(ids.back(), k, v);
      paged_cache.append(paged_ids.back(), k, v);
    }
    const Tensor q = normal({3, Hq, Tq, D}, random);
    Tensor out(DType::f32, {3, Hq, Tq, Dv}), other(DType::f32, {3, Hq, Tq, Dv});
    const CachedAttentionOptions options{.window = {2100, 0}, .kernel = AttentionKernel::decode};
    cached_attention_forward(q, plain_cache, 0, ids, out, options);
    cached_attention_forward(q, paged_cache, 0, paged_ids, other, options);
    EXPECT_TRUE(std::ranges::equal(out.as<float>(), other.as<float>())) << name_of(storage);
    for (std::int64_t b = 0; b < 3; ++b) {
      const auto id = ids[static_cast<std::size_t>(b)];
      const std::int64_t T = lengths[static_cast<std::size_t>(b)];
      const Tensor one = Tensor::copy_of(q.view().slice(0, b, b + 1), DType::f32);
      Tensor alone(DType::f32, {1, Hq, Tq, Dv});
      cached_attention_forward(one, plain_cache, 0, std::vector{id}, alone, options);
      const Tensor k = plain_cache.keys(id, 0), v = plain_cache.values(id, 0);
      const AttentionOracle e =
          attention_oracle(one, k.view().unflatten(0, {1, Hkv}), v.view().unflatten(0, {1, Hkv}),
                           {.causal = Causal::aligned, .window = {2100, 0}, .offset = T - Tq});
      for (std::size_t n = 0; n < e.out.size(); ++n) {
        const auto at = static_cast<std::size_t>(b) * e.out.size() + n;
        ASSERT_EQ(alone.as<float>()[n], out.as<float>()[at]) << name_of(storage) << " " << T;
        // Queries of 24 bits (decode_bytes-inl.h): a tenth of what word_slack allows at worst, as
        // errors of this many numbers do not all point the same way.
        const double words = storage == KVStorage::int8 ? 0x1p-17 : 0;
        ASSERT_LE(std::abs(alone.as<float>()[n] - e.out[n]),
                  e.out_slack[n / static_cast<std::size_t>(Dv)] * 0x1p-24 * 1.01 + words)
            << name_of(storage) << " " << T;
      }
    }
  }
}

// Products of a whole chunk that are -inf weigh nothing beside others that are not.
TEST(CachedAttentionEdge, ChunksOfMinusInfinity) {
  const std::int64_t T = 1100, D = 4;
  KVCache cache({.heads = 1, .D = D, .capacity = T});
  const std::vector<SequenceId> ids = {cache.add()};
  Tensor k(DType::f32, {1, T, 1, D}), v(DType::f32, {1, T, 1, D}), q(DType::f32, {1, 1, 1, D});
  for (std::int64_t j = 0; j < T; ++j) {
    for (std::int64_t d = 0; d < D; ++d) {
      const auto n = static_cast<std::size_t>(j * D + d);
      k.as<float>()[n] = j < 512 ? 0.0f : -1e30f;
      v.as<float>()[n] = j < 512 ? 3.0f : 5.0f;
    }
  }
  std::ranges::fill(q.as<float>(), 1e30f);
  cache.append(ids[0], k, v);
  Tensor out(DType::f32, {1, 1, 1, D});
  cached_attention_forward(q, cache, 0, ids, out, {.kernel = AttentionKernel::decode});
  EXPECT_EQ(out.as<float>()[0], 3.0f);
}

TEST(CachedAttentionEdge, StagesAreOfPositions) {
  Random random(9);
  KVCache cache({.heads = 1,
                 .D = 8,
                 .kind = KVCacheKind::windowed,
                 .capacity = 16,
                 .sequences = 2,
                 .window = 5});
  const std::vector<SequenceId> ids = {cache.add(), cache.add()};
  for (int t = 0; t < 30; ++t) {
    const Tensor x = normal({1, 1, 1, 8}, random);
    cache.append(ids[0], x, x);
    if (t < 4) cache.append(ids[1], x, x);
  }
  const Tensor q = normal({2, 2, 1, 8}, random);
  Tensor out(DType::f32, {2, 2, 1, 8}), plain(DType::f32, {2, 2, 1, 8});
  Tensor scores(DType::f32, {2, 2, 1, 30}), weights(DType::f32, {2, 2, 1, 30});
  AttentionStages stages;
  stages.scores = scores;
  stages.weights = weights;
  cached_attention_forward(q, cache, 0, ids, out, {}, stages);
  const Tensor k = cache.keys(ids[0], 0);
  for (std::int64_t h = 0; h < 2; ++h) {
    double sum = 0;
    for (std::int64_t t = 0; t < 30; ++t) {
      const double s = scores.view().at({0, h, 0, t}), w = weights.view().at({0, h, 0, t});
      if (t < 14) {
        EXPECT_EQ(s, -HUGE_VAL);  // overwritten
      } else {
        double dot = 0;
        for (std::int64_t d = 0; d < 8; ++d) {
          dot += q.view().at({0, h, 0, d}) * k.view().at({0, t - 14, d});
        }
        EXPECT_NEAR(s, dot / std::sqrt(8.0), 1e-5);
      }
      EXPECT_EQ(w > 0, t >= 25) << t;
      sum += w;
      EXPECT_EQ(scores.view().at({1, h, 0, t}) != -HUGE_VAL, t < 4) << t;
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(CachedAttentionEdge, RefusesWhatDoesNotFit) {
  KVCache cache({.layers = 2, .heads = 2, .D = 8, .Dv = 4, .capacity = 32, .sequences = 2});
  const std::vector<SequenceId> ids = {cache.add(), cache.add()};
  const Tensor k(DType::f32, {2, 3, 2, 8}), v(DType::f32, {2, 3, 2, 4});
  for (const SequenceId id : ids) cache.append(id, k, v);
  const Tensor q(DType::f32, {2, 4, 1, 8});
  Tensor out(DType::f32, {2, 4, 1, 4});
  const auto refused = [&](const TensorView& query, std::int64_t layer,
                           const std::vector<SequenceId>& sequences, const MutableTensorView& to,
                           const CachedAttentionOptions& options = {}) {
    EXPECT_THROW(cached_attention_forward(query, cache, layer, sequences, to, options), Error);
  };
  cached_attention_forward(q, cache, 1, ids, out);
  refused(q, 2, ids, out);
  refused(q, -1, ids, out);
  refused(q, 0, {ids[0]}, out);
  refused(q, 0, {ids[0], 77}, out);
  refused({}, 0, ids, out);
  refused(Tensor(DType::f64, {2, 4, 1, 8}), 0, ids, out);
  refused(Tensor(DType::f32, {2, 4, 1, 7}), 0, ids, out);
  refused(Tensor(DType::f32, {2, 3, 1, 8}), 0, ids, out);
  refused(Tensor(DType::f32, {2, 4, 4, 8}), 0, ids, Tensor(DType::f32, {2, 4, 4, 4}).view());
  refused(q, 0, ids, Tensor(DType::f32, {2, 4, 1, 8}).view());
  refused(q, 0, ids, out, {.scale = NAN});
  refused(q, 0, ids, out, {.softcap = 0});
  refused(q, 0, ids, out, {.window = {-2, 0}});
  refused(q, 0, ids, out, {.threads = -1});
  const Tensor three(DType::f32, {3});
  refused(q, 0, ids, out, {.alibi = three});
  refused(q, 0, ids, out, {.sinks = three});
  Tensor lengths(DType::i64, {2});
  lengths.view().set({1}, 4);
  refused(q, 0, ids, out, {.key_lengths = lengths});
  refused(out, 0, ids, out);

  // Reserved tokens, once they are written; those before them in any case.
  cache.reserve(ids[1], 1);
  refused(q, 0, ids, out);
  for (const std::int64_t b : {0, 1}) lengths.view().set({b}, 3);
  cached_attention_forward(q, cache, 0, ids, out, {.key_lengths = lengths});
  cache.write(ids[1], 1, k.view().select(0, 0).slice(0, 0, 1),
              v.view().select(0, 0).slice(0, 0, 1));
  refused(q, 0, ids, out);
  cached_attention_forward(q, cache, 1, ids, out);
}

TEST(CachedAttentionEdge, SequencesAreNamedByTheirIds) {
  KVCache cache({.heads = 1, .D = 4, .capacity = 8, .sequences = 2});
  cache.release(cache.add());
  const SequenceId id = cache.add();
  const Tensor q(DType::f32, {1, 1, 1, 4});
  Tensor out(DType::f32, {1, 1, 1, 4});
  const auto message = [&](const auto& run) -> std::string {
    try {
      run();
    } catch (const Error& error) {
      return error.expected();
    }
    return "nothing refused";
  };
  const std::string expected = "at most 0 tokens, as sequence 1 has";
  EXPECT_EQ(message([&] { cached_attention_forward(q, cache, 0, {{id}}, out); }), expected);
  const KVSnapshot snapshot = cache.snapshot(id);
  EXPECT_EQ(message([&] { cached_attention_forward(q, snapshot, 0, out); }), expected);
}

}  // namespace
}  // namespace qkv::testing
