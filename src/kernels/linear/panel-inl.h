// The panel kernel (see panel.h). Included once for each target.

#if defined(QKV_KERNELS_LINEAR_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_LINEAR_PANEL_INL_H_
#undef QKV_KERNELS_LINEAR_PANEL_INL_H_
#else
#define QKV_KERNELS_LINEAR_PANEL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/activation/activation-inl.h"
#include "kernels/activation/activation.h"
#include "kernels/linear/bytes-inl.h"
#include "kernels/linear/panel.h"
#include "kernels/linear/panel_tile-inl.h"
#include "kernels/linear/panel_workspace.h"
#include "kernels/rows.h"
#include "kernels/simd/matrix-inl.h"
#include "kernels/simd/prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename Real>
constexpr int panel_lanes() {
  return static_cast<int>(hn::MaxLanes(hn::ScalableTag<Real>()));
}

inline const void* panel_element(const TensorView& view, std::int64_t offset) {
  return static_cast<const std::byte*>(view.data()) +
         offset * static_cast<std::int64_t>(size_of(view.dtype()));
}

// A pointer to Real where elements are that, lie where a Real may, and are next to each other.
template <typename Real>
const Real* dense_row(const TensorView& view, std::int64_t offset, std::int64_t step) {
  if (view.dtype() != dtype_of<Real> || step != 1) return nullptr;
  const void* at = panel_element(view, offset);
  return reinterpret_cast<std::uintptr_t>(at) % alignof(Real) == 0 ? static_cast<const Real*>(at)
                                                                   : nullptr;
}

// In f64 element by element: it is there to be exact.
template <Activation kind, class D>
HWY_INLINE hn::Vec<D> activate_sums(D d, hn::Vec<D> x) {
  using Real = hn::TFromD<D>;
  if constexpr (sizeof(Real) == 4 || kind == Activation::none) {
    return activate<kind>(d, x);
  } else {
    HWY_ALIGN Real lanes[hn::MaxLanes(d)];
    hn::Store(x, d, lanes);
    for (Real& lane : lanes) lane = qkv::activate(kind, lane);
    return hn::Load(d, lanes);
  }
}

template <typename Real>
class PanelRun {
  using D = hn::ScalableTag<Real>;
  static constexpr D d{};
  static constexpr std::int64_t N = hn::MaxLanes(D()), W = kPanelVectors * N;

 public:
  PanelRun(const PanelProblem& p, const PanelUnit& unit, void* workspace)
      : p_(p),
        c_(p.call),
        unit_(unit),
        w_(p, W, unit.row_count, workspace),
        ahead_(unit.ahead, unit.ahead_bytes, steps_of_tiles()) {}

  void run() {
    if constexpr (std::is_same_v<Real, float>) {
      if (p_.bytes != nullptr) return run_bytes();
    }
    if (p_.channels) {
      find_pixels();
    } else {
      find_rows();
    }
    const std::int64_t depth = panel_depth(p_, W);
    for (std::int64_t o = unit_.output_begin; o < unit_.output_end; o += outputs_) {
      outputs_ = std::min(W - (p_.first + o) % W, unit_.output_end - o);
      enter_panel(o);
      std::int64_t i = 0;
      do {
        product(o, i, std::min(depth, c_.in - i));
        i += depth;
      } while (i < c_.in);
    }
  }

 private:
  static std::int64_t vectors_of(std::int64_t count) { return (count + N - 1) / N; }
  static bool ends_with_half(std::int64_t lanes) { return kHasHalves<Real> && lanes % N == N / 2; }

  // That its tiles take, all together.
  std::int64_t steps_of_tiles() const {
    const std::int64_t panels = (unit_.output_end - unit_.output_begin + W - 1) / W;
    const std::int64_t lines = p_.channels ? W : unit_.row_count;
    const std::int64_t tiles = (lines + kPanelRows - 1) / kPanelRows;
    return panels * tiles * (p_.bytes != nullptr ? p_.bytes->steps : c_.in);
  }

  // x where it lies, or a dense copy of its rows, run by run.
  void find_rows() {
    x_ = w_.x;
    x_stride_ = c_.in;
    if (w_.x_in_place) {
      x_ = static_cast<const Real*>(panel_element(c_.x, unit_.row_begin * p_.x_step));
      x_stride_ = p_.x_step;
      return;
    }
    for (std::int64_t r = 0, count = 0; r < unit_.row_count; r += count) {
      const std::int64_t row = unit_.row_begin + r;
      count = std::min(p_.run_rows - row % p_.run_rows, unit_.row_count - r);
      const ForeignMatrix rows{panel_element(c_.x, row_offset(c_.x, row)), c_.x.dtype(), p_.x_step,
                               c_.x.stride(-1)};
      read_matrix(rows, count, c_.in, w_.x + r * c_.in, c_.in, w_.stage);
    }
  }

  // Full vectors of pixels (the last one may be a half) are read where they lie, unless their lines
  // would meet in the same sets of the cache; else as [in][W], where lanes past the last pixel are
  // 0.
  void find_pixels() {
    const std::int64_t count = unit_.row_count;
    const std::int64_t lanes = ends_with_half(count) ? count : vectors_of(count) * N;
    const std::int64_t offset = row_offset(c_.x, unit_.run * p_.run_rows + unit_.row_begin);
    x_stride_ = c_.x.stride(-1);
    if (count == lanes && x_stride_ * static_cast<std::int64_t>(sizeof(Real)) % 1024 != 0) {
      x_ = dense_row<Real>(c_.x, offset, p_.x_step);
      if (x_ != nullptr) return;
    }
    x_ = w_.x;
    x_stride_ = W;
    const ForeignMatrix pixels{panel_element(c_.x, offset), c_.x.dtype(), c_.x.stride(-1),
                               p_.x_step};
    read_matrix(pixels, c_.in, count, w_.x, W, w_.stage);
    for (std::int64_t i = 0; count < lanes && i < c_.in; ++i) {
      std::fill(w_.x + i * W + count, w_.x + i * W + lanes, Real{0});
    }
  }

  // w_.panel = the weights of outputs_ outputs from o on × [i, i + depth), as Real
  void read_panel(std::int64_t o, std::int64_t i, std::int64_t depth) {
    if (p_.panels == nullptr) {
      const TensorView& w = c_.weight;
      const ForeignMatrix from{panel_element(w, o * w.stride(0) + i * w.stride(1)), w.dtype(),
                               w.stride(1), w.stride(0)};
      read_matrix(from, depth, outputs_, w_.panel, W, w_.stage);
      const std::int64_t lanes = vectors_of(outputs_) * N;
      for (std::int64_t k = 0; outputs_ < lanes && k < depth; ++k) {
        std::fill(w_.panel + k * W + outputs_, w_.panel + k * W + lanes, Real{0});
      }
      return;
    }
    // Panels that were packed for the other type may have another width.
    const std::int64_t width = p_.panel_width;
    for (std::int64_t c = 0, part = 0; c < outputs_; c += part) {
      const std::int64_t output = p_.first + o + c;
      const std::int64_t at = (output / width * c_.in + i) * width + output % width;
      part = std::min(W - c, width - output % width);
      const ForeignMatrix from{p_.panels + at * static_cast<std::int64_t>(size_of(p_.storage)),
                               p_.storage, width, 1};
      read_matrix(from, depth, part, w_.panel + c, W, w_.stage);
    }
  }

  void run_bytes() {
    const PanelBytes& b = *p_.bytes;
    for (std::int64_t o = unit_.output_begin; o < unit_.output_end; o += W) {
      outputs_ = std::min(W, c_.out - o);
      const std::uint8_t* x = b.x + unit_.row_begin * b.stride;
      byte_rows(b.vnni, x, b.stride, b.panels + o * b.steps * 4, b.steps, unit_.row_count,
                reinterpret_cast<std::int32_t*>(w_.sums), ahead_);
      for (std::int64_t r = 0; r < unit_.row_count; ++r) {
        const ByteRow& row = b.rows[unit_.row_begin + r];
        scale_sums(row.zero, row.scale, b.weight_sums + o, b.weight_scales + o, w_.sums + r * W);
      }
      enter_panel(o);
      finish(o, 0, unit_.row_count);
    }
  }

  template <typename Stored>
  const Stored* stored_panel(std::int64_t o, std::int64_t i) const {
    const std::int64_t output = p_.first + o;
    return reinterpret_cast<const Stored*>(p_.panels) + (output / W * c_.in + i) * W + output % W;
  }

  void product(std::int64_t o, std::int64_t i, std::int64_t depth) {
    const bool whole = p_.panels != nullptr && p_.panel_width == W;
    if constexpr (std::is_same_v<Real, float>) {
      // Few rows: weights are read once, and converted on their way to the registers.
      if (whole && !p_.channels && unit_.row_count <= kPanelRows) {
        if (p_.storage == DType::bf16) return add(stored_panel<bf16>(o, i), o, i, depth);
        if (p_.storage == DType::f16 && kConvertsF16) {
          return add(stored_panel<f16>(o, i), o, i, depth);
        }
      }
    }
    if (whole && p_.storage == dtype_of<Real>) return add(stored_panel<Real>(o, i), o, i, depth);
    read_panel(o, i, depth);
    add(w_.panel, o, i, depth);
  }

  // What happens around the tiles of some steps of the sums. Complete sums go where they belong at
  // once: writing is not waited for then.
  struct Around {
    PanelRun& run;
    std::int64_t o;
    bool complete;  // these are the last steps
    HWY_INLINE void before(std::int64_t first, std::int64_t count) const {
      if (complete && run.c_.far) run.claim(first, count);
    }
    HWY_INLINE void after(std::int64_t first, std::int64_t count) const {
      if (complete) run.finish(o, first, count);
    }
  };

  template <typename Stored>
  void add(const Stored* panel, std::int64_t o, std::int64_t i, std::int64_t depth) {
    const Around around{*this, o, i + depth == c_.in};
    if (!p_.channels) {
      panel_product<Scalars::kAcross>(outputs_, x_ + i, x_stride_, panel, W, depth, i == 0,
                                      unit_.row_count, w_.sums, ahead_, around);
    } else if constexpr (std::is_same_v<Stored, Real>) {
      panel_product<Scalars::kAlong>(unit_.row_count, panel, W, x_ + i * x_stride_, x_stride_,
                                     depth, i == 0, outputs_, w_.sums, ahead_, around);
    }
  }

  void enter_panel(std::int64_t o) {
    find_lines(o);
    if (c_.bias.has_value()) {
      gather(c_.bias, o * c_.bias.stride(0), c_.bias.stride(0), outputs_, w_.bias);
    } else {
      std::fill(w_.bias, w_.bias + W, Real{0});
    }
  }

  // Where lines of results go, if all of them are dense and of whole vectors; of pixels, the last
  // may be a half.
  void find_lines(std::int64_t o) {
    const std::int64_t lanes = p_.channels ? unit_.row_count : outputs_;
    lines_ = {};
    const bool half = p_.channels && ends_with_half(lanes);
    if ((lanes % N != 0 && !half) || (!p_.channels && p_.runs != 1)) return;
    const auto find = [&](const TensorView& view, std::int64_t row_step, std::int64_t& step) {
      const std::int64_t row = p_.channels
                                   ? row_offset(view, unit_.run * p_.run_rows + unit_.row_begin)
                                   : unit_.row_begin * row_step;
      step = p_.channels ? view.stride(-1) : row_step;
      return dense_row<Real>(view, row + o * view.stride(-1),
                             p_.channels ? row_step : view.stride(-1));
    };
    if (c_.residual.has_value()) {
      lines_.z = find(c_.residual, p_.residual_step, lines_.z_step);
      if (lines_.z == nullptr) return;
    }
    lines_.y = const_cast<Real*>(find(c_.y, p_.y_step, lines_.y_step));
    lines_.vectors = lanes / N;
    lines_.half = half;
  }

  // Fetches the lines that finish() will write to. Stores wait for each other: a line that another
  // core has would hold up all that follow it.
  void claim(std::int64_t first, std::int64_t count) const {
    for (std::int64_t n = first; lines_.y != nullptr && n < first + count; ++n) {
      const Real* y = lines_.y + n * lines_.y_step;
      for (std::int64_t at = 0; at < lines_.vectors * N; at += N) prefetch_to_write(y + at);
      if (lines_.half) prefetch_to_write(y + lines_.vectors * N);
    }
  }

  // Lines [first, first + count) of sums, which are rows, or outputs of `channels`.
  void finish(std::int64_t o, std::int64_t first, std::int64_t count) {
    switch (c_.activation) {
      case Activation::none: return finish_as<Activation::none>(o, first, count);
      case Activation::relu: return finish_as<Activation::relu>(o, first, count);
      case Activation::silu: return finish_as<Activation::silu>(o, first, count);
      case Activation::gelu: return finish_as<Activation::gelu>(o, first, count);
      case Activation::gelu_tanh: return finish_as<Activation::gelu_tanh>(o, first, count);
      case Activation::quick_gelu: return finish_as<Activation::quick_gelu>(o, first, count);
    }
  }

  template <Activation kActivation>
  HWY_NOINLINE void finish_as(std::int64_t o, std::int64_t first, std::int64_t count) {
    if (lines_.y != nullptr) {
      return p_.channels ? finish_dense<kActivation, true>(first, count)
                         : finish_dense<kActivation, false>(first, count);
    }
    const MutableTensorView& y = c_.y;
    const TensorView& z = c_.residual;
    if (p_.channels) {
      const std::int64_t row = unit_.run * p_.run_rows + unit_.row_begin;
      const std::int64_t y_at = row_offset(y, row);
      const std::int64_t z_at = z.has_value() ? row_offset(z, row) : 0;
      for (std::int64_t n = first; n < first + count; ++n) {
        const std::int64_t z_n = z.has_value() ? z_at + (o + n) * z.stride(-1) : 0;
        finish_line<kActivation, true>(w_.sums + n * W, unit_.row_count, n,
                                       y_at + (o + n) * y.stride(-1), p_.y_step, z_n,
                                       p_.residual_step);
      }
      return;
    }
    for (std::int64_t r = first; r < first + count; ++r) {
      const std::int64_t row = unit_.row_begin + r;
      const std::int64_t y_at = p_.runs == 1 ? row * p_.y_step : row_offset(y, row);
      const std::int64_t z_at = !z.has_value() ? 0
                                : p_.runs == 1 ? row * p_.residual_step
                                               : row_offset(z, row);
      const std::int64_t z_step = z.has_value() ? z.stride(-1) : 0;
      finish_line<kActivation, false>(w_.sums + r * W, outputs_, 0, y_at + o * y.stride(-1),
                                      y.stride(-1), z_at + o * z_step, z_step);
    }
  }

  template <Activation kActivation, bool kOneBias>
  HWY_INLINE void finish_dense(std::int64_t first, std::int64_t count) {
    for (std::int64_t n = first; n < first + count; ++n) {
      const Real* sums = w_.sums + n * W;
      const Real* z = lines_.z == nullptr ? nullptr : lines_.z + n * lines_.z_step;
      Real* y = lines_.y + n * lines_.y_step;
      const auto one = hn::Set(d, w_.bias[kOneBias ? n : 0]);
      for (std::int64_t at = 0; at < lines_.vectors * N; at += N) {
        const auto b = kOneBias ? one : hn::LoadU(d, w_.bias + at);
        auto v = activate_sums<kActivation>(d, hn::Add(hn::LoadU(d, sums + at), b));
        if (z != nullptr) v = hn::Add(v, hn::LoadU(d, z + at));
        hn::StoreU(v, d, y + at);
      }
      if constexpr (kOneBias && kHasHalves<Real>) {
        if (!lines_.half) continue;
        // As the lower half of a vector: its bits are those of any other lane.
        const hn::Half<D> dh;
        const std::int64_t at = lines_.vectors * N;
        const auto sum = hn::MaskedLoad(hn::FirstN(d, N / 2), d, sums + at);
        auto v = hn::LowerHalf(dh, activate_sums<kActivation>(d, hn::Add(sum, one)));
        if (z != nullptr) v = hn::Add(v, hn::LoadU(dh, z + at));
        hn::StoreU(v, dh, y + at);
      }
    }
  }

  // A line of sums becomes a line of y, whatever that is. Lanes past the last may hold anything:
  // they are computed with, and go nowhere.
  template <Activation kActivation, bool kOneBias>
  HWY_INLINE void finish_line(Real* sums, std::int64_t count, std::int64_t bias, std::int64_t y_at,
                              std::int64_t y_step, std::int64_t z_at, std::int64_t z_step) {
    Real* y = const_cast<Real*>(dense_row<Real>(c_.y, y_at, y_step));
    const Real* z = w_.residual;
    if (c_.residual.has_value()) {
      const Real* dense = dense_row<Real>(c_.residual, z_at, z_step);
      if (dense != nullptr && count % N == 0) {
        z = dense;
      } else {
        gather(c_.residual, z_at, z_step, count, w_.residual);
      }
    } else {
      z = nullptr;
    }
    const auto one = hn::Set(d, w_.bias[bias]);
    Real* to = y != nullptr && count % N == 0 ? y : sums;
    for (std::int64_t n = 0; n < count; n += N) {
      const auto b = kOneBias ? one : hn::LoadU(d, w_.bias + n);
      auto v = activate_sums<kActivation>(d, hn::Add(hn::LoadU(d, sums + n), b));
      if (z != nullptr) v = hn::Add(v, hn::LoadU(d, z + n));
      hn::StoreU(v, d, to + n);
    }
    if (to == y) return;
    if (y != nullptr) {
      std::memcpy(y, sums, static_cast<std::size_t>(count) * sizeof(Real));
    } else {
      scatter(sums, count, c_.y, y_at, y_step);
    }
  }

  struct Lines {
    Real* y = nullptr;  // null: not dense
    const Real* z = nullptr;
    std::int64_t y_step = 0, z_step = 0, vectors = 0;
    bool half = false;  // one more
  };

  const PanelProblem& p_;
  const LinearProblem& c_;
  const PanelUnit& unit_;
  PanelWorkspace<Real> w_;
  PanelAhead ahead_;
  Lines lines_;
  const Real* x_ = nullptr;
  std::int64_t x_stride_ = 0;
  std::int64_t outputs_ = 0;  // of the panel at hand
};

template <typename Real>
void panel_run(const PanelProblem& problem, const PanelUnit& unit, void* workspace) noexcept {
  PanelRun<Real>(problem, unit, workspace).run();
}

inline void quantize_rows(const PanelProblem& p, std::int64_t begin, std::int64_t end,
                          void* workspace) noexcept {
  const PanelWorkspace<float> w(p, kPanelVectors * panel_lanes<float>(), 1, workspace);
  const TensorView& x = p.call.x;
  const PanelBytes& b = *p.bytes;
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t offset = p.runs == 1 ? r * p.x_step : row_offset(x, r);
    const ForeignMatrix row{panel_element(x, offset), x.dtype(), 0, x.stride(-1)};
    read_matrix(row, 1, p.call.in, w.x, p.call.in, w.stage);
    b.rows[r] = quantize_row(w.x, p.call.in, b.x + r * b.stride);
  }
}

template <typename Real>
constexpr decltype(PanelKernel::quantize) panel_quantize() {
  if constexpr (std::is_same_v<Real, float>) return &quantize_rows;
  return nullptr;
}

template <typename Real>
void panel_pack(const TensorView& weight, std::int64_t begin, void* panel) noexcept {
  constexpr std::int64_t W = kPanelVectors * panel_lanes<Real>();
  const std::int64_t in = weight.dim(1), count = std::min(W, weight.dim(0) - begin);
  visit_float(weight.dtype(), [&](auto tag) {
    using T = decltype(tag);
    auto* to = static_cast<T*>(panel);
    std::fill(to, to + (count < W ? in * W : 0), T{});
    for (std::int64_t o = 0; o < count; ++o) {
      const std::int64_t at = (begin + o) * weight.stride(0);
      for (std::int64_t i = 0; i < in; ++i) {
        to[i * W + o] = load<T>(weight.data(), at + i * weight.stride(1));
      }
    }
  });
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
