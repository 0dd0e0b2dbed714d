// KVCache files: what was saved comes back, and a damaged file changes nothing.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "qkv/error.h"
#include "qkv/kv_cache.h"
#include "qkv/safetensors.h"
#include "tests/effort.h"

namespace qkv {
namespace {

class KVCacheFile : public ::testing::Test {
 protected:
  KVCacheFile() {
    std::string pattern = ::testing::TempDir() + "qkv-cache-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ / "cache.safetensors";
  }
  ~KVCacheFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_, path_;
};

KVCacheConfig config(KVCacheKind kind, KVStorage storage) {
  KVCacheConfig c;
  c.layers = 2;
  c.heads = 2;
  c.D = 3;
  c.Dv = 5;
  c.kind = kind;
  c.storage = storage;
  c.capacity = kind == KVCacheKind::paged ? 128 : 40;
  c.sequences = 3;
  c.page_tokens = 16;
  if (kind == KVCacheKind::windowed) c.window = 8;
  return c;
}

void append(KVCache& cache, SequenceId s, std::int64_t n, std::mt19937& random) {
  const KVCacheConfig& c = cache.config();
  Tensor k(DType::f32, {c.layers, n, c.heads, c.D}), v(DType::f32, {c.layers, n, c.heads, c.Dv});
  for (float& x : k.as<float>()) x = static_cast<float>(random() % 1000) - 500;
  for (float& x : v.as<float>()) x = static_cast<float>(random() % 1000) - 500;
  cache.append(s, k, v);
}

// Two sequences with a common prefix, and one more; the windowed ones go round.
KVCache filled(KVCacheKind kind, KVStorage storage) {
  KVCache cache(config(kind, storage));
  std::mt19937 random(4);
  const SequenceId a = cache.add();
  append(cache, a, 20, random);
  const SequenceId b = cache.fork(a), c = cache.add();
  append(cache, b, 5, random);
  append(cache, c, 7, random);
  if (kind == KVCacheKind::windowed) {
    for (int i = 0; i < 50; ++i) append(cache, a, 1, random);
  }
  return cache;
}

void expect_same(const KVCache& a, const KVCache& b) {
  ASSERT_EQ(a.config(), b.config());
  ASSERT_EQ(a.sequences(), b.sequences());
  for (const SequenceId s : a.sequences()) {
    ASSERT_EQ(a.length(s), b.length(s));
    ASSERT_EQ(a.first(s), b.first(s));
    for (std::int64_t layer = 0; layer < a.config().layers; ++layer) {
      const Tensor ka = a.keys(s, layer), kb = b.keys(s, layer);
      const Tensor va = a.values(s, layer), vb = b.values(s, layer);
      ASSERT_TRUE(std::equal(ka.as<float>().begin(), ka.as<float>().end(), kb.as<float>().begin()));
      ASSERT_TRUE(std::equal(va.as<float>().begin(), va.as<float>().end(), vb.as<float>().begin()));
    }
  }
  const KVCacheUsage ua = a.usage(), ub = b.usage();
  EXPECT_EQ(ua.pages_used, ub.pages_used);
  EXPECT_EQ(ua.pages_shared, ub.pages_shared);
  EXPECT_EQ(ua.tokens, ub.tokens);
}

TEST_F(KVCacheFile, WhatWasSavedComesBack) {
  for (const KVCacheKind kind :
       {KVCacheKind::contiguous, KVCacheKind::paged, KVCacheKind::windowed}) {
    for (const KVStorage storage :
         {KVStorage::f32, KVStorage::f16, KVStorage::bf16, KVStorage::int8}) {
      SCOPED_TRACE(std::string(name_of(kind)) + " " + std::string(name_of(storage)));
      const KVCache cache = filled(kind, storage);
      save_kv_cache(path_, cache);
      KVCache back = load_kv_cache(path_);
      expect_same(cache, back);
      // It goes on as the other would: ids are new, forks are copied when they write.
      std::mt19937 random(8);
      back.release(2);
      EXPECT_EQ(back.add(), 3);
      append(back, 0, 2, random);
      EXPECT_EQ(back.length(1), 25);
    }
  }
}

TEST_F(KVCacheFile, AnEmptyCacheAndOneWithAReservation) {
  KVCache cache(config(KVCacheKind::paged, KVStorage::f32));
  save_kv_cache(path_, cache);
  expect_same(cache, load_kv_cache(path_));
  cache.reserve(cache.add(), 20);
  save_kv_cache(path_, cache);
  const KVCache back = load_kv_cache(path_);
  EXPECT_EQ(back.pending(0), 0);
  EXPECT_EQ(back.usage().pages_used, 0);
}

TEST_F(KVCacheFile, DamagedFilesAreRefusedAndChangeNothing) {
  const KVCache saved = filled(KVCacheKind::paged, KVStorage::int8);
  save_kv_cache(path_, saved);
  std::ifstream in(path_, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  KVCache cache = filled(KVCacheKind::paged, KVStorage::int8);
  const auto put = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  };
  std::mt19937 random(1);
  const int steps = share_of(600);
  for (int n = 0; n < steps; ++n) {
    std::string bad = good;
    const std::size_t at = random() % good.size();
    if (n % 4 == 0) {
      bad.resize(at);
    } else {
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
    }
    put(bad);
    // A flipped bit of the header's padding or of a name that nobody asks for may be harmless; then
    // the content is as it was.
    try {
      restore_kv_cache(path_, cache);
    } catch (const Error&) {
    }
    expect_same(saved, cache);
    if (HasFatalFailure()) FAIL() << "byte " << at << " of case " << n;
  }
  put(good);
  restore_kv_cache(path_, cache);
  expect_same(saved, cache);
}

// A flip of any bit of the elements is noticed.
TEST_F(KVCacheFile, EveryElementIsChecked) {
  save_kv_cache(path_, filled(KVCacheKind::contiguous, KVStorage::f16));
  std::ifstream in(path_, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  for (std::size_t at = 8 + header; at < bytes.size(); at += 7 * kStride) {
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_THROW(load_kv_cache(path_), Error) << at;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
  }
}

TEST_F(KVCacheFile, OtherFilesAndConfigsAreRefused) {
  EXPECT_THROW(load_kv_cache(folder_ / "none.safetensors"), Error);
  const float one = 1;
  save_safetensors(path_, {{"x", TensorView::of(std::span(&one, 1))}});
  EXPECT_THROW(load_kv_cache(path_), Error);
  save_kv_cache(path_, filled(KVCacheKind::paged, KVStorage::f32));
  KVCache other(config(KVCacheKind::paged, KVStorage::f16));
  EXPECT_THROW(restore_kv_cache(path_, other), Error);
  EXPECT_EQ(other.usage().sequences, 0);
}

}  // namespace
}  // namespace qkv
