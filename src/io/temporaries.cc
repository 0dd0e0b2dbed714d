#include "io/temporaries.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace qkv::io {
namespace {

// Memory that is never freed or moved: a handler may run between any two instructions. A slot is
// claimed, filled, and only then shown to the handler.
struct Slot {
  enum State : int { free, claimed, shown };
  std::atomic<int> state{free};
  std::array<char, 4096> path{};  // PATH_MAX of Linux
};
static_assert(std::atomic<int>::is_always_lock_free);

std::array<Slot, 16> slots;

}  // namespace

TemporaryRecord::TemporaryRecord(const char* path) noexcept : slot_(-1) {
  const std::size_t size = std::strlen(path) + 1;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Slot& slot = slots[i];
    int expected = Slot::free;
    if (size > slot.path.size()) return;
    if (!slot.state.compare_exchange_strong(expected, Slot::claimed)) continue;
    std::memcpy(slot.path.data(), path, size);
    slot.state.store(Slot::shown);
    slot_ = static_cast<int>(i);
    return;
  }
}

TemporaryRecord::~TemporaryRecord() {
  if (slot_ >= 0) slots[static_cast<std::size_t>(slot_)].state.store(Slot::free);
}

void remove_temporaries() noexcept {
  const int saved = errno;
  for (Slot& slot : slots) {
    if (slot.state.load() == Slot::shown) ::unlink(slot.path.data());
  }
  errno = saved;
}

}  // namespace qkv::io
