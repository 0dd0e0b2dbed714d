#include "models/weight_file.h"

#include <map>
#include <utility>

#include "io/report.h"
#include "qkv/error.h"
#include "qkv/npz.h"
#include "qkv/safetensors.h"

namespace qkv {
namespace {

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace

WeightFile::WeightFile(std::string name, std::vector<std::string> names, Read read)
    : name_(std::move(name)),
      names_(std::move(names)),
      sorted_(names_.begin(), names_.end()),
      read_(std::move(read)) {}

WeightFile::WeightFile(std::string name, const std::vector<NamedTensor>& tensors,
                       std::shared_ptr<const void> owner)
    : WeightFile(std::move(name), names_of(tensors), Read()) {
  std::map<std::string, TensorView, std::less<>> views;
  for (const NamedTensor& tensor : tensors) views.emplace(tensor.name, tensor.view);
  read_ = [views = std::move(views), owner = std::move(owner)](std::string_view tensor) {
    return FileTensor{views.find(tensor)->second, owner};
  };
}

WeightFile WeightFile::open(const std::filesystem::path& path) {
  if (path.extension() == ".safetensors") {
    SafetensorsFile file(path);
    return {path.string(), file.names(), [file](std::string_view tensor) {
              return FileTensor{file.tensor(tensor), file.owner()};
            }};
  }
  if (path.extension() == ".npz") {
    NpzFile file(path);
    return {path.string(), file.names(),
            [file](std::string_view tensor) { return file.read(tensor); }};
  }
  throw Error(ErrorKind::value, path.string(), "weights", "a .safetensors or .npz file",
              path.has_extension() ? path.extension().string() : "no extension");
}

FileTensor WeightFile::read(std::string_view tensor) const {
  if (!contains(tensor)) {
    throw Error(ErrorKind::value, name_, io::in_quotes(tensor), "a tensor of this name", "none");
  }
  return read_(tensor);
}

}  // namespace qkv
