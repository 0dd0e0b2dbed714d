#include "kernels/rope/rope.h"
#include "kernels/rows.h"

namespace qkv {

template <typename Real>
void rope_row(const Real* x, const Real* cos, const Real* sin, std::int64_t half, std::int64_t n,
              RopePairing pairing, Real* y) noexcept {
  const bool interleaved = pairing == RopePairing::interleaved;
  const std::int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
  for (std::int64_t i = 0; i < half; ++i) {
    const Real a = x[i * step], b = x[i * step + apart];
    y[i * step] = a * cos[i] - b * sin[i];
    y[i * step + apart] = a * sin[i] + b * cos[i];
  }
  for (std::int64_t c = 2 * half; c < n; ++c) y[c] = x[c];
}

template <typename Real>
void rope_reference_token(const RopeProblem& p, std::int64_t item, Real* scratch) noexcept {
  const std::int64_t T = p.x.dim(2), D = p.x.dim(3), half = p.cos.dim(-1);
  const std::int64_t b = item / T, t = item % T;
  const auto row_of = [&](const TensorView& table) {
    if (!p.positions.has_value()) return b * table.stride(0) + t * table.stride(1);
    const std::int64_t at = b * p.positions.stride(0) + t * p.positions.stride(1);
    return load_integer(p.positions, at) * table.stride(0);
  };
  Real *cos = scratch + D, *sin = cos + half;
  gather(p.cos, row_of(p.cos), p.cos.stride(-1), half, cos);
  gather(p.sin, row_of(p.sin), p.sin.stride(-1), half, sin);
  for (std::int64_t h = 0; h < p.x.dim(1); ++h) {
    const auto start = [&](const TensorView& view) {
      return b * view.stride(0) + h * view.stride(1) + t * view.stride(2);
    };
    gather(p.x, start(p.x), p.x.stride(3), D, scratch);
    rope_row(scratch, cos, sin, half, D, p.pairing, scratch);
    scatter(scratch, D, p.y, start(p.y), p.y.stride(3));
  }
}

template void rope_row(const float*, const float*, const float*, std::int64_t, std::int64_t,
                       RopePairing, float*) noexcept;
template void rope_row(const double*, const double*, const double*, std::int64_t, std::int64_t,
                       RopePairing, double*) noexcept;
template void rope_reference_token(const RopeProblem&, std::int64_t, float*) noexcept;
template void rope_reference_token(const RopeProblem&, std::int64_t, double*) noexcept;

}  // namespace qkv
