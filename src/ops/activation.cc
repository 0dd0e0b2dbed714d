#include "ops/activation.h"

#include <algorithm>
#include <array>

#include "kernels/activation/activation.h"
#include "kernels/rows.h"
#include "kernels/simd/row_kernels.h"
#include "ops/compute.h"
#include "ops/lines.h"
#include "ops/refuse.h"

namespace qkv {
namespace {

constexpr std::array kNames = {"none", "relu", "gelu", "gelu_tanh", "quick_gelu", "silu"};

// Elements of a piece of work: some ten microseconds, so that threads are worth it only beyond it.
constexpr std::int64_t kPiece = 1 << 14;

// fn(first, n) for lines of n elements of views that all have f32 lines; false if they do not.
template <typename Fn>
bool for_lines(std::initializer_list<const TensorView*> views, DType dtype, int threads, Fn&& fn) {
  if (dtype != DType::f32) return false;
  for (const TensorView* view : views) {
    if (!has_f32_lines(*view)) return false;
  }
  const std::int64_t all = (*views.begin())->size();
  if (all == 0) return true;
  const std::int64_t length = line_length(views);
  const std::int64_t n = std::min(length, kPiece);
  const std::int64_t pieces = (length + n - 1) / n;  // of a line
  const std::int64_t count = all / length * pieces;
  const std::int64_t together = std::max<std::int64_t>(1, kPiece / n);
  parallel_ranges((count + together - 1) / together, 0, threads, [&](std::int64_t item, int) {
    for (std::int64_t i = item * together; i < std::min(count, (item + 1) * together); ++i) {
      const std::int64_t begin = i % pieces * n;
      fn(i / pieces * length + begin, std::min(n, length - begin));
    }
  });
  return true;
}

void check(const Refuse& refuse, Activation activation, std::initializer_list<TensorView> inputs,
           std::initializer_list<const char*> names, const MutableTensorView& out, int threads) {
  if (static_cast<std::size_t>(activation) >= kNames.size()) {
    refuse.value("activation", "one of the six", fmt::format("{}", static_cast<int>(activation)));
  }
  const TensorView& x = *inputs.begin();
  const char* const* name = names.begin();
  for (const TensorView& input : inputs) {
    refuse.unless_given(*name, input);
    refuse.unless_float(*name, input);
    if (input.rank() < 1) refuse.value(*name, "at least one dimension", "a scalar");
    refuse.unless_shape(*name, input, x.shape(), fmt::format("of {}", *names.begin()));
    ++name;
  }
  refuse.unless_shape("out", out, x.shape(), fmt::format("of {}", *names.begin()));
  refuse.unless_float("out", out);
  refuse.unless_writable("out", out);
  name = names.begin();
  for (const TensorView& input : inputs) {
    const bool same = input.data() == out.data() && input.dtype() == out.dtype() &&
                      input.strides() == out.strides();
    if (!same) refuse.if_overlap("out", out, *name, input);
    ++name;
  }
  if (threads < 0) refuse.value("threads", "0 (default) or more", fmt::format("{}", threads));
}

}  // namespace

std::string_view name_of(Activation activation) noexcept {
  return kNames[static_cast<std::size_t>(activation)];
}

void run_activation(Activation activation, const TensorView& x, const MutableTensorView& out,
                    DType dtype, int threads) {
  const RowKernels& kernels = row_kernels();
  if (for_lines({&x, &out}, dtype, threads, [&](std::int64_t first, std::int64_t n) {
        kernels.activate(activation, line_at(x, first), n, line_at(out, first));
      })) {
    return;
  }
  compute_items(row_count(x), dtype, {2, x.dim(-1)}, threads, [&](std::int64_t row, auto* scratch) {
    activation_reference_row(activation, x, out, row, scratch);
  });
}

void run_gated(Activation activation, const TensorView& gate, const TensorView& x,
               const MutableTensorView& out, DType dtype, int threads) {
  const RowKernels& kernels = row_kernels();
  if (for_lines({&gate, &x, &out}, dtype, threads, [&](std::int64_t first, std::int64_t n) {
        kernels.gated(activation, line_at(gate, first), line_at(x, first), n, line_at(out, first));
      })) {
    return;
  }
  compute_items(row_count(x), dtype, {2, x.dim(-1)}, threads, [&](std::int64_t row, auto* scratch) {
    gated_reference_row(activation, gate, x, out, row, scratch);
  });
}

void run_add(const TensorView& x, const TensorView& b, const MutableTensorView& out, DType dtype,
             int threads) {
  const RowKernels& kernels = row_kernels();
  if (for_lines({&x, &b, &out}, dtype, threads, [&](std::int64_t first, std::int64_t n) {
        kernels.add(line_at(x, first), line_at(b, first), n, line_at(out, first));
      })) {
    return;
  }
  compute_items(row_count(x), dtype, {2, x.dim(-1)}, threads, [&](std::int64_t row, auto* scratch) {
    add_reference_row(x, b, out, row, scratch);
  });
}

void activation_forward(Activation activation, const TensorView& x, const MutableTensorView& out,
                        int threads) {
  check(Refuse("activation_forward"), activation, {x}, {"x"}, out, threads);
  run_activation(activation, x, out, compute_dtype(x, Accumulate::natural), threads);
}

void gated_forward(Activation activation, const TensorView& gate, const TensorView& x,
                   const MutableTensorView& out, int threads) {
  check(Refuse("gated_forward"), activation, {gate, x}, {"gate", "x"}, out, threads);
  run_gated(activation, gate, x, out, compute_dtype(gate, Accumulate::natural), threads);
}

}  // namespace qkv
