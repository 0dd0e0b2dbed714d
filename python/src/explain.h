#pragma once

#include <nanobind/nanobind.h>

#include "array.h"
#include "explain/explanation.h"

namespace qkv::python {

// What python/qkv/_explain.py makes an Explanation of, in every language at once: block; title and
// intro {language: text}; steps [(name, formula, array, axes, rows, cols, shares, {language:
// (title, meaning)})]; text {language: all of it as for a terminal}.
nanobind::dict to_python(const Explanation& explanation, Framework framework);

}  // namespace qkv::python
