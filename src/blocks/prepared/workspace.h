#pragma once

// The memory of a prepared block's calls.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "ops/refuse.h"
#include "qkv/tensor.h"

namespace qkv {

// Bytes of a matrix, up to whole cache lines. Refuses what does not fit.
inline std::int64_t padded_bytes(DType dtype, const Dims& shape) {
  constexpr std::int64_t kLine = Tensor::kAlignment;
  const auto bytes = checked_mul(element_count(shape), static_cast<std::int64_t>(size_of(dtype)));
  const auto padded = bytes ? checked_add(*bytes, kLine - 1) : bytes;
  if (!padded) {
    Refuse("workspace").value("shape", "a size below 2^63 bytes", to_string(shape));
  }
  return *padded / kLine * kLine;
}

// Takes tensors off a piece of memory, one behind the other.
class Arena {
 public:
  explicit Arena(std::byte* at) : at_(at) {}

  MutableTensorView take(DType dtype, const Dims& shape) {
    MutableTensorView view(at_, dtype, shape);
    at_ += padded_bytes(dtype, shape);
    return view;
  }

 private:
  std::byte* at_;
};

// Buffers that calls borrow: as many as there are calls at once, each kept for the next one.
class WorkspacePool {
 public:
  class Lease {
   public:
    Lease(WorkspacePool& pool, Tensor memory) : pool_(pool), memory_(std::move(memory)) {}
    ~Lease() { pool_.give_back(std::move(memory_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    std::byte* data() { return reinterpret_cast<std::byte*>(memory_.as<std::uint8_t>().data()); }

   private:
    WorkspacePool& pool_;
    Tensor memory_;
  };

  Lease borrow(std::int64_t bytes) {
    Tensor memory;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        memory = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!memory.view().has_value() || memory.size() < bytes) {
      memory = Tensor();  // first give, then take
      memory = Tensor(DType::u8, {bytes});
    }
    return Lease(*this, std::move(memory));
  }

 private:
  void give_back(Tensor memory) noexcept {
    try {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(memory));
    } catch (const std::bad_alloc&) {
      // Then the next call takes memory anew.
    }
  }

  std::mutex mutex_;
  std::vector<Tensor> free_;
};

}  // namespace qkv
