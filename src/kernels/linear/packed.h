#pragma once

#include <cstdint>

#include "qkv/linear.h"
#include "qkv/tensor.h"

namespace qkv {

// The weights of a PreparedLinear.
class PreparedLinear::Packed {
 public:
  std::int64_t in = 0, out = 0;
  LinearBackend backend = LinearBackend::reference;
  Tensor weight;  // [out, in]
  Tensor bias;    // [out], or none
};

}  // namespace qkv
