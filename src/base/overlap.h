#pragma once

#include "qkv/tensor.h"

namespace qkv {

// Whether two views share a byte. Exact for the layouts that real code has; where an answer would
// take too long to find (strides that interleave in a strange way), "yes" is assumed.
// Interleaved views of one buffer, such as the q and v thirds of a packed qkv, do not overlap.
bool views_overlap(const TensorView& a, const TensorView& b) noexcept;

// Whether two different indices of one view may reach the same byte (a stride of 0, say): such a
// view cannot be written to. Careful in the same direction.
bool overlaps_itself(const TensorView& view) noexcept;

}  // namespace qkv
