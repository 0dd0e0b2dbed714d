#pragma once

#include <cstdint>
#include <memory>

#include "kernels/linear/onednn.h"
#include "qkv/linear.h"
#include "qkv/tensor.h"

namespace qkv {

// The weights of a PreparedLinear.
class PreparedLinear::Packed {
 public:
  std::int64_t in = 0, out = 0;
  DType storage = DType::f32;
  LinearBackend backend = LinearBackend::simd;
  SimdTarget target = SimdTarget::scalar;
  Tensor weight;           // [out, in], for the reference; as panels (see panel.h) otherwise
  std::int64_t width = 0;  // of a panel
  Tensor bias;             // [out], or none

  // 8-bit weights (see bytes.h): `weight` is panels of bytes then.
  bool bytes = false;
  Tensor scales, sums;  // of the outputs of all panels

  std::shared_ptr<const OneDnnLinear> onednn;  // besides the panels, if it was asked for
};

}  // namespace qkv
