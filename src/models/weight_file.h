#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/file.h"

namespace qkv {

// The named tensors of a checkpoint, whatever holds them: a .safetensors file, an .npz archive, or
// arrays in memory (a Python dict).
class WeightFile {
 public:
  // By the file's extension.
  static WeightFile open(const std::filesystem::path& path);

  // `name` stands for the file in messages; `owner` keeps the tensors alive, if someone has to.
  WeightFile(std::string name, const std::vector<NamedTensor>& tensors,
             std::shared_ptr<const void> owner = nullptr);

  const std::string& name() const noexcept { return name_; }
  const std::vector<std::string>& names() const noexcept { return names_; }
  bool contains(std::string_view tensor) const { return sorted_.find(tensor) != sorted_.end(); }

  // Refuses a name that is not there, and a dtype that is not one of qkv's.
  FileTensor read(std::string_view tensor) const;

 private:
  using Read = std::function<FileTensor(std::string_view)>;
  WeightFile(std::string name, std::vector<std::string> names, Read read);

  std::string name_;
  std::vector<std::string> names_;  // in file order
  std::set<std::string, std::less<>> sorted_;
  Read read_;
};

}  // namespace qkv
