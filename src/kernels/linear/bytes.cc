#include "kernels/linear/bytes.h"

#include <cmath>

#include "base/element.h"

namespace qkv {

void quantize_panel(const TensorView& weight, std::int64_t begin, std::int64_t width,
                    std::int8_t* panel, float* scales, std::int32_t* sums) noexcept {
  const std::int64_t out = weight.dim(0), in = weight.dim(1);
  const std::int64_t steps = (in + 3) / 4;
  std::fill(panel, panel + steps * width * 4, std::int8_t{0});
  std::fill(scales, scales + width, 0.0f);
  std::fill(sums, sums + width, 0);
  for (std::int64_t n = 0; n < width && begin + n < out; ++n) {
    const auto at = [&](std::int64_t i) {
      return load_real<float>(weight, (begin + n) * weight.stride(0) + i * weight.stride(1));
    };
    float largest = 0;
    bool finite = true;
    for (std::int64_t i = 0; i < in; ++i) {
      const float size = std::abs(at(i));
      finite = finite && std::isfinite(size);
      largest = std::max(largest, size);
    }
    // An output with a weight that is not finite gives NaN.
    scales[n] = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
    if (!finite || scales[n] == 0) continue;
    for (std::int64_t i = 0; i < in; ++i) {
      const long q = std::clamp(std::lrint(at(i) / scales[n]), -127L, 127L);
      panel[(i / 4 * width + n) * 4 + i % 4] = static_cast<std::int8_t>(q);
      sums[n] += static_cast<std::int32_t>(q);
    }
  }
}

}  // namespace qkv
