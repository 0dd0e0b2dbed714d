// The cache as a store: what was appended comes back, sharing costs no page, and nothing is lost.

#include "qkv/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "qkv/error.h"

namespace qkv {
namespace {

constexpr KVCacheKind kKinds[] = {KVCacheKind::contiguous, KVCacheKind::paged,
                                  KVCacheKind::windowed};

KVCacheConfig small(KVCacheKind kind, KVStorage storage = KVStorage::f32) {
  KVCacheConfig config;
  config.layers = 2;
  config.heads = 3;
  config.D = 5;
  config.Dv = 7;
  config.kind = kind;
  config.storage = storage;
  config.capacity = 48;
  config.sequences = 4;
  config.page_tokens = 16;
  if (kind == KVCacheKind::windowed) config.window = 20;
  return config;
}

// Number d of a token of a layer and head; every one is exact in bf16, and none is 0.
float number(std::int64_t token, std::int64_t layer, std::int64_t head, std::int64_t d) {
  return static_cast<float>((token * 7 + layer * 3 + head * 5 + d) % 100 - 120);
}

// [layers, n, heads, width] of tokens numbered from `token` on.
Tensor tokens(const KVCacheConfig& c, std::int64_t token, std::int64_t n, std::int64_t width) {
  Tensor x(DType::f32, {c.layers, n, c.heads, width});
  float* to = x.as<float>().data();
  for (std::int64_t l = 0; l < c.layers; ++l) {
    for (std::int64_t t = 0; t < n; ++t) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        for (std::int64_t d = 0; d < width; ++d) *to++ = number(token + t, l, h, d);
      }
    }
  }
  return x;
}

void append(KVCache& cache, SequenceId s, std::int64_t token, std::int64_t n) {
  const KVCacheConfig& c = cache.config();
  cache.append(s, tokens(c, token, n, c.D), tokens(c, token, n, c.Dv));
}

// That a sequence holds tokens `expected` (by number) at its positions from first on.
void expect_tokens(const KVCache& cache, SequenceId s, const std::vector<std::int64_t>& expected) {
  const KVCacheConfig& c = cache.config();
  ASSERT_EQ(cache.length(s), static_cast<std::int64_t>(expected.size()));
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const Tensor k = cache.keys(s, l), v = cache.values(s, l);
    ASSERT_EQ(k.dim(1), cache.length(s) - cache.first(s));
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < k.dim(1); ++i) {
        const std::int64_t token = expected[static_cast<std::size_t>(cache.first(s) + i)];
        // int8 keeps the largest number of a row exactly, and others to half a step.
        const double slack = c.storage == KVStorage::int8 ? 120.0 / 127 / 2 + 1e-4 : 0;
        for (std::int64_t d = 0; d < c.D; ++d) {
          ASSERT_NEAR(k.view().at({h, i, d}), number(token, l, h, d), slack) << "key " << i;
        }
        for (std::int64_t d = 0; d < c.Dv; ++d) {
          ASSERT_NEAR(v.view().at({h, i, d}), number(token, l, h, d), slack) << "value " << i;
        }
      }
    }
  }
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> numbers;
  for (; begin < end; ++begin) numbers.push_back(begin);
  return numbers;
}

bool same(const KVCacheUsage& a, const KVCacheUsage& b) {
  return a.sequences == b.sequences && a.tokens == b.tokens && a.pages_used == b.pages_used &&
         a.pages_free == b.pages_free && a.pages_shared == b.pages_shared;
}

TEST(KVCache, WhatWasAppendedComesBackInEveryStorage) {
  for (const KVCacheKind kind : kKinds) {
    for (const KVStorage storage :
         {KVStorage::f32, KVStorage::f16, KVStorage::bf16, KVStorage::int8}) {
      SCOPED_TRACE(std::string(name_of(kind)) + " " + std::string(name_of(storage)));
      KVCacheConfig config = small(kind, storage);
      config.capacity = 64;
      KVCache cache(config);
      const SequenceId a = cache.add(), b = cache.add();
      append(cache, a, 0, 1);
      append(cache, b, 500, 20);
      append(cache, a, 1, 16);
      append(cache, a, 17, 2);
      expect_tokens(cache, a, range(0, 19));
      expect_tokens(cache, b, range(500, 520));
    }
  }
}

TEST(KVCache, FillingItExactlyWorksAndOneMoreChangesNothing) {
  for (const KVCacheKind kind : {KVCacheKind::contiguous, KVCacheKind::paged}) {
    KVCache cache(small(kind));
    const SequenceId a = cache.add();
    append(cache, a, 0, 47);
    append(cache, a, 47, 1);
    const KVCacheUsage before = cache.usage();
    EXPECT_THROW(cache.reserve(a, 1), Error);
    EXPECT_THROW(append(cache, a, 48, 1), Error);
    EXPECT_TRUE(same(cache.usage(), before));
    expect_tokens(cache, a, range(0, 48));
    cache.truncate(a, 47);
    append(cache, a, 90, 1);
    EXPECT_EQ(cache.length(a), 48);
  }
}

TEST(KVCache, AReservationForSeveralIsAllOrNothing) {
  KVCache cache(small(KVCacheKind::paged));
  const std::vector<SequenceId> ids = {cache.add(), cache.add()};
  append(cache, ids[0], 0, 16);
  append(cache, ids[1], 100, 17);  // all three pages are used, 15 tokens of the last are left
  const KVCacheUsage before = cache.usage();
  EXPECT_THROW(cache.reserve(ids, 1), Error);
  EXPECT_EQ(cache.pending(ids[0]) + cache.pending(ids[1]), 0);
  EXPECT_TRUE(same(cache.usage(), before));
  EXPECT_THROW(cache.reserve(std::vector<SequenceId>{ids[1], ids[1]}, 1), Error);
  cache.reserve(ids[1], 15);
  EXPECT_THROW(cache.reserve(ids[1], 0), Error);
  cache.rollback(ids[1]);
  EXPECT_TRUE(same(cache.usage(), before));
  expect_tokens(cache, ids[1], range(100, 117));
}

TEST(KVCache, CommitWantsEveryLayer) {
  KVCache cache(small(KVCacheKind::paged));
  const KVCacheConfig& c = cache.config();
  const SequenceId a = cache.add();
  const Tensor k = tokens(c, 0, 3, c.D), v = tokens(c, 0, 3, c.Dv);
  cache.reserve(a, 3);
  cache.write(a, 1, k.view().select(0, 1), v.view().select(0, 1));
  EXPECT_THROW(cache.commit(a), Error);
  EXPECT_EQ(cache.length(a), 0);
  cache.write(a, 0, k.view().select(0, 0), v.view().select(0, 0));
  cache.commit(a);
  expect_tokens(cache, a, range(0, 3));
}

TEST(KVCache, WhatWasReservedAndNotWrittenIsNotShown) {
  for (const KVCacheKind kind : kKinds) {
    KVCache cache(small(kind));
    const KVCacheConfig& c = cache.config();
    const SequenceId a = cache.add();
    append(cache, a, 0, 4);
    cache.truncate(a, 1);
    cache.reserve(a, 3);  // where tokens 1 to 3 still lie
    EXPECT_THROW(static_cast<void>(cache.keys(a, 0)), Error);
    EXPECT_THROW(static_cast<void>(cache.values(a, 1)), Error);
    const Tensor k = tokens(c, 50, 3, c.D), v = tokens(c, 50, 3, c.Dv);
    cache.write(a, 0, k.view().select(0, 0), v.view().select(0, 0));
    EXPECT_EQ(cache.keys(a, 0).view().at({0, 1, 0}), number(50, 0, 0, 0));
    EXPECT_THROW(static_cast<void>(cache.keys(a, 1)), Error);
    cache.rollback(a);
    expect_tokens(cache, a, {0});
  }
}

TEST(KVCache, ARollbackGivesARingItsOldestTokensBack) {
  KVCacheConfig config = small(KVCacheKind::windowed);
  config.capacity = config.window = 16;
  KVCache cache(config);
  const KVCacheConfig& c = cache.config();
  const SequenceId a = cache.add();
  append(cache, a, 0, 1);
  for (std::int64_t t = 1; t < 20; ++t) append(cache, a, t, 1);
  ASSERT_EQ(cache.first(a), 4);
  cache.reserve(a, 1);
  EXPECT_EQ(cache.first(a), 5);
  cache.rollback(a);
  EXPECT_EQ(cache.first(a), 4);
  expect_tokens(cache, a, range(0, 20));
  cache.reserve(a, 1);
  cache.truncate(a, 20);
  EXPECT_EQ(cache.first(a), 4);
  cache.rollback(a);  // of nothing
  EXPECT_EQ(cache.first(a), 4);
  // What was written over is gone.
  cache.reserve(a, 1);
  const Tensor k = tokens(c, 20, 1, c.D), v = tokens(c, 20, 1, c.Dv);
  cache.write(a, 1, k.view().select(0, 1), v.view().select(0, 1));
  cache.rollback(a);
  EXPECT_EQ(cache.first(a), 5);
  expect_tokens(cache, a, range(0, 20));
  append(cache, a, 20, 1);
  expect_tokens(cache, a, range(0, 21));
}

TEST(KVCache, WritesOfAnyStridesAndDtype) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    KVCache cache(small(KVCacheKind::contiguous));
    const KVCacheConfig& c = cache.config();
    const SequenceId a = cache.add();
    const Tensor k = tokens(c, 0, 4, c.D), v = tokens(c, 0, 4, c.Dv);
    // [layers, D, heads, n] in memory
    const Tensor kt = Tensor::copy_of(k.view().permute({0, 3, 2, 1}), dtype);
    const Tensor vt = Tensor::copy_of(v.view().permute({0, 3, 2, 1}), dtype);
    cache.append(a, kt.view().permute({0, 3, 2, 1}), vt.view().permute({0, 3, 2, 1}));
    expect_tokens(cache, a, range(0, 4));
  }
}

TEST(KVCache, ForksShareUntilOneWrites) {
  KVCacheConfig config = small(KVCacheKind::paged);
  config.capacity = 160;
  KVCache cache(config);
  const SequenceId a = cache.add();
  append(cache, a, 0, 40);
  const SequenceId b = cache.fork(a);
  EXPECT_EQ(cache.usage().pages_used, 3);
  EXPECT_EQ(cache.usage().pages_shared, 3);
  append(cache, b, 700, 2);  // copies the page of tokens 32 to 39, and no other
  EXPECT_EQ(cache.usage().pages_used, 4);
  EXPECT_EQ(cache.usage().pages_shared, 2);
  append(cache, a, 40, 1);  // has it alone by now
  EXPECT_EQ(cache.usage().pages_used, 4);
  std::vector<std::int64_t> expected = range(0, 40);
  expected.insert(expected.end(), {700, 701});
  expect_tokens(cache, b, expected);
  expect_tokens(cache, a, range(0, 41));
  cache.release(a);
  EXPECT_EQ(cache.usage().pages_used, 3);
  EXPECT_EQ(cache.usage().pages_shared, 0);
  expect_tokens(cache, b, expected);
  EXPECT_THROW(cache.length(a), Error);
  cache.release(b);
  EXPECT_EQ(cache.usage().pages_free, cache.usage().pages);
}

TEST(KVCache, ForksThatWriteTogetherNeedOnePageFewer) {
  KVCacheConfig config = small(KVCacheKind::paged);
  config.capacity = 16 * 3;
  KVCache cache(config);
  const SequenceId a = cache.add();
  append(cache, a, 0, 8);
  const std::vector<SequenceId> ids = {a, cache.fork(a), cache.fork(a)};
  cache.reserve(ids, 1);  // one page each: the last writer keeps the old one
  EXPECT_EQ(cache.usage().pages_used, 3);
  EXPECT_EQ(cache.usage().pages_shared, 0);
  for (const SequenceId id : ids) cache.rollback(id);
  for (const SequenceId id : ids) expect_tokens(cache, id, range(0, 8));
}

TEST(KVCache, ForksOfContiguousAndWindowedOnesAreIndependent) {
  for (const KVCacheKind kind : {KVCacheKind::contiguous, KVCacheKind::windowed}) {
    KVCache cache(small(kind));
    const SequenceId a = cache.add();
    append(cache, a, 0, 10);
    const SequenceId b = cache.fork(a);
    append(cache, a, 10, 3);
    append(cache, b, 600, 1);
    std::vector<std::int64_t> expected = range(0, 10);
    expected.push_back(600);
    expect_tokens(cache, a, range(0, 13));
    expect_tokens(cache, b, expected);
    static_cast<void>(cache.add());
    static_cast<void>(cache.add());
    EXPECT_THROW(cache.add(), Error);
    EXPECT_THROW(cache.fork(a), Error);
  }
}

TEST(KVCache, AWindowKeepsTheLastTokens) {
  KVCache cache(small(KVCacheKind::windowed));  // ring of 48, window of 20
  const SequenceId a = cache.add();
  append(cache, a, 0, 48);  // nothing is lost: as many as there is room for
  EXPECT_EQ(cache.first(a), 0);
  EXPECT_THROW(cache.reserve(a, 30), Error);  // the first of them would not see its window
  append(cache, a, 48, 29);
  EXPECT_EQ(cache.first(a), 29);
  expect_tokens(cache, a, range(0, 77));
  for (std::int64_t t = 77; t < 200; ++t) append(cache, a, t, 1);
  EXPECT_EQ(cache.first(a), 152);
  expect_tokens(cache, a, range(0, 200));
  EXPECT_THROW(cache.truncate(a, 152 + 18), Error);
  expect_tokens(cache, a, range(0, 200));
  cache.truncate(a, 152 + 19);
  append(cache, a, 152 + 19, 5);
  expect_tokens(cache, a, range(0, 152 + 24));
  cache.truncate(a, 0);
  EXPECT_EQ(cache.usage().pages_used, 0);
  append(cache, a, 0, 3);
  expect_tokens(cache, a, range(0, 3));
}

TEST(KVCache, Int8RowsWithoutNumbers) {
  KVCacheConfig config;
  config.D = 3;
  config.storage = KVStorage::int8;
  config.capacity = 4;
  KVCache cache(config);
  const SequenceId a = cache.add();
  const float inf = std::numeric_limits<float>::infinity();
  const float key[] = {0, 0, 0, 1, inf, 1, 1, std::nanf(""), 1, 1e-38f, 0, 0};
  const TensorView view = TensorView::of(key, {1, 4, 1, 3});
  cache.append(a, view, view);
  const Tensor back = cache.keys(a, 0);
  EXPECT_EQ(back.view().at({0, 0, 1}), 0);
  EXPECT_TRUE(std::isnan(back.view().at({0, 1, 0})));
  EXPECT_TRUE(std::isnan(back.view().at({0, 2, 2})));
  EXPECT_EQ(back.view().at({0, 3, 0}), 0);
}

TEST(KVCache, RefusesWhatMakesNoSense) {
  const auto refused = [](auto change) {
    KVCacheConfig config = small(KVCacheKind::windowed);
    change(config);
    EXPECT_THROW(KVCache{config}, Error);
  };
  refused([](KVCacheConfig& c) { c.layers = 0; });
  refused([](KVCacheConfig& c) { c.heads = -1; });
  refused([](KVCacheConfig& c) { c.D = 0; });
  refused([](KVCacheConfig& c) { c.Dv = -1; });
  refused([](KVCacheConfig& c) { c.capacity = 0; });
  refused([](KVCacheConfig& c) { c.sequences = 0; });
  refused([](KVCacheConfig& c) { c.window = 49; });
  refused([](KVCacheConfig& c) { c.window = 0; });
  refused([](KVCacheConfig& c) { c.capacity = std::numeric_limits<std::int64_t>::max(); });
  refused([](KVCacheConfig& c) { c.layers = std::int64_t{1} << 60; });
  refused([](KVCacheConfig& c) { c.capacity = std::int64_t{1} << 45; });  // more than addresses
  refused([](KVCacheConfig& c) { c.kind = KVCacheKind::paged, c.window = 0, c.page_tokens = 17; });
  refused([](KVCacheConfig& c) { c.kind = static_cast<KVCacheKind>(9); });

  KVCache cache(small(KVCacheKind::paged));
  const KVCacheConfig& c = cache.config();
  const SequenceId a = cache.add();
  append(cache, a, 0, 2);
  EXPECT_THROW(cache.truncate(a, 3), Error);
  EXPECT_THROW(cache.truncate(a, -1), Error);
  EXPECT_THROW(cache.reserve(a, -1), Error);
  EXPECT_THROW(cache.reserve(a + 1, 1), Error);
  cache.reserve(a, 1);
  const Tensor k = tokens(c, 0, 1, c.D), v = tokens(c, 0, 1, c.Dv);
  const TensorView k0 = k.view().select(0, 0), v0 = v.view().select(0, 0);
  EXPECT_THROW(cache.write(a, 2, k0, v0), Error);
  EXPECT_THROW(cache.write(a, 0, v0, v0), Error);
  EXPECT_THROW(cache.write(a, 0, k0, k0), Error);
  EXPECT_THROW(cache.write(a, 0, {}, v0), Error);
  EXPECT_THROW(cache.write(a, 0, Tensor(DType::i32, {1, c.heads, c.D}), v0), Error);
  EXPECT_THROW(static_cast<void>(cache.keys(a, 2)), Error);
  cache.rollback(a);
  expect_tokens(cache, a, range(0, 2));
}

// A snapshot keeps what it shows, whatever the writer does next.
TEST(KVCache, SnapshotsKeepTheirPages) {
  KVCacheConfig config = small(KVCacheKind::paged);
  config.capacity = 160;
  KVCache cache(config);
  const SequenceId a = cache.add();
  append(cache, a, 0, 20);
  {
    const KVSnapshot shot = cache.snapshot(a);
    EXPECT_EQ(shot.length(0), 20);
    append(cache, a, 20, 4);  // behind what the snapshot shows: in place
    EXPECT_EQ(cache.usage().pages_used, 2);
    cache.truncate(a, 18);
    append(cache, a, 900, 1);  // over it: in a copy
    EXPECT_EQ(cache.usage().pages_used, 3);
    cache.release(a);
    EXPECT_EQ(cache.usage().pages_used, 2);
  }
  EXPECT_EQ(cache.usage().pages_used, 0);
}

// A million tokens over 1000 forked sequences. A shadow of each sequence knows what it must hold.
TEST(KVCache, AMillionTokensOverAThousandForksLoseNoPage) {
  KVCacheConfig config;
  config.D = 1;
  config.kind = KVCacheKind::paged;
  config.page_tokens = 16;
  config.capacity = 400'000;
  KVCache cache(config);
  std::mt19937 random(5);
  std::map<SequenceId, std::vector<float>> shadow;
  shadow[cache.add()];
  const auto any = [&] {
    auto it = shadow.lower_bound(static_cast<SequenceId>(random() % 100'000));
    if (it == shadow.end())
      it = std::next(shadow.begin(), static_cast<long>(random() % shadow.size()));
    return it;
  };
  std::int64_t appended = 0;
  float next = 0;
  std::vector<float> row;
  while (appended < 1'000'000) {
    const auto it = any();
    auto& [id, held] = *it;
    switch (random() % 8) {
      case 0:
        if (shadow.size() < 1000) {
          const SequenceId fork = cache.fork(id);
          shadow[fork] = held;
          break;
        }
        [[fallthrough]];
      case 1:
        if (shadow.size() == 1000) {
          cache.release(id);
          shadow.erase(it);
          break;
        }
        [[fallthrough]];
      case 2:
      case 3: {
        const std::size_t length = held.empty() ? 0 : random() % held.size();
        cache.truncate(id, static_cast<std::int64_t>(length));
        held.resize(length);
        break;
      }
      default: {
        row.resize(random() % 100);
        for (float& x : row) x = next = std::fmod(next + 1, 1e6f);
        const TensorView view =
            TensorView::of(row, {1, static_cast<std::int64_t>(row.size()), 1, 1});
        cache.append(id, view, view);
        held.insert(held.end(), row.begin(), row.end());
        appended += static_cast<std::int64_t>(row.size());
      }
    }
  }
  std::int64_t tokens = 0;
  for (const auto& [id, held] : shadow) {
    const Tensor keys = cache.keys(id, 0), values = cache.values(id, 0);
    ASSERT_TRUE(
        std::equal(held.begin(), held.end(), keys.as<float>().begin(), keys.as<float>().end()));
    ASSERT_TRUE(
        std::equal(held.begin(), held.end(), values.as<float>().begin(), values.as<float>().end()));
    tokens += static_cast<std::int64_t>(held.size());
  }
  const KVCacheUsage usage = cache.usage();
  EXPECT_EQ(usage.tokens, tokens);
  EXPECT_EQ(usage.pages_used + usage.pages_free, usage.pages);
  EXPECT_GE(usage.pages_shared, 1);
  for (const auto& [id, held] : shadow) cache.release(id);
  EXPECT_EQ(cache.usage().pages_free, usage.pages);
  // Every page is there once: all of them can be filled.
  const SequenceId last = cache.add();
  cache.reserve(last, usage.pages * 16);
  EXPECT_EQ(cache.usage().pages_free, 0);
}

}  // namespace
}  // namespace qkv
