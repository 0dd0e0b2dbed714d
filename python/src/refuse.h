#pragma once

// How the module refuses an argument before the engine sees it: in the engine's words.

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "qkv/error.h"

namespace qkv::python {

// Errors name the function that the user called; the binding that is running sets it.
[[noreturn]] inline void refuse_value(std::string_view subject, std::string_view expected,
                                      std::string_view found) {
  throw Error(ErrorKind::value, "qkv", subject, expected, found);
}

[[noreturn]] inline void refuse_type(std::string_view subject, std::string_view expected,
                                     std::string_view found) {
  throw Error(ErrorKind::type, "qkv", subject, expected, found);
}

inline std::string class_name(nanobind::handle object) {
  return nanobind::str(nanobind::getattr(object.type(), "__name__")).c_str();
}

}  // namespace qkv::python
