#pragma once

#include <cstddef>
#include <cstdint>

namespace qkv {

// A large piece of zeros that takes memory only where it is touched, in huge pages where the system
// has them: a cache of many megabytes is then walked with hardly a TLB miss.
class HugeMemory {
 public:
  HugeMemory() = default;
  explicit HugeMemory(std::int64_t bytes);  // throws std::bad_alloc
  HugeMemory(HugeMemory&& other) noexcept;
  HugeMemory& operator=(HugeMemory&& other) noexcept;
  ~HugeMemory();

  std::byte* data() const noexcept { return data_; }  // aligned to 64 at least
  std::int64_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace qkv
