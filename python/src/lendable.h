#pragma once

// Arrays that must not be read as they stand in memory: refused, with what to do about it.

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace qkv::python {

// Names that are looked up in every call, made once.
inline PyObject* interned(PyObject*& place, const char* name) {
  if (place == nullptr) place = PyUnicode_InternFromString(name);
  return place;
}

// A tensor of PyTorch whose elements stand in memory with the other sign (the imaginary part of a
// conjugate).
void refuse_negative(std::string_view name, nanobind::handle tensor);

// A tensor of PyTorch that a derivative is asked of: results carry none. It may require a gradient
// while gradients are off; forward mode, which no_grad() does not turn off, is refused always.
void refuse_derivatives(std::string_view name, nanobind::handle tensor);

// A NumPy array with a mask of its own, which would be passed over, if it hides anything.
void refuse_masked(std::string_view name, nanobind::handle array);

// Why a tensor of PyTorch has no elements to lend; empty if it is for none of the known reasons.
std::string why_not_lent(nanobind::handle tensor);

}  // namespace qkv::python
