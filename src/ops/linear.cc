#include "ops/linear.h"

#include <algorithm>
#include <cassert>

#include "base/cpu.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/packed.h"
#include "kernels/linear/panel.h"
#include "kernels/rows.h"
#include "kernels/simd/targets.h"
#include "ops/compute.h"
#include "ops/workspace.h"

namespace qkv {
namespace {

constexpr std::int64_t kTileRows = 64;  // enough to make the packing of the tile's weights cheap

}  // namespace

std::int64_t check_linear(const Refuse& refuse, std::string_view name, const LinearWeights& weights,
                          std::int64_t in) {
  const std::string weight = fmt::format("{}weight", name), bias = fmt::format("{}bias", name);
  refuse.unless_rank(weight, weights.weight, 2, "[out, in]");
  refuse.unless_float(weight, weights.weight);
  const std::int64_t out = weights.weight.dim(0);
  if (weights.weight.dim(1) != in) {
    refuse.value(weight, fmt::format("shape [out, {}] to fit its input", in),
                 to_string(weights.weight.shape()));
  }
  if (weights.bias.has_value()) {
    refuse.unless_float(bias, weights.bias);
    refuse.unless_shape(bias, weights.bias, {out}, "[out]");
  }
  return out;
}

namespace {

LinearProblem make_problem(const TensorView& x, const MutableTensorView& out,
                           const LinearEpilogue& epilogue) {
  LinearProblem p;
  p.x = x;
  p.y = out;
  p.rows = row_count(x);
  p.in = x.dim(-1);
  p.out = out.dim(-1);
  p.activation = epilogue.activation;
  p.residual = epilogue.residual;
  p.far = epilogue.far;
  return p;
}

void run_reference(const LinearProblem& p, DType dtype, int threads) {
  const std::int64_t row_tiles = (p.rows + kTileRows - 1) / kTileRows;
  const std::int64_t output_tiles = (p.out + kLinearOutputs - 1) / kLinearOutputs;
  compute_items(row_tiles * output_tiles, dtype, {kLinearScratchRows, p.in}, threads,
                [&](std::int64_t item, auto* scratch) {
                  LinearTile tile;
                  tile.row_begin = item % row_tiles * kTileRows;
                  tile.row_end = std::min(tile.row_begin + kTileRows, p.rows);
                  tile.output_begin = item / row_tiles * kLinearOutputs;
                  tile.output_end = std::min(tile.output_begin + kLinearOutputs, p.out);
                  linear_reference_tile(p, tile, scratch);
                });
}

void run_panels(const PanelProblem& p, DType dtype, SimdTarget target, int threads) {
  const PanelKernel& kernel = *find_panel_kernel(dtype, target);
  const PanelSplit split = split_panels(p, kernel, threads);
  // Kept from call to call: getting memory anew would cost a short call more than its arithmetic.
  thread_local Workspace own;
  linear_panels(p, kernel, split, own.of(split.threads * split.workspace));
}

std::int64_t line_multiple(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A product of bytes, and where they go: rows become bytes first, in memory behind that of the
// workers.
struct BytesRun {
  PanelBytes bytes;
  PanelProblem problem;
  const PanelKernel& kernel;
  PanelSplit split;
  std::int64_t workers, rows;  // bytes of either; what is left are those of x

  BytesRun(const PreparedLinear::Packed& packed, const LinearProblem& call, int threads)
      : problem(make_panel_problem(call)),
        kernel(*find_panel_kernel(DType::f32, packed.target)),
        rows(line_multiple(call.rows * static_cast<std::int64_t>(sizeof(ByteRow)))) {
    bytes.panels = static_cast<const std::int8_t*>(packed.weight.view().data());
    bytes.weight_scales = packed.scales.as<float>().data();
    bytes.weight_sums = packed.sums.as<std::int32_t>().data();
    bytes.steps = (call.in + 3) / 4;
    bytes.stride = line_multiple(call.in);
    bytes.vnni = packed.target == SimdTarget::avx512 && cpu_has("avx512vnni");
    problem.channels = false;
    problem.bytes = &bytes;
    split = split_panels(problem, kernel, threads);
    workers = split.threads * split.workspace;
  }
  BytesRun(const BytesRun&) = delete;
  BytesRun& operator=(const BytesRun&) = delete;

  std::int64_t memory() const { return workers + rows + problem.call.rows * bytes.stride; }
  void run(std::byte* at) {
    bytes.rows = reinterpret_cast<ByteRow*>(at + workers);
    bytes.x = reinterpret_cast<std::uint8_t*>(at + workers + rows);
    linear_panels(problem, kernel, split, at);
  }
};

PanelProblem make_panel_problem(const PreparedLinear::Packed& packed, const LinearProblem& call) {
  PanelProblem p = make_panel_problem(call);
  p.panels = reinterpret_cast<const std::byte*>(packed.weight.view().data());
  p.storage = packed.storage;
  p.panel_width = packed.width;
  return p;
}

}  // namespace

void run_linear(const LinearWeights& weights, const TensorView& x, const MutableTensorView& out,
                DType dtype, int threads, const LinearEpilogue& epilogue,
                const LinearChoice& choice) {
  LinearProblem p = make_problem(x, out, epilogue);
  p.weight = weights.weight;
  p.bias = weights.bias;
  if (choice.backend == LinearBackend::reference) return run_reference(p, dtype, threads);
  const SimdTarget target =
      choice.target == SimdTarget::automatic ? preferred_target() : choice.target;
  run_panels(make_panel_problem(p), dtype, target, threads);
}

void run_linear(const PreparedLinear& weights, const TensorView& x, const MutableTensorView& out,
                DType dtype, int threads, const LinearEpilogue& epilogue) {
  const PreparedLinear::Packed& packed = weights.packed();
  LinearProblem call = make_problem(x, out, epilogue);
  call.weight = packed.weight;
  call.bias = packed.bias;
  if (packed.backend == LinearBackend::reference) return run_reference(call, dtype, threads);
  if (packed.bytes) {
    BytesRun bytes(packed, call, threads);
    thread_local Workspace own;
    return bytes.run(own.of(bytes.memory()));
  }
  if (packed.onednn && dtype == DType::f32 && packed.onednn->run(call, threads)) return;
  run_panels(make_panel_problem(packed, call), dtype, packed.target, threads);
}

bool gives_some_outputs(const PreparedLinear& weights) {
  const PreparedLinear::Packed& packed = weights.packed();
  return packed.backend != LinearBackend::reference && !packed.bytes && !packed.onednn;
}

void run_some_outputs(const PreparedLinear& weights, std::int64_t first, const TensorView& x,
                      const MutableTensorView& out, DType dtype, int threads,
                      const LinearEpilogue& epilogue) {
  const PreparedLinear::Packed& packed = weights.packed();
  LinearProblem call = make_problem(x, out, epilogue);
  call.weight = packed.weight;
  if (packed.bias.view().has_value()) {
    call.bias = packed.bias.view().slice(0, first, first + call.out);
  }
  PanelProblem p = make_panel_problem(packed, call);
  p.first = first;
  assert(p.channels || first == 0);
  run_panels(p, dtype, packed.target, threads);
}

std::int64_t linear_workspace(const PreparedLinear& weights, std::int64_t rows, DType dtype,
                              bool channels, int threads) {
  const PreparedLinear::Packed& packed = weights.packed();
  if (packed.backend == LinearBackend::reference || packed.onednn) return 0;
  // Views of the shapes and strides, of memory that is never touched.
  alignas(64) static std::byte nothing[64];
  const auto view = [&](std::int64_t width) {
    return MutableTensorView(nothing, dtype, {rows, width},
                             channels ? Dims{1, rows} : Dims{width, 1});
  };
  LinearProblem call = make_problem(view(packed.in), view(packed.out), {});
  call.weight = packed.weight;
  if (packed.bytes) return BytesRun(packed, call, threads).memory();
  const PanelSplit split = split_panels(make_panel_problem(packed, call),
                                        *find_panel_kernel(dtype, packed.target), threads);
  return split.threads * split.workspace;
}

void check_linear_choice(const Refuse& refuse, const LinearChoice& choice) {
  const std::vector<SimdTarget>& known = simd_targets();
  if (choice.target != SimdTarget::automatic &&
      std::find(known.begin(), known.end(), choice.target) == known.end()) {
    refuse.value("target", "a target that this CPU has", name_of(choice.target));
  }
  if (choice.backend == LinearBackend::onednn && !OneDnnLinear::available()) {
    refuse.value("backend", "one that this build has", name_of(choice.backend));
  }
}

void check_linear_call(const Refuse& refuse, const TensorView& x, const MutableTensorView& out,
                       std::int64_t out_width, const LinearOptions& options) {
  Dims shape = x.shape();
  shape[-1] = out_width;
  refuse.unless_shape("out", out, shape, "[..., out]");
  refuse.unless_float("out", out);
  refuse.unless_writable("out", out);
  refuse.if_overlap("out", out, "x", x);
  const TensorView& residual = options.residual;
  if (residual.has_value()) {
    refuse.unless_float("residual", residual);
    refuse.unless_shape("residual", residual, shape, "[..., out]");
    const bool same = residual.data() == out.data() && residual.dtype() == out.dtype() &&
                      residual.strides() == out.strides();
    if (!same) refuse.if_overlap("out", out, "residual", residual);
  }
  if (options.threads < 0) {
    refuse.value("threads", "0 (default) or more", fmt::format("{}", options.threads));
  }
}

void check_linear_input(const Refuse& refuse, const TensorView& x) {
  refuse.unless_given("x", x);
  refuse.unless_float("x", x);
  if (x.rank() < 1) refuse.value("x", "at least one dimension [..., in]", "a scalar");
}

void linear_forward(const LinearWeights& weights, const TensorView& x, const MutableTensorView& out,
                    const LinearOptions& options) {
  constexpr Refuse refuse("linear_forward");
  check_linear_input(refuse, x);
  const std::int64_t width = check_linear(refuse, "", weights, x.dim(-1));
  check_linear_call(refuse, x, out, width, options);
  refuse.if_overlap("out", out, "weight", weights.weight);
  refuse.if_overlap("out", out, "bias", weights.bias);
  check_linear_choice(refuse, {options.backend, options.target});
  run_linear(weights, x, out, compute_dtype(x, options.accumulate), options.threads,
             {options.activation, options.residual}, {options.backend, options.target});
}

}  // namespace qkv
