#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/export.h"
#include "qkv/file.h"
#include "qkv/tensor.h"

// Hugging Face's file of named tensors:
//
//   length of header (u64, little-endian)
//   header: {"__metadata__": {"key": "value", …},
//            "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}  spaces
//   the elements, row-major; offsets count from here and cover every byte once
//
//   dtype   f32   f64   f16   bf16   i32   i64   u8   bool
//   name    F32   F64   F16   BF16   I32   I64   U8   BOOL

namespace qkv {

// An open file. Everything is checked when it is opened: names are unique, shape and dtype of each
// tensor agree with its offsets, and the offsets cover the data without overlap, hole or rest.
// Names of dtypes that qkv does not compute with (I8, F8_E4M3, …) are known: such a tensor is
// listed, and only refused when it is asked for.
//
//   const qkv::SafetensorsFile file("model.safetensors");
//   const qkv::TensorView w = file.tensor("h.0.attn.weight");  // as long as `file` lives
//
// Copies share one mapping, which lives as long as any of them, or of what owner() returned.
class QKV_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path, FileAccess access = FileAccess::map);

  const std::vector<std::string>& names() const noexcept;  // in the order of the header
  bool contains(std::string_view name) const noexcept;

  // The elements where they lie in the file: no alignment is promised. Refuses a name that is not
  // there, and a dtype that is not one of qkv's.
  TensorView tensor(std::string_view name) const;

  const Dims& shape(std::string_view name) const;
  std::string_view dtype_name(std::string_view name) const;  // as the file says: "F32", "I8", …

  const std::map<std::string, std::string>& metadata() const noexcept;

  std::shared_ptr<const void> owner() const noexcept;

 private:
  struct Contents;
  std::shared_ptr<const Contents> contents_;
};

// Writes the tensors in the given order, those of wider elements first, so that each is aligned to
// its element size (as other readers expect). Any strides are fine; names have to be unique.
QKV_API void save_safetensors(const std::filesystem::path& path,
                              const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace qkv
