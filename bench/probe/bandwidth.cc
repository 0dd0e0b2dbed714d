#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/huge_memory.h"
#include "bench/probe/probe.h"
#include "bench/probe/together.h"

namespace qkv::bench {

double bandwidth_probe(int threads) {
  // Past every L3 there is. Written once, so that each page is a real one; and huge where the
  // system has such, since small ones cost a fifth of the bandwidth and caches have huge ones, too.
  constexpr std::size_t kWords = std::size_t{256} << 17;
  static const qkv::HugeMemory memory = [] {
    qkv::HugeMemory huge(static_cast<std::int64_t>(kWords * sizeof(std::uint64_t)));
    std::fill_n(reinterpret_cast<std::uint64_t*>(huge.data()), kWords, std::uint64_t{1});
    return huge;
  }();
  const auto* words = reinterpret_cast<const std::uint64_t*>(memory.data());
  threads = threads > 0 ? threads : 1;
  const std::size_t share = kWords / static_cast<std::size_t>(threads);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  const double seconds = seconds_together(threads, [&](int t) {
    const std::uint64_t* begin = words + static_cast<std::size_t>(t) * share;
    sums[static_cast<std::size_t>(t)] = std::accumulate(begin, begin + share, std::uint64_t{0});
  });
  // The sums decide nothing but cannot be left out for it.
  const double read = static_cast<double>(std::accumulate(sums.begin(), sums.end(), 0ull)) * 8;
  return read / seconds * 1e-9;
}

}  // namespace qkv::bench
