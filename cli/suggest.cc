#include "cli/suggest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace qkv::cli {
namespace {

// Insertions, deletions and changes of one character that turn a into b (Levenshtein, row by row).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 64;  // no name is longer, and the cost is quadratic
  if (word.size() > kLongest) return "";
  std::string_view nearest;
  std::size_t best = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    const bool begins = word.size() > 2 && candidate.starts_with(word);
    const std::size_t far = begins ? 1 : distance(word, candidate);
    if (far < best) {
      best = far;
      nearest = candidate;
    }
  }
  return nearest.empty() ? "" : ": did you mean '" + std::string(nearest) + "'?";
}

}  // namespace qkv::cli
