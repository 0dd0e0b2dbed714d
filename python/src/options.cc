#include "options.h"

#include <string_view>
#include <utility>

#include "arguments.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {

OptionHandles option_handles(const nb::dict& given) {
  OptionHandles all;
  const std::pair<std::string_view, nb::handle*> places[] = {
      {"mask", &all.mask},
      {"bias", &all.bias},
      {"causal", &all.causal},
      {"offset", &all.offset},
      {"window", &all.window},
      {"prefix", &all.prefix},
      {"scale", &all.scale},
      {"softcap", &all.softcap},
      {"alibi", &all.alibi},
      {"key_lengths", &all.key_lengths},
      {"query_starts", &all.query_starts},
      {"key_starts", &all.key_starts},
      {"sinks", &all.sinks},
  };
  for (const auto& [key, value] : given) {
    const std::string_view name = nb::borrow<nb::str>(key).c_str();
    bool known = false;
    for (const auto& [option, place] : places) {
      if (option != name) continue;
      *place = value;
      known = true;
    }
    if (!known) refuse_type(name, "an option of qkv.attention", "an unknown keyword argument");
  }
  return all;
}

OptionArguments::OptionArguments(const OptionHandles& given) {
  options.mask = keep(0, read_array("mask", given.mask));
  options.bias = keep(1, read_array("bias", given.bias));
  options.causal = read_causal(given.causal);
  options.window = read_window(given.window);
  options.prefix = keep(2, read_integers("prefix", given.prefix));
  options.key_lengths = keep(3, read_integers("key_lengths", given.key_lengths));
  options.scale = read_number("scale", given.scale);
  options.softcap = read_number("softcap", given.softcap);
  options.alibi = keep(5, read_numbers("alibi", given.alibi));
  options.sinks = keep(6, read_numbers("sinks", given.sinks));
  options.query_starts = keep(7, read_integers("query_starts", given.query_starts));
  options.key_starts = keep(8, read_integers("key_starts", given.key_starts));
  if (given.offset.is_none()) return;
  if (is_scalar(given.offset)) {
    options.offset = read_integer("offset", given.offset);
  } else {
    options.offsets = keep(4, read_integers("offset", given.offset));
  }
}

TensorView OptionArguments::keep(int place, Input&& input) {
  kept_[place] = std::move(input);
  return kept_[place].view;
}

std::string python_name(const std::string& subject) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {"offsets", "offset"},        {"rows", "return_weights"},    {"weights", "return_weights"},
      {"window.left", "window[0]"}, {"window.right", "window[1]"}, {"lse", "return_lse"}};
  for (const auto& [cpp, python] : names) {
    const bool starts = subject.starts_with(cpp);
    if (starts && (subject.size() == cpp.size() || subject[cpp.size()] == '[')) {
      return std::string(python) + subject.substr(cpp.size());
    }
  }
  return subject;
}

void rethrow_as(std::string_view where, const Error& error) {
  throw Error(error.kind(), where, python_name(error.subject()), error.expected(), error.found());
}

}  // namespace qkv::python
