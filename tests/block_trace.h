#pragma once

// What the tests of blocks share: tensors of given or random numbers, and a record of the steps
// that a block shows.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/error.h"
#include "qkv/step.h"
#include "qkv/tensor.h"

namespace qkv::testing {

inline Tensor tensor_of(std::initializer_list<double> values, const Dims& shape,
                        DType dtype = DType::f64) {
  return Tensor::copy_of(
      TensorView::of(std::span<const double>(values.begin(), values.size()), shape), dtype);
}

// Numbers that are exact in f32, so that runs in f32 and f64 start from the same ones. Standard
// library distributions differ between implementations; this one is the same everywhere: the sum of
// four uniforms, nearly normal, with deviation `deviation`.
inline Tensor random_tensor(const Dims& shape, std::uint64_t seed, double deviation = 1,
                            DType dtype = DType::f64) {
  std::mt19937_64 random(seed);
  Tensor result(DType::f64, shape);
  for (double& value : result.as<double>()) {
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    value = static_cast<float>(sum * deviation * 1.7320508075688772);
  }
  return Tensor::copy_of(result.view(), dtype);
}

// Every step of a block, copied when it was shown.
struct Trace {
  std::vector<std::string> names;
  std::vector<Tensor> values;

  StepObserver observer() {
    return [this](std::string_view step, const TensorView& value) {
      names.emplace_back(step);
      values.push_back(Tensor::copy_of(value));
    };
  }

  const Tensor& at(std::string_view step) const {
    static const Tensor none;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == step) return values[i];
    }
    ADD_FAILURE() << "no step " << step;
    return none;
  }

  std::string shape(std::string_view step) const { return to_string(at(step).shape()); }
};

inline void expect_values(const TensorView& found, std::initializer_list<double> expected,
                          double tolerance) {
  const Tensor wide = Tensor::copy_of(found, DType::f64);
  const auto values = wide.as<double>();
  ASSERT_EQ(values.size(), expected.size());
  std::size_t n = 0;
  for (double e : expected) {
    EXPECT_NEAR(values[n], e, tolerance) << "element " << n;
    ++n;
  }
}

// The largest difference of two tensors of one shape.
inline double max_difference(const TensorView& a, const TensorView& b) {
  EXPECT_EQ(to_string(a.shape()), to_string(b.shape()));
  if (!(a.shape() == b.shape())) return HUGE_VAL;
  const Tensor x = Tensor::copy_of(a, DType::f64), y = Tensor::copy_of(b, DType::f64);
  double worst = 0;
  for (std::size_t i = 0; i < x.as<double>().size(); ++i) {
    const double d = std::abs(x.as<double>()[i] - y.as<double>()[i]);
    worst = d <= worst ? worst : d;  // a NaN stays
  }
  return worst;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  if (a.size() == 0) return true;  // memcmp takes no null
  return std::memcmp(a.view().data(), b.view().data(),
                     static_cast<std::size_t>(a.size()) * size_of(a.dtype())) == 0;
}

// Calls fn, which has to throw an Error of `where` about `subject`, and to leave `out` as it is.
template <typename Fn>
void expect_refused(const Tensor& out, std::string_view where, std::string_view subject, Fn&& fn) {
  const Tensor before = out.clone();
  try {
    fn();
    ADD_FAILURE() << where << " took a bad " << subject;
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), where) << error.what();
    EXPECT_EQ(error.subject(), subject) << error.what();
  }
  EXPECT_TRUE(same_bits(out, before)) << where << " wrote before it refused " << subject;
}

}  // namespace qkv::testing
