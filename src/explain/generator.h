#pragma once

// The numbers of examples whose weights nobody gave: the same bits on every machine, because only
// integer arithmetic and single correctly rounded operations make them.
//
//   SplitMix64: state += 0x9e3779b97f4a7c15, then z = state mixed by
//     z = (z ^ z >> 30)·0xbf58476d1ce4e5b9;  z = (z ^ z >> 27)·0x94d049bb133111eb;  z ^ z >> 31
//   uniform: the upper 24 bits · 2⁻²³ - 1, in [-1, 1)
//   tenths:  one of -0.9, -0.8, …, 0.9
//   normal:  the sum of 12 uniforms in [0, 1), less 6 (mean 0, variance 1)

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  double uniform() noexcept { return static_cast<double>(bits() >> 40) * 0x1p-23 - 1; }
  double tenths() noexcept { return static_cast<double>(integer(-9, 9)) / 10; }
  double normal() noexcept {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(bits() >> 40) * 0x1p-24;
    return sum;
  }
  // In [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) noexcept {
    return low + static_cast<std::int64_t>(
                     (bits() >> 32) * static_cast<std::uint64_t>(high - low + 1) >> 32);
  }

  // A tensor of next() in row-major order.
  template <typename Next>
  static Tensor fill(DType dtype, const Dims& shape, Next&& next) {
    Tensor wide(DType::f64, shape);
    for (double& x : wide.as<double>()) x = next();
    return dtype == DType::f64 ? std::move(wide) : Tensor::copy_of(wide, dtype);
  }

 private:
  std::uint64_t state_;
};

}  // namespace qkv
