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
    if (known) continue;
    for (const std::string_view other :
         {"layout", "out", "return_weights", "return_lse", "threads"}) {
      if (name != other) continue;
      refuse_type(name,
                  "an option of the scores (mask, bias, causal, offset, window, prefix, scale, "
                  "softcap, alibi, key_lengths, query_starts, key_starts, sinks)",
                  "one that is not taken here");
    }
    refuse_type(name, "an option of qkv.attention", "an unknown keyword argument");
  }
  return all;
}

OptionArguments::OptionArguments(const OptionHandles& given) {
  keep(options.mask, "mask", given.mask, read_array);
  keep(options.bias, "bias", given.bias, read_array);
  options.causal = read_causal(given.causal);
  options.window = read_window(given.window);
  keep(options.prefix, "prefix", given.prefix, read_integers);
  keep(options.key_lengths, "key_lengths", given.key_lengths, read_integers);
  options.scale = read_number("scale", given.scale);
  options.softcap = read_number("softcap", given.softcap);
  keep(options.alibi, "alibi", given.alibi, read_numbers);
  keep(options.sinks, "sinks", given.sinks, read_numbers);
  keep(options.query_starts, "query_starts", given.query_starts, read_integers);
  keep(options.key_starts, "key_starts", given.key_starts, read_integers);
  if (given.offset.is_none()) return;
  if (is_scalar(given.offset)) {
    options.offset = read_integer("offset", given.offset);
  } else {
    keep(options.offsets, "offset", given.offset, read_integers);
  }
}

void OptionArguments::keep(TensorView& option, std::string_view name, nb::handle given,
                           Input (*read)(std::string_view, nb::handle)) {
  if (given.is_none()) return;
  kept_.push_back(read(name, given));
  option = kept_.back().view;
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
