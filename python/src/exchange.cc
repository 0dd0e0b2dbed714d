#include "exchange.h"

#include <array>
#include <cstddef>

namespace nb = nanobind;

namespace qkv::python {
namespace {

const ExchangeTable* look_up(nb::handle type) {
  constexpr const char* kName = "dlpack_exchange_api";
  constexpr std::uint32_t kMajor = 1;
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), kName) == 0) return nullptr;
  const auto* table = static_cast<const ExchangeTable*>(PyCapsule_GetPointer(capsule.ptr(), kName));
  return table->header.version.major == kMajor ? table : nullptr;
}

}  // namespace

const ExchangeTable* exchange_table(nb::handle type) {
  // The last types seen, each held for good so that its address stays its own.
  struct Seen {
    nb::handle type;
    const ExchangeTable* table = nullptr;
  };
  static std::array<Seen, 8> seen;
  static std::size_t next = 0;
  for (const Seen& one : seen) {
    if (one.type.is(type)) return one.table;
  }
  const ExchangeTable* table = look_up(type);
  if (next < seen.size()) {
    seen[next] = {type.inc_ref(), table};
    ++next;
  }
  return table;
}

}  // namespace qkv::python
