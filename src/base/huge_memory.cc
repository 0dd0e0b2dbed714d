#include "base/huge_memory.h"

#include <new>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define QKV_HAS_MMAP 1
#else
#include <cstring>
#define QKV_HAS_MMAP 0
#endif

namespace qkv {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;

}  // namespace

HugeMemory::HugeMemory(std::int64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
#if QKV_HAS_MMAP
  void* memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(memory);
#ifdef MADV_HUGEPAGE
  // Advice: a system without huge pages refuses it, and nothing is lost.
  if (bytes >= kHugePage) ::madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
#else
  data_ = static_cast<std::byte*>(
      ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{64}));
  std::memset(data_, 0, static_cast<std::size_t>(bytes));
#endif
}

HugeMemory::HugeMemory(HugeMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeMemory& HugeMemory::operator=(HugeMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeMemory::~HugeMemory() {
  if (data_ == nullptr) return;
#if QKV_HAS_MMAP
  ::munmap(data_, static_cast<std::size_t>(size_));
#else
  ::operator delete (data_, std::align_val_t{64});
#endif
}

}  // namespace qkv
