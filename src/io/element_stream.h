#pragma once

#include <cstdint>
#include <vector>

#include "io/bytes.h"
#include "qkv/tensor.h"

namespace qkv::io {

// The elements of a view in row-major order, as pieces of bytes to be written one after the other.
// A dense view is one piece, in place; any other one is gathered into a small buffer.
class ElementStream {
 public:
  explicit ElementStream(const TensorView& view);

  // The next piece, valid until the next call; empty at the end.
  Bytes next();

 private:
  void advance() noexcept;

  TensorView view_;
  std::int64_t remaining_;   // elements not handed out yet
  std::int64_t offset_ = 0;  // of the next one, in elements
  Dims index_;               // of the next one
  std::vector<std::byte> buffer_;
};

}  // namespace qkv::io
