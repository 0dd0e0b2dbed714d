#pragma once

// The parts of norm_forward, for blocks: check all weights first, compute later.

#include <cstdint>
#include <string_view>

#include "ops/refuse.h"
#include "qkv/norm.h"

namespace qkv {

// Refuses weights that do not fit rows of width n. The subject of an error is `name`.weight,
// `name`.bias or `name`.eps.
void check_norm(const Refuse& refuse, std::string_view name, const NormWeights& weights,
                std::int64_t n);

// norm_forward of arguments that are known to fit, computed in `dtype` (f32 or f64).
void run_norm(const NormWeights& weights, const TensorView& x, const MutableTensorView& out,
              DType dtype, int threads);

}  // namespace qkv
