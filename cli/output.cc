#include "cli/output.h"

#include <unistd.h>

#include <cerrno>

namespace qkv::cli {

DescriptorBuffer::DescriptorBuffer(int descriptor) noexcept : descriptor_(descriptor) {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

bool DescriptorBuffer::flush() noexcept {
  const char* at = pbase();
  while (error_ == 0 && at < pptr()) {
    const ssize_t count = ::write(descriptor_, at, static_cast<std::size_t>(pptr() - at));
    if (count >= 0) {
      at += count;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return error_ == 0;
}

DescriptorBuffer::int_type DescriptorBuffer::overflow(int_type c) {
  if (!flush()) return traits_type::eof();
  if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
  return traits_type::not_eof(c);
}

int DescriptorBuffer::sync() { return flush() ? 0 : -1; }

}  // namespace qkv::cli
