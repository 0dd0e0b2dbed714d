#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "io/bytes.h"
#include "qkv/file.h"

namespace qkv::io {

// All bytes of a regular file, mapped or read; they live as long as this does.
class InputFile {
 public:
  static std::shared_ptr<const InputFile> open(const std::filesystem::path& path,
                                               FileAccess access);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const noexcept { return name_; }
  Bytes bytes() const noexcept { return {data_, size_}; }

 private:
  explicit InputFile(const std::filesystem::path& path) : name_(path.string()) {}
  void load(int fd, FileAccess access);

  std::string name_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace qkv::io
