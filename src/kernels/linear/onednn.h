#pragma once

// oneDNN's matrix product in the place of ours, for comparison. Only in builds with
// QKV_WITH_ONEDNN; our own kernel does what it does not.

#include <memory>

#include "kernels/linear/linear.h"
#include "qkv/tensor.h"

namespace qkv {

// Weights in oneDNN's own order, and its product with them.
class OneDnnLinear {
 public:
  OneDnnLinear(const OneDnnLinear&) = delete;
  OneDnnLinear& operator=(const OneDnnLinear&) = delete;
  virtual ~OneDnnLinear() = default;

  // Whether this build has it.
  static bool available() noexcept;
  // Of a dense f32 [out, in]; null if this build has no oneDNN, or it has no kernel for them.
  static std::shared_ptr<const OneDnnLinear> prepare(const TensorView& weight,
                                                     const TensorView& bias);

  // Computes the problem and returns true, or leaves it alone: it takes dense f32 rows only.
  virtual bool run(const LinearProblem& problem, int threads) const = 0;

 protected:
  OneDnnLinear() = default;
};

}  // namespace qkv
