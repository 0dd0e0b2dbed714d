#pragma once

// DLPack's exchange interface (version 1.2 and later): a table of C functions that a library hangs
// on its array type, and that describes an array without a call of Python. PyTorch has it
// since 2.10.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

namespace qkv::python {

// A tensor that its library lends, until `deleter`; the layout is DLPack's.
struct ManagedTensor {
  struct {
    std::uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(ManagedTensor* self);
  std::uint64_t flags;
  nanobind::dlpack::dltensor tensor;
};

// The part of the table that is used here; its layout is DLPack's. 0 is no error.
struct ExchangeTable {
  using Report = void (*)(void* context, const char* kind, const char* message);
  struct Header {
    struct {
      std::uint32_t major, minor;
    } version;
    Header* previous;
  } header;
  int (*allocate)(nanobind::dlpack::dltensor* like, ManagedTensor** out, void* context,
                  Report report);
  void* managed_from_object;
  int (*to_object)(ManagedTensor* tensor, void** out);             // takes the tensor over
  int (*describe)(void* object, nanobind::dlpack::dltensor* out);  // borrows
};

// The table of a type of arrays, or null. Looked up once a type.
const ExchangeTable* exchange_table(nanobind::handle type);

}  // namespace qkv::python
