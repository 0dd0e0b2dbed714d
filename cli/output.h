#pragma once

#include <array>
#include <streambuf>

namespace qkv::cli {

// A stream's way to a file descriptor that remembers why writing failed: std::cout would only say
// that it did. After the first failure nothing more is written.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int descriptor) noexcept;

  int error() const noexcept { return error_; }  // an errno, or 0

 protected:
  int_type overflow(int_type c) override;
  int sync() override;

 private:
  bool flush() noexcept;

  std::array<char, 1 << 14> buffer_;
  int descriptor_;
  int error_ = 0;
};

}  // namespace qkv::cli
