#pragma once

#include <filesystem>

#include "qkv/export.h"
#include "qkv/file.h"
#include "qkv/tensor.h"

// NumPy's file of one array:
//
//   "\x93NUMPY"  major  minor  length of header (u16; from version 2 on u32, little-endian)
//   header: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  spaces  '\n'
//   the elements, without gaps
//
//   dtype   f32   f64   f16   i32   i64   u8    bool
//   descr   <f4   <f8   <f2   <i4   <i8   |u1   |b1

namespace qkv {

// Reads versions 1.0 to 3.0. An array in Fortran order becomes a view with reversed strides: the
// same elements at the same indices. Refused: object arrays (they hold Python pickles, which would
// run code), structured, big-endian and other dtypes, headers of more than 10,000 bytes, keys
// other than the three above, and bytes after the last element.
//
//   const qkv::FileTensor q = qkv::load_npy("q.npy");
//   attention_forward(q.view, …);
QKV_API FileTensor load_npy(const std::filesystem::path& path, FileAccess access = FileAccess::map);

// Writes version 1.0 in C order, whatever the strides. The format has no bf16: such a tensor is
// refused (write it as safetensors, or as f32).
QKV_API void save_npy(const std::filesystem::path& path, const TensorView& tensor);

}  // namespace qkv
