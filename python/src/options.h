#pragma once

// The options of attention as Python's arguments: of qkv.attention, qkv.plan and the blocks.

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <vector>

#include "array.h"
#include "qkv/attention.h"
#include "qkv/error.h"

namespace qkv::python {

// What was given for each; None where nothing was.
struct OptionHandles {
  nanobind::handle mask = Py_None, bias = Py_None, causal = Py_None, offset = Py_None,
                   window = Py_None, prefix = Py_None, scale = Py_None, softcap = Py_None,
                   alibi = Py_None, key_lengths = Py_None, query_starts = Py_None,
                   key_starts = Py_None, sinks = Py_None;
};

// Keyword arguments, by name. Refuses one that is no option.
OptionHandles option_handles(const nanobind::dict& given);

// The options, and what keeps their elements alive.
class OptionArguments {
 public:
  explicit OptionArguments(const OptionHandles& given);

  AttentionOptions options;

 private:
  void keep(TensorView& option, std::string_view name, nanobind::handle given,
            Input (*read)(std::string_view, nanobind::handle));
  std::vector<Input> kept_;
};

// The engine's words for its C++ arguments, in Python's: "offsets[1]" is "offset[1]".
std::string python_name(const std::string& subject);

// The same error, of the function `where` that the user called.
[[noreturn]] void rethrow_as(std::string_view where, const Error& error);

}  // namespace qkv::python
