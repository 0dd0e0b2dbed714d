#include "qkv/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/element.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("Sampler");

// More likely first; of equals, the smaller id.
bool before(const std::pair<double, std::int32_t>& a, const std::pair<double, std::int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), state_(options.seed) {
  const auto check = [](bool good, std::string_view name, std::string_view expected, double found) {
    if (!good) kRefuse.value(name, expected, fmt::format("{}", found));
  };
  check(std::isfinite(options.temperature) && options.temperature >= 0, "temperature",
        "a finite number, 0 or more", options.temperature);
  check(options.top_k >= 0, "top_k", "0 (all) or more", static_cast<double>(options.top_k));
  check(options.top_p > 0 && options.top_p <= 1, "top_p", "a number in (0, 1]", options.top_p);
}

// SplitMix64: 53 of its bits.
double Sampler::draw() noexcept {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ z >> 31) >> 11) * 0x1p-53;
}

std::int32_t Sampler::operator()(const TensorView& logits) {
  kRefuse.unless_rank("logits", logits, 1, "[vocabulary]");
  kRefuse.unless_dtype("logits", logits, {DType::f32, DType::f64});
  candidates_.clear();
  std::pair<double, std::int32_t> best{-HUGE_VAL, -1};
  for (std::int64_t i = 0; i < logits.dim(0); ++i) {
    const auto value = load_real<double>(logits, i * logits.stride(0));
    const std::pair<double, std::int32_t> each{value, static_cast<std::int32_t>(i)};
    if (std::isnan(value)) kRefuse.value("logits", "numbers", fmt::format("NaN for token {}", i));
    if (before(each, best)) best = each;
    if (options_.temperature > 0) candidates_.push_back(each);
  }
  if (!std::isfinite(best.first)) kRefuse.value("logits", "a finite one among them", "none");
  if (options_.temperature == 0) return best.second;

  if (options_.top_k > 0 && options_.top_k < logits.dim(0)) {
    std::nth_element(candidates_.begin(), candidates_.begin() + (options_.top_k - 1),
                     candidates_.end(), before);
    candidates_.resize(static_cast<std::size_t>(options_.top_k));
  }
  double total = 0;
  for (auto& candidate : candidates_) {
    candidate.first = std::exp((candidate.first - best.first) / options_.temperature);
    total += candidate.first;
  }
  std::sort(candidates_.begin(), candidates_.end(), before);
  if (options_.top_p < 1) {
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates_.size() && kept < options_.top_p * total) {
      kept += candidates_[count++].first;
    }
    candidates_.resize(count);
    total = kept;
  }
  double left = draw() * total;
  for (const auto& [share, id] : candidates_) {
    left -= share;
    if (left < 0) return id;
  }
  return candidates_.front().second;  // rounding ate the last share
}

}  // namespace qkv
