#pragma once

// What an operator computes in, and scratch for its workers.

#include <cstdint>

#include "base/parallel.h"
#include "qkv/attention.h"
#include "qkv/tensor.h"

namespace qkv {

// f64 for f64 inputs or on request, otherwise f32.
inline DType compute_dtype(const TensorView& x, Accumulate accumulate) noexcept {
  return x.dtype() == DType::f64 || accumulate == Accumulate::f64 ? DType::f64 : DType::f32;
}

// fn(item, scratch) once for every item in [0, count), in parallel. `scratch` has `numbers` (a
// product of two, checked) numbers of the compute dtype, float* or double*, for this call alone.
// Memory is had before the first call.
template <typename Fn>
void compute_items(std::int64_t count, DType dtype, const Dims& numbers, int threads, Fn&& fn) {
  Dims shape{worker_count(count, threads)};
  for (std::int64_t n : numbers) shape.push_back(n);
  Tensor scratch(dtype, shape);
  const std::int64_t each = element_count(numbers);
  const auto run = [&](auto* all) {
    parallel_for(count, threads,
                 [&](std::int64_t item, int worker) { fn(item, all + worker * each); });
  };
  if (dtype == DType::f64) {
    run(scratch.as<double>().data());
  } else {
    run(scratch.as<float>().data());
  }
}

}  // namespace qkv
