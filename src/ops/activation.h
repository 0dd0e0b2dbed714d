#pragma once

// Element by element, for blocks: arguments have one shape (rank 1 or more), are known to fit, and
// out may be an input. Computed in `dtype` (f32 or f64).

#include "qkv/activation.h"
#include "qkv/tensor.h"

namespace qkv {

// out = activation(x)
void run_activation(Activation activation, const TensorView& x, const MutableTensorView& out,
                    DType dtype, int threads);

// out = activation(gate)·x
void run_gated(Activation activation, const TensorView& gate, const TensorView& x,
               const MutableTensorView& out, DType dtype, int threads);

// out = x + b
void run_add(const TensorView& x, const TensorView& b, const MutableTensorView& out, DType dtype,
             int threads);

}  // namespace qkv
