#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "array.h"
#include "explain/explanation.h"
#include "interrupt.h"

namespace qkv::python {

// What python/qkv/_explain.py makes an Explanation of, in every language at once: block; title and
// intro {language: text}; steps [(name, formula, array, axes, rows, cols, shares, {language:
// (title, meaning)})]; text {language: all of it as for a terminal}.
nanobind::dict to_python(const Explanation& explanation, Framework framework);

// explain(arguments…) without the GIL, and Ctrl-C ends it.
template <typename Fn, typename... Arguments>
Explanation interruptibly(Fn&& explain, Arguments&&... arguments) {
  const nanobind::gil_scoped_release released;
  const SignalWatch watch;
  return explain(std::forward<Arguments>(arguments)...);
}

}  // namespace qkv::python
