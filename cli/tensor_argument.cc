#include "cli/tensor_argument.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli/command.h"
#include "io/report.h"
#include "models/place.h"
#include "models/weight_file.h"
#include "qkv/error.h"
#include "qkv/npy.h"
#include "qkv/safetensors.h"

namespace qkv::cli {
namespace {

namespace fs = std::filesystem;

struct FileAndName {
  std::string file, name;
};

// At the last ":" behind the extension, so that both parts may have colons of their own.
std::optional<FileAndName> split_name(const std::string& argument) {
  for (const std::string_view extension : {".npz:", ".safetensors:"}) {
    const std::size_t at = argument.rfind(extension);
    if (at == std::string::npos) continue;
    const std::size_t colon = at + extension.size() - 1;
    return FileAndName{argument.substr(0, colon), argument.substr(colon + 1)};
  }
  return std::nullopt;
}

template <typename T>
std::optional<T> as_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Comma-separated numbers of one type, or nothing.
template <typename T>
std::optional<std::vector<T>> as_numbers(std::string_view text) {
  std::vector<T> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::optional<T> value = as_number<T>(text.substr(begin, comma - begin));
    if (!value) return std::nullopt;
    values.push_back(*value);
    begin = comma + 1;
  }
  return values;
}

template <typename T>
FileTensor as_tensor(std::vector<T> values) {
  const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
  return {TensorView::of(*kept), kept};
}

[[noreturn]] void refuse_extension(std::string_view flag, std::string_view argument,
                                   std::string_view expected) {
  throw UsageError(
      fmt::format("{}: expected {}, found {}", flag, expected, io::in_quotes(argument)));
}

}  // namespace

FileTensor load_tensor(std::string_view flag, const std::string& argument) {
  if (argument.ends_with(".npy")) return load_npy(argument);
  if (const auto parts = split_name(argument)) {
    const WeightFile file = WeightFile::open(parts->file);
    if (file.contains(parts->name)) return file.read(parts->name);
    throw Error(ErrorKind::value, parts->file, io::in_quotes(parts->name),
                "the name of a tensor of the file", short_list(file.names()));
  }
  if (!argument.ends_with(".npz") && !argument.ends_with(".safetensors")) {
    refuse_extension(flag, argument, "FILE.npy, FILE.npz:NAME or FILE.safetensors:NAME");
  }
  const WeightFile file = WeightFile::open(argument);
  if (file.names().size() == 1) return file.read(file.names().front());
  throw Error(ErrorKind::value, argument, flag, "one tensor, or a name after ':'",
              short_list(file.names()));
}

FileTensor load_numbers(std::string_view flag, const std::string& argument, bool integers) {
  if (integers) {
    if (auto values = as_numbers<std::int64_t>(argument)) return as_tensor(std::move(*values));
  }
  if (auto values = as_numbers<double>(argument)) {
    if (integers) refuse_extension(flag, argument, "whole numbers, or a file of them");
    return as_tensor(std::move(*values));
  }
  if (argument.find(".npy") == std::string::npos && argument.find(".npz") == std::string::npos &&
      argument.find(".safetensors") == std::string::npos) {
    refuse_extension(flag, argument,
                     integers ? "whole numbers (3,5), or a file FILE.npy, FILE.npz:NAME, …"
                              : "numbers (0.5,0.25), or a file FILE.npy, FILE.npz:NAME, …");
  }
  return load_tensor(flag, argument);
}

std::optional<std::int64_t> as_integer(std::string_view argument) {
  return as_number<std::int64_t>(argument);
}

void refuse_inputs_as_outputs(const std::vector<std::string>& outputs,
                              const std::vector<std::string>& inputs) {
  for (const std::string& output : outputs) {
    for (const std::string& input : inputs) {
      const auto parts = split_name(input);
      const fs::path file = parts ? parts->file : input;
      std::error_code error;  // one of them does not exist: they are not the same
      if (!fs::is_regular_file(output, error) || !fs::equivalent(output, file, error)) continue;
      throw UsageError(fmt::format("expected another file for the result than an input, found {}",
                                   io::in_quotes(output)));
    }
  }
}

OutputFile::OutputFile(std::string_view flag, const std::string& path, DType dtype) : path_(path) {
  const std::string extension = fs::path(path).extension().string();
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  // A device or pipe has no extension to go by: it gets the simpler format.
  if (extension != ".npy" && extension != ".safetensors" && !is_stream()) {
    refuse_extension(flag, path, "a file name that ends with .npy or .safetensors");
  }
  if (extension != ".safetensors" && dtype == DType::bf16) {
    throw UsageError(fmt::format("{}: .npy has no bf16, expected FILE.safetensors, found {}", flag,
                                 io::in_quotes(path)));
  }
  if (fs::is_directory(status)) io::fail(path, "open", "a file that can be written", EISDIR);
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    io::fail(path, "open", "a file that can be written", ENOENT);
  }
}

bool OutputFile::is_stream() const {
  std::error_code error;
  if (path_.starts_with("/dev/")) return true;  // /dev/stdout may be a file, under another name
  const fs::file_status status = fs::status(path_, error);
  return fs::is_character_file(status) || fs::is_fifo(status);
}

void OutputFile::save(std::string_view name, const TensorView& tensor) const {
  if (path_.ends_with(".safetensors")) {
    save_safetensors(path_, {{std::string(name), tensor}});
  } else {
    save_npy(path_, tensor);
  }
}

}  // namespace qkv::cli
