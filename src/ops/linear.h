#pragma once

// The parts of linear_forward, for blocks: check all weights first, compute later.

#include <cstdint>
#include <string_view>

#include "ops/refuse.h"
#include "qkv/linear.h"

namespace qkv {

// Refuses weights that do not take rows of width `in`; returns the width that they give. The
// subject of an error is `name`.weight or `name`.bias.
std::int64_t check_linear(const Refuse& refuse, std::string_view name, const LinearWeights& weights,
                          std::int64_t in);

// linear_forward of arguments that are known to fit, computed in `dtype` (f32 or f64).
void run_linear(const LinearWeights& weights, const TensorView& x, const MutableTensorView& out,
                DType dtype, int threads);

}  // namespace qkv
