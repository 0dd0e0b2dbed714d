#pragma once

// Arrays of Python as views, and views as arrays of Python: without a copy either way.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string_view>

#include "qkv/tensor.h"

namespace qkv::python {

// Whose arrays results are: the query's library, or NumPy's for one that is not known.
enum class Framework : std::uint8_t { numpy, torch, jax };

Framework framework_of(nanobind::handle array);

// An argument, as the engine sees it. Holds what keeps its elements alive: the caller's array, or
// numbers of our own when it was given as a list.
struct Input {
  TensorView view;
  nanobind::object array;
  nanobind::ndarray<nanobind::ro> lent;
  Tensor owned;
};

// An array through DLPack or the buffer protocol; of any dtype and strides that the engine knows,
// read-only or not. None is no array: a view without value. `name` is the argument's, for errors.
Input read_array(std::string_view name, nanobind::handle array);

// The same where only numbers with a fraction make sense.
Input read_floats(std::string_view name, nanobind::handle array);

// The same for longer than a call: the elements stay, even if the array is given others.
Input keep_array(std::string_view name, nanobind::handle array);

// The caller's own array, to be written to.
struct Borrowed {
  MutableTensorView view;
  nanobind::ndarray<> lent;
};

Borrowed borrow_output(std::string_view name, nanobind::handle array);

// A new, dense array of a framework, to be filled through `view` and then handed over by `take`.
class Output {
 public:
  Output() = default;  // no output: view without value
  Output(Framework framework, DType dtype, const Dims& shape);

  const MutableTensorView& view() const { return view_; }
  nanobind::object take();

 private:
  MutableTensorView view_;
  nanobind::object array_;  // NumPy's and PyTorch's own, allocated by them
  Tensor owned_;            // for JAX, whose arrays cannot be written: ours, wrapped when done
};

}  // namespace qkv::python
