// One writer, and readers beside it: ThreadSanitizer looks on (the tsan preset builds this file).

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "qkv/cached_attention.h"

namespace qkv {
namespace {

// Every number of token t is t, so a reader can tell whether what it sees is whole: with q = 0 all
// keys weigh the same, and the output is the mean of 0 … n - 1.
void append(KVCache& cache, SequenceId s, std::int64_t n) {
  const KVCacheConfig& c = cache.config();
  Tensor x(DType::f32, {c.layers, n, c.heads, c.D});
  const std::int64_t length = cache.length(s);
  for (std::int64_t t = 0; t < n; ++t) {
    for (std::int64_t d = 0; d < c.D; ++d) {
      x.view().set({0, t, 0, d}, static_cast<double>(length + t));
    }
  }
  cache.append(s, x, x);
}

TEST(KVCacheThreads, ReadersSeeWholeSequencesWhileOneWrites) {
  for (const KVCacheKind kind : {KVCacheKind::contiguous, KVCacheKind::paged}) {
    KVCacheConfig config;
    config.D = 4;
    config.kind = kind;
    config.capacity = 2048;
    config.sequences = 8;
    config.page_tokens = 16;
    KVCache cache(config);
    const SequenceId s = cache.add();
    append(cache, s, 10);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0}, reads{0};
    const auto read = [&] {
      const Tensor q(DType::f32, {1, 2, 1, 4});
      Tensor out(DType::f32, {1, 2, 1, 4});
      CachedAttentionOptions options;
      options.threads = 1;
      while (!stop) {
        const KVSnapshot shot = cache.snapshot(s);
        cached_attention_forward(q, shot, 0, out, options);
        const double mean = static_cast<double>(shot.length(0) - 1) / 2;
        if (std::abs(out.view().at({0, 1, 0, 3}) - mean) > 1e-3) ++wrong;
        static_cast<void>(cache.usage());
        ++reads;
      }
    };
    {
      std::vector<std::jthread> readers;
      for (int i = 0; i < 2; ++i) readers.emplace_back(read);
      for (int round = 0; round < 150 || reads < 20; ++round) {
        append(cache, s, 3);
        const SequenceId fork = cache.fork(s);
        append(cache, fork, 2);
        cache.release(fork);
        // Back, and over it again: a snapshot that still shows it keeps its own page.
        if (cache.length(s) > 400) cache.truncate(s, 5);
      }
      stop = true;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(cache.usage().pages_used,
              cache.config().kind == KVCacheKind::paged ? (cache.length(s) + 15) / 16 : 1);
  }
}

}  // namespace
}  // namespace qkv
