#include "ops/activation.h"

#include "kernels/activation/activation.h"
#include "kernels/rows.h"
#include "ops/compute.h"

namespace qkv {

void run_silu(const TensorView& x, const MutableTensorView& out, DType dtype, int threads) {
  compute_items(row_count(x), dtype, {2, x.dim(-1)}, threads,
                [&](std::int64_t row, auto* scratch) { silu_reference_row(x, out, row, scratch); });
}

void run_add(const TensorView& x, const TensorView& b, const MutableTensorView& out, DType dtype,
             int threads) {
  compute_items(row_count(x), dtype, {2, x.dim(-1)}, threads, [&](std::int64_t row, auto* scratch) {
    add_reference_row(x, b, out, row, scratch);
  });
}

}  // namespace qkv
