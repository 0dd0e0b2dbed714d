#pragma once

// The parts of rope_forward, for what is built on it.

#include "kernels/rope/rope.h"
#include "ops/refuse.h"

namespace qkv {

// Refuses arguments that do not fit, or resolves them into `problem` (all but its pairing).
void check_rope(const Refuse& refuse, const RopeAngles& angles, const TensorView& x,
                const MutableTensorView& out, RopeProblem& problem);

void run_rope(const RopeProblem& problem, DType dtype, int threads);

}  // namespace qkv
