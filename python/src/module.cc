// qkv._core: the engine as Python sees it. The package in python/qkv is what users import.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "arguments.h"
#include "base/cpu.h"
#include "bindings.h"
#include "qkv/error.h"
#include "qkv/threads.h"
#include "qkv/version.h"

namespace nb = nanobind;

namespace {

// qkv::Error becomes what a Python programmer expects; running out of memory is MemoryError.
void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const qkv::Error& error) {
    PyObject* type = PyExc_ValueError;
    if (error.kind() == qkv::ErrorKind::type) type = PyExc_TypeError;
    if (error.kind() == qkv::ErrorKind::io) type = PyExc_OSError;
    PyErr_SetString(type, error.what());
  }
}

void set_threads(nb::handle threads) { qkv::set_num_threads(qkv::python::read_threads(threads)); }

}  // namespace

NB_MODULE(_core, module) {
  nb::register_exception_translator(translate);
  module.attr("__version__") = qkv::version();
  module.def("num_threads", &qkv::num_threads);
  module.def("set_num_threads", &set_threads, nb::arg("threads").none());
  module.def("cpu_model", [] { return qkv::cpu_info().model; });
  qkv::python::bind_attention(module);
  qkv::python::bind_onnx(module);
  qkv::python::bind_plan(module);
  qkv::python::bind_blocks(module);
  qkv::python::bind_kv_cache(module);
  qkv::python::bind_gpt(module);
  qkv::python::bind_vision(module);
  qkv::python::bind_explain(module);
  qkv::python::bind_probes(module);
}
