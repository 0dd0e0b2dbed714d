#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tensor.h"

namespace qkv::io {

// A dtype that the format names. Not all of them are qkv's, and some are narrower than a byte.
struct SafetensorsType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

const SafetensorsType* find_safetensors_type(std::string_view name) noexcept;
const SafetensorsType& safetensors_type(DType dtype) noexcept;

struct SafetensorsEntry {
  std::string name;
  const SafetensorsType* type = nullptr;
  Dims shape;
  std::int64_t begin = 0, end = 0;  // bytes, from the end of the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

// Reads the JSON of a header, and refuses whatever is not of the form in qkv/safetensors.h: other
// keys, a key given twice, numbers that are no integers of 0 or more. Offsets are not compared
// with anything yet.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::string_view where);

}  // namespace qkv::io
