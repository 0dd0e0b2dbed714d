#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "bench/probe/probe.h"
#include "bench/probe/together.h"

namespace qkv::bench {

double bandwidth_probe(int threads) {
  // Past every L3 there is. Written once, so that each page is a real one.
  constexpr std::size_t kWords = std::size_t{256} << 17;
  static const std::vector<std::uint64_t> memory(kWords, 1);
  threads = threads > 0 ? threads : 1;
  const std::size_t share = kWords / static_cast<std::size_t>(threads);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  const double seconds = seconds_together(threads, [&](int t) {
    const std::uint64_t* begin = memory.data() + static_cast<std::size_t>(t) * share;
    sums[static_cast<std::size_t>(t)] = std::accumulate(begin, begin + share, std::uint64_t{0});
  });
  // The sums decide nothing but cannot be left out for it.
  const double read = static_cast<double>(std::accumulate(sums.begin(), sums.end(), 0ull)) * 8;
  return read / seconds * 1e-9;
}

}  // namespace qkv::bench
