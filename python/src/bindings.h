#pragma once

// What each file of the module adds to it.

#include <nanobind/nanobind.h>

namespace qkv::python {

void bind_attention(nanobind::module_& module);
void bind_onnx(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_blocks(nanobind::module_& module);
void bind_kv_cache(nanobind::module_& module);
void bind_gpt(nanobind::module_& module);
void bind_vision(nanobind::module_& module);
void bind_explain(nanobind::module_& module);
void bind_probes(nanobind::module_& module);

}  // namespace qkv::python
