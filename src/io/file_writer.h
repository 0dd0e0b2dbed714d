#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "io/bytes.h"
#include "io/descriptor.h"
#include "io/temporaries.h"
#include "qkv/tensor.h"

namespace qkv::io {

// Replaces a file whole or not at all:
//
//   FileWriter out(path);   // creates a temporary file next to path
//   out.write(bytes); …
//   out.commit();           // flushed to the disk, then renamed to path
//
// Without commit() the temporary file is removed and what stood at `path` stays. A target that
// exists and is no regular file (/dev/stdout, a FIFO) is written to directly: it cannot be
// replaced. All failures are Errors of kind io.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  const std::string& name() const noexcept { return name_; }

  void write(Bytes bytes);
  void write(const TensorView& elements);  // row-major, without gaps
  void seek(std::uint64_t offset);
  std::uint64_t position() const noexcept { return position_; }

  void commit();

 private:
  void open_temporary(const struct stat* replaced);
  void flush();

  std::string name_;                       // for messages: what the caller named
  std::filesystem::path target_;           // what is to be replaced, symbolic links followed
  std::filesystem::path temporary_;        // empty: written to directly, or done
  std::optional<TemporaryRecord> record_;  // of temporary_, while it exists
  Descriptor fd_;
  std::uint64_t position_ = 0;
};

}  // namespace qkv::io
