#pragma once

// DLPack's exchange interface (version 1.2 and later): a table of C functions that a library hangs
// on its array type, and that describes an array without a call of Python. PyTorch has it
// since 2.10.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

namespace qkv::python {

// The part of the table that is used here; its layout is DLPack's.
struct ExchangeTable {
  struct Header {
    struct {
      std::uint32_t major, minor;
    } version;
    Header* previous;
  } header;
  void* allocator;
  void* managed_from_object;
  void* object_from_managed;
  int (*describe)(void* object, nanobind::dlpack::dltensor* out);  // borrows; 0: no error
};

// The table of the array's type, or null. Looked up once a type.
const ExchangeTable* exchange_table(nanobind::handle array);

}  // namespace qkv::python
