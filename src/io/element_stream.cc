#include "io/element_stream.h"

#include <algorithm>

#include "base/element.h"

namespace qkv::io {
namespace {
constexpr std::int64_t kBufferBytes = 256 * 1024;
}

ElementStream::ElementStream(const TensorView& view)
    : view_(view), remaining_(view.size()), index_(view.shape()) {
  for (int i = 0; i < index_.rank(); ++i) index_[i] = 0;
}

// One element on, in row-major order, past the last one back to the first.
void ElementStream::advance() noexcept {
  for (int i = view_.rank() - 1; i >= 0; --i) {
    offset_ += view_.stride(i);
    if (++index_[i] < view_.dim(i)) return;
    offset_ -= view_.stride(i) * view_.dim(i);
    index_[i] = 0;
  }
}

Bytes ElementStream::next() {
  if (remaining_ == 0) return {};
  const auto width = static_cast<std::int64_t>(size_of(view_.dtype()));
  // A bool may be any non-zero byte in memory, and is 0 or 1 in a file: always gathered.
  if (view_.is_dense() && view_.dtype() != DType::boolean) {
    const auto* data = static_cast<const std::byte*>(view_.data());
    return {data, static_cast<std::size_t>(std::exchange(remaining_, 0) * width)};
  }
  const std::int64_t count = std::min(remaining_, kBufferBytes / width);
  buffer_.resize(static_cast<std::size_t>(count * width));
  visit_dtype(view_.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t i = 0; i < count; ++i, advance()) {
      store(buffer_.data(), i, load<T>(view_.data(), offset_));
    }
  });
  remaining_ -= count;
  return buffer_;
}

}  // namespace qkv::io
