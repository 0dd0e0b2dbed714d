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

// Which kernel. A target that this CPU has.
struct LinearChoice {
  LinearBackend backend = LinearBackend::automatic;
  SimdTarget target = SimdTarget::automatic;
};

// The other checks of a call: x, then, when the width of its result is known, out and options.
void check_linear_input(const Refuse& refuse, const TensorView& x);
void check_linear_call(const Refuse& refuse, const TensorView& x, const MutableTensorView& out,
                       std::int64_t out_width, const LinearOptions& options);

void check_linear_choice(const Refuse& refuse, const LinearChoice& choice);

// What follows the product of a linear map.
struct LinearEpilogue {
  Activation activation = Activation::none;
  TensorView residual{};  // as in LinearOptions
  // Other threads have read or written where the results go: these lines are asked for before they
  // are written.
  bool far = false;
};

// linear_forward of arguments that are known to fit, computed in `dtype` (f32 or f64).
void run_linear(const LinearWeights& weights, const TensorView& x, const MutableTensorView& out,
                DType dtype, int threads, const LinearEpilogue& epilogue = {},
                const LinearChoice& choice = {});

// The same with prepared weights.
void run_linear(const PreparedLinear& weights, const TensorView& x, const MutableTensorView& out,
                DType dtype, int threads, const LinearEpilogue& epilogue = {});

// As many outputs as `out` has (and a residual), two or more, from `first` on, of a channel-first
// image of two pixels or more: whether weights are kept so that this costs about their share, and
// the product.
bool gives_some_outputs(const PreparedLinear& weights);
void run_some_outputs(const PreparedLinear& weights, std::int64_t first, const TensorView& x,
                      const MutableTensorView& out, DType dtype, int threads,
                      const LinearEpilogue& epilogue = {});

// Bytes that such a call on dense rows of `dtype`, or on a channel-first image, works in. Threads
// keep them from call to call, for all products together.
std::int64_t linear_workspace(const PreparedLinear& weights, std::int64_t rows, DType dtype,
                              bool channels, int threads);

}  // namespace qkv
