#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// Memory that grows when needed, and is given back when it was a lot. Aligned to 64.
class Workspace {
 public:
  std::byte* of(std::int64_t bytes) {
    if (memory_.size() < bytes || memory_.size() > kKeep) {
      memory_ = Tensor();
      memory_ = Tensor(DType::u8, {bytes});
    }
    return reinterpret_cast<std::byte*>(memory_.as<std::uint8_t>().data());
  }

 private:
  static constexpr std::int64_t kKeep = 16 << 20;
  Tensor memory_;
};

}  // namespace qkv
