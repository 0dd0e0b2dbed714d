#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "io/bytes.h"
#include "qkv/tensor.h"

namespace qkv::io {

// What stands before the elements of a .npy file.
struct NpyLayout {
  DType dtype = DType::f32;
  Dims shape, strides;
  std::size_t data_offset = 0;
};

// Reads it, and checks that `file` has exactly the elements it declares. `where` names the file in
// messages.
NpyLayout parse_npy(Bytes file, std::string_view where);

// Magic, version 1.0 and header for a C-order array of the view's dtype and shape.
std::string npy_preamble(const TensorView& view, std::string_view where);

}  // namespace qkv::io
