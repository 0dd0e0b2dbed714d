#pragma once

// Tensors that a command line names.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/file.h"
#include "qkv/tensor.h"

namespace qkv::cli {

// For help: what load_tensor takes.
inline constexpr std::string_view kTensorHelp =
    "Tensors are FILE.npy, FILE.npz:NAME or FILE.safetensors:NAME; NAME may be left out where the\n"
    "file has one tensor. Results are written as .npy or .safetensors, by the extension.";

// `flag` is for messages: "--query".
FileTensor load_tensor(std::string_view flag, const std::string& argument);

// Small arrays may stand on the command line itself: "3,5" or "0.5,-inf", one row of i64 or f64
// (`integers` says which). Anything else is a file.
FileTensor load_numbers(std::string_view flag, const std::string& argument, bool integers);

// The argument as one integer, if it is one.
std::optional<std::int64_t> as_integer(std::string_view argument);

// A result is not written over what it is made from, under whatever name: whoever mistyped a name
// would lose the input. `inputs` are arguments as load_tensor and load_numbers take them.
void refuse_inputs_as_outputs(const std::vector<std::string>& outputs,
                              const std::vector<std::string>& inputs);

// A file that a result goes to. Everything that can be known before the work is checked when it is
// made: the extension, the folder, and whether the format has the dtype.
class OutputFile {
 public:
  OutputFile(std::string_view flag, const std::string& path, DType dtype);

  // `name` is the tensor's, in a format that has names.
  void save(std::string_view name, const TensorView& tensor) const;
  const std::string& path() const noexcept { return path_; }
  bool is_stream() const;  // a pipe or device: what else is printed should not get in its way

 private:
  std::string path_;
};

}  // namespace qkv::cli
