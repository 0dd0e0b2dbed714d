#pragma once

#include <cstdint>
#include <string_view>

#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// What stands between the two products of a feed-forward network, element by element.
enum class Activation : std::uint8_t {
  none,        // x
  relu,        // max(x, 0)
  gelu,        // x·Φ(x) = x·(1 + erf(x / √2)) / 2
  gelu_tanh,   // x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2, GPT-2's gelu_new
  quick_gelu,  // x·sigmoid(1.702·x), CLIP's
  silu,        // x·sigmoid(x) = x / (1 + exp(-x))
};

// "none", "relu", "gelu", …
QKV_API std::string_view name_of(Activation activation) noexcept;

// out = activation(x)
//
// Any float dtypes and strides; out may be x itself (the same elements with the same strides).
// Computed in f64 if x is f64, otherwise in f32, where |error| ≤ 2⁻²³·(8 + 2·w)·|out| and w is the
// size of the number that is exponentiated (x²/2 for gelu); rounded once to out's dtype. threads as
// in LinearOptions. Throws Error, before anything is written, if arguments do not fit.
QKV_API void activation_forward(Activation activation, const TensorView& x,
                                const MutableTensorView& out, int threads = 0);

// out = activation(gate)·x: the gated feed-forward, SwiGLU with silu. All have one shape; out may
// be gate or x. Otherwise the same; f64 if gate is f64.
QKV_API void gated_forward(Activation activation, const TensorView& gate, const TensorView& x,
                           const MutableTensorView& out, int threads = 0);

}  // namespace qkv
