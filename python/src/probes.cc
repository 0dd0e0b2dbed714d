// qkv._core.fma_probe, bandwidth_probe: the machine's limits, for bench/compare.

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bench/probe/probe.h"
#include "bindings.h"

namespace nb = nanobind;

namespace qkv::python {

void bind_probes(nb::module_& module) {
  module.def("probe_targets", &bench::probe_targets,
             "SIMD targets that fma_probe knows on this CPU, best first.");
  module.def("fma_probe", &bench::fma_probe, nb::arg("threads") = 1, nb::arg("target") = "",
             nb::call_guard<nb::gil_scoped_release>(),
             "f32 multiply-adds of a SIMD target, in GFLOP/s of all threads.");
  module.def("bandwidth_probe", &bench::bandwidth_probe, nb::arg("threads") = 1,
             nb::call_guard<nb::gil_scoped_release>(),
             "Reads from memory, in GB/s of all threads.");
}

}  // namespace qkv::python
