#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/export.h"
#include "qkv/file.h"
#include "qkv/tensor.h"

// NumPy's file of named arrays: a zip archive whose member "<name>.npy" is the .npy file of the
// array <name>, stored as it is (np.savez) or deflated (np.savez_compressed).
//
// Needs libzip. In a build without it, everything here throws an Error that says so.

namespace qkv {

struct NpzOptions {
  FileAccess access = FileAccess::map;

  // Limits on what a small file may grow to. Sizes that the archive declares have to respect them
  // when it is opened, and inflating stops where a member passes what it declared.

  // All deflated members together, inflated. Stored ones are as large as the file shows.
  std::uint64_t max_inflated_bytes = std::uint64_t{4} << 30;
  // Inflated over deflated size of a member. The default is what deflate can reach at all (258
  // bytes for 2 bits), and zeros do reach 1023 in honest files: only a lie is above it.
  double max_ratio = 1032;
};

// True in a build with libzip.
QKV_API bool npz_supported() noexcept;

// An open archive. Opening checks the directory: no member overlaps another one, none is encrypted
// or named twice, and what stands before each member is what the directory says. Reading a member
// checks its CRC. Names are keys and nothing else: "../x" is a key like any other.
//
//   const qkv::NpzFile file("inputs.npz");
//   const qkv::FileTensor x = file.read("x");
class QKV_API NpzFile {
 public:
  explicit NpzFile(const std::filesystem::path& path, const NpzOptions& options = {});

  const std::vector<std::string>& names() const noexcept;  // in file order, without ".npy"
  bool contains(std::string_view name) const noexcept;

  // A stored member is a view of the file, a deflated one is inflated into memory (anew each time).
  // What load_npy refuses is refused here. May be called from several threads.
  FileTensor read(std::string_view name) const;

 private:
  struct Contents;
  std::shared_ptr<const Contents> contents_;
};

// All arrays of an archive, by name.
QKV_API std::map<std::string, FileTensor> load_npz(const std::filesystem::path& path,
                                                   const NpzOptions& options = {});

// Writes the arrays in the given order, deflated or stored. The same input gives the same bytes. As
// libzip goes back to fill in sizes, the target has to be seekable. bf16 is refused as in save_npy.
QKV_API void save_npz(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                      bool compressed = true);

}  // namespace qkv
