#include <algorithm>

#include "kernels/conv/depthwise.h"
#include "kernels/rows.h"

namespace qkv {

template <typename Real>
void depthwise_reference_plane(const DepthwiseProblem& p, std::int64_t b, std::int64_t c,
                               Real* scratch) noexcept {
  const std::int64_t H = p.x.dim(2), W = p.x.dim(3), padded = W + 2;
  Real* lines = scratch;  // the three lines that reach h, with a zero at each end
  Real* y = scratch + 3 * padded;
  Real taps[3][3];
  for (std::int64_t u = 0; u < 3; ++u) {
    gather(p.weight, c * p.weight.stride(0) + u * p.weight.stride(1), p.weight.stride(2), 3,
           taps[u]);
  }
  const Real bias = p.bias.has_value() ? load_real<Real>(p.bias, c * p.bias.stride(0)) : Real{0};
  const std::int64_t x_plane = b * p.x.stride(0) + c * p.x.stride(1);
  const std::int64_t y_plane = b * p.y.stride(0) + c * p.y.stride(1);
  for (std::int64_t h = 0; h < H; ++h) {
    std::fill(lines, lines + 3 * padded, Real{0});
    for (std::int64_t u = 0; u < 3; ++u) {
      const std::int64_t from = h + u - 1;
      if (from < 0 || from >= H) continue;
      gather(p.x, x_plane + from * p.x.stride(2), p.x.stride(3), W, lines + u * padded + 1);
    }
    for (std::int64_t w = 0; w < W; ++w) {
      Real sum = 0;
      for (std::int64_t u = 0; u < 3; ++u) {
        for (std::int64_t v = 0; v < 3; ++v) sum += lines[u * padded + w + v] * taps[u][v];
      }
      y[w] = sum + bias;
    }
    scatter(y, W, p.y, y_plane + h * p.y.stride(2), p.y.stride(3));
  }
}

template void depthwise_reference_plane(const DepthwiseProblem&, std::int64_t, std::int64_t,
                                        float*) noexcept;
template void depthwise_reference_plane(const DepthwiseProblem&, std::int64_t, std::int64_t,
                                        double*) noexcept;

}  // namespace qkv
