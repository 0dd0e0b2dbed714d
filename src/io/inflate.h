#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "io/bytes.h"
#include "io/zip_directory.h"

struct zip;

namespace qkv::io {

// Throws an Error in a build without libzip.
void require_npz_support(std::string_view where);

// Inflates the members of an archive in memory, through libzip. That library reads the archive on
// its own; that it sees the same members as `entries` is checked.
class Inflater {
 public:
  static constexpr bool kSupported = QKV_WITH_NPZ;

  // `file` and `entries` outlive this.
  Inflater(Bytes file, const std::vector<ZipEntry>& entries, std::string_view where);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // The bytes of a member, as many as its entry declares: refused when there are more or fewer.
  std::shared_ptr<std::byte> inflate(std::size_t index, std::string_view where);

 private:
  const std::vector<ZipEntry>& entries_;
  struct zip* archive_ = nullptr;
  std::mutex mutex_;  // libzip's archive is for one thread at a time
};

}  // namespace qkv::io
