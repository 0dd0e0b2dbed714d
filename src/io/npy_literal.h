#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::io {

// The dictionary in the header of a .npy file.
struct NpyDictionary {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Reads the one Python literal that NumPy writes there:
//
//   dict   = "{" [pair {"," pair} [","]] "}"       pair = string ":" value
//   value  = string | "True" | "False" | tuple     string in ' or ", without escapes
//   tuple  = "()" | "(" int "," ")" | "(" int {"," int} [","] ")"
//   int    = digits ["L"]                          (L: written by Python 2)
//
// with exactly the keys descr, fortran_order and shape, each once, in any order.
NpyDictionary parse_npy_dictionary(std::string_view text, std::string_view where);

}  // namespace qkv::io
