// qkv._core.plan, info: what a call would do, and what there is to do it with. For users:
// python/qkv/_plan.py.

#include "qkv/plan.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "arguments.h"
#include "array.h"
#include "base/cpu.h"
#include "bindings.h"
#include "options.h"
#include "qkv/threads.h"
#include "qkv/version.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

SimdTarget read_target(nb::handle target) {
  if (target.is_none()) return SimdTarget::automatic;
  constexpr SimdTarget all[] = {SimdTarget::scalar, SimdTarget::sse4, SimdTarget::avx2,
                                SimdTarget::avx512, SimdTarget::neon};
  return all[read_word(
      "target", target,
      {name_of(all[0]), name_of(all[1]), name_of(all[2]), name_of(all[3]), name_of(all[4])})];
}

DType read_dtype(nb::handle dtype) {
  constexpr DType all[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
  return all[read_word("dtype", dtype, {"f32", "f64", "f16", "bf16"})];
}

// The shape [B, H, T, D] of an array, or four numbers.
Dims read_shape(std::string_view name, nb::handle given, DType& dtype) {
  Dims shape;
  if (nb::isinstance<nb::tuple>(given) || nb::isinstance<nb::list>(given)) {
    for (nb::handle extent : given) shape.push_back(read_integer(name, extent));
  } else {
    if (given.is_none()) refuse_type(name, "an array or its shape", "None");
    const Input input = read_floats(name, given);
    shape = input.view.shape();
    dtype = input.view.dtype();
  }
  if (shape.rank() != 4) {
    refuse_value(name, "4 dimensions [B, H, T, D]", "shape " + to_string(shape));
  }
  return shape;
}

AttentionShape read_shapes(nb::handle query, nb::handle key, nb::handle value, DType dtype) {
  DType other = dtype;
  const Dims q = read_shape("query", query, dtype);
  const Dims k = read_shape("key", key, other), v = read_shape("value", value, other);
  if (k[0] != q[0] || k[3] != q[3]) {
    refuse_value("key", "shape " + to_string(Dims{q[0], k[1], k[2], q[3]}), to_string(k));
  }
  if (v[0] != k[0] || v[1] != k[1] || v[2] != k[2]) {
    refuse_value("value", "shape " + to_string(Dims{k[0], k[1], k[2], v[3]}), to_string(v));
  }
  return {q[0], q[1], k[1], q[2], k[2], q[3], v[3], dtype};
}

nb::dict to_dict(const AttentionPlan& plan) {
  nb::dict result;
  result["kernel"] = nb::cast(name_of(plan.kernel));
  result["target"] = nb::cast(name_of(plan.target));
  result["threads"] = plan.threads;
  result["accumulate"] = nb::cast(name_of(plan.accumulate));
  result["lanes"] = plan.lanes;
  result["tile"] = nb::make_tuple(plan.tile_vectors, plan.tile_rows);
  result["key_block"] = plan.key_block;
  result["unit_queries"] = plan.unit_queries;
  result["units"] = plan.units;
  result["visible"] = plan.visible;
  result["flops"] = plan.flops;
  result["bytes"] = plan.bytes;
  result["workspace"] = plan.workspace;
  result["notes"] = nb::tuple(nb::cast(plan.notes));
  result["text"] = nb::cast(to_string(plan));
  return result;
}

nb::dict plan(nb::handle query, nb::handle key, nb::handle value, const nb::dict& options,
              nb::handle dtype, nb::handle target, nb::handle threads) {
  try {
    const OptionArguments arguments(option_handles(options));
    const AttentionShape shape = read_shapes(query, key, value, read_dtype(dtype));
    return to_dict(
        plan_attention(shape, arguments.options,
                       {.target = read_target(target), .threads = read_threads(threads)}));
  } catch (const Error& error) {
    rethrow_as("qkv.plan", error);
  }
}

nb::dict info() {
  nb::dict result;
  result["version"] = version();
  result["cpu"] = nb::cast(cpu_info().model);
  nb::list targets;
  for (const SimdTarget target : simd_targets()) targets.append(nb::cast(name_of(target)));
  result["targets"] = nb::tuple(targets);
  result["threads"] = num_threads();
#if QKV_THREADS_OPENMP
  result["threading"] = "openmp";
#else
  result["threading"] = "std";
#endif
  result["projection"] = "qkv";  // the linear maps of blocks: our own; no oneDNN is used
#if QKV_WITH_NPZ
  result["npz"] = true;
#else
  result["npz"] = false;
#endif
  return result;
}

}  // namespace

void bind_plan(nb::module_& module) {
  module.def("plan", &plan, nb::arg("query").none(), nb::arg("key").none(), nb::arg("value").none(),
             nb::arg("options"), nb::arg("dtype").none(), nb::arg("target").none(),
             nb::arg("threads").none(), "The engine behind qkv.plan.");
  module.def("info", &info, "The engine behind qkv.info.");
}

}  // namespace qkv::python
