#pragma once

// How an operator refuses an argument, in one line each.

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/overlap.h"
#include "qkv/error.h"
#include "qkv/tensor.h"

namespace qkv {

// The checks of one operator; `where` is its name and starts every message.
class Refuse {
 public:
  explicit constexpr Refuse(std::string_view where) : where_(where) {}

  [[noreturn]] void value(std::string_view subject, std::string_view expected,
                          std::string_view found) const {
    throw Error(ErrorKind::value, where_, subject, expected, found);
  }

  void unless_given(std::string_view subject, const TensorView& view) const {
    if (!view.has_value()) value(subject, "a tensor", "none");
  }

  void unless_rank(std::string_view subject, const TensorView& view, int rank,
                   std::string_view axes) const {
    unless_given(subject, view);
    if (view.rank() != rank) {
      value(subject, fmt::format("{} dimensions {}", rank, axes),
            fmt::format("shape {}", to_string(view.shape())));
    }
  }

  void unless_shape(std::string_view subject, const TensorView& view, const Dims& shape,
                    std::string_view axes) const {
    unless_given(subject, view);
    if (!(view.shape() == shape)) {
      value(subject, fmt::format("shape {} {}", axes, to_string(shape)), to_string(view.shape()));
    }
  }

  void unless_dtype(std::string_view subject, const TensorView& view,
                    std::initializer_list<DType> allowed) const {
    for (DType dtype : allowed) {
      if (view.dtype() == dtype) return;
    }
    std::string names;
    for (DType dtype : allowed) {
      if (names.find(name_of(dtype)) != std::string::npos) continue;  // q's dtype may be f32
      names += fmt::format("{}{}", names.empty() ? "" : " or ", name_of(dtype));
    }
    throw Error(ErrorKind::type, where_, subject, fmt::format("dtype {}", names),
                name_of(view.dtype()));
  }

  void unless_float(std::string_view subject, const TensorView& view) const {
    unless_dtype(subject, view, {DType::f32, DType::f64, DType::f16, DType::bf16});
  }

  // Outputs may not reach one byte by two indices.
  void unless_writable(std::string_view subject, const MutableTensorView& view) const {
    if (overlaps_itself(view)) {
      value(subject, "strides that give each element a place of its own",
            fmt::format("shape {} with strides {}", to_string(view.shape()),
                        to_string(view.strides())));
    }
  }

  void if_overlap(std::string_view subject, const MutableTensorView& output,
                  std::string_view other_subject, const TensorView& other) const {
    if (output.has_value() && other.has_value() && views_overlap(output, other)) {
      value(subject, fmt::format("memory of its own, apart from {}", other_subject),
            "bytes that both of them use");
    }
  }

 private:
  std::string_view where_;
};

}  // namespace qkv
