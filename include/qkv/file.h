#pragma once

#include <memory>
#include <string>

#include "qkv/tensor.h"

namespace qkv {

// How the bytes of a file reach memory.
//   map   pages of the file itself, loaded when touched: nothing is copied, and what is never used
//         is never read. The file has to stay as it is: if another process truncates it while it
//         is mapped, touching a page that is gone raises SIGBUS, and changed bytes are seen.
//         Replacing the file by rename, as every save_* of qkv does, is safe.
//   copy  read into memory at once; the file may change afterwards.
enum class FileAccess { map, copy };

// A tensor that was read from a file, and what keeps its elements alive (the mapping, or memory).
// The view is read-only, and valid as long as some copy of `owner` lives.
struct FileTensor {
  TensorView view;
  std::shared_ptr<const void> owner;
};

// A tensor to be written under a name.
struct NamedTensor {
  std::string name;
  TensorView view;
};

// Reading and writing, in all formats (npy.h, npz.h, safetensors.h):
//
//   - Bad content is an Error of kind value that names the file, the field, what was expected and
//     what was found; a failure of the system (no such file, no permission, disk full) is one of
//     kind io. Only regular files are read: a directory, FIFO or device is refused.
//   - A declared size is believed only as far as the file really goes.
//   - Writing goes to a temporary file in the same directory, which is flushed to the disk and
//     renamed over the target: after any failure the old file is intact and nothing is left over
//     (a process that is killed meanwhile leaves its ".qkv-….tmp" behind).
//     A symbolic link is followed; mode and owner of an existing file are kept. A target that
//     exists and is no regular file (a device, a FIFO) is written to directly.

}  // namespace qkv
