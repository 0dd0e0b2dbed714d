// Activations of a vector of f32. Included once for each SIMD target.
//
// All but relu are x·c(x) with a c that goes from 0 to 1 and c(-x) = 1 - c(x): c is found for -|x|,
// where it is small and nothing cancels, and taken from 1 where x is positive. On AVX-512 a sigmoid
// is a plain quotient.

#if defined(QKV_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ACTIVATION_INL_H_
#undef QKV_KERNELS_ACTIVATION_INL_H_
#else
#define QKV_KERNELS_ACTIVATION_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "kernels/simd/exp-inl.h"
#include "qkv/activation.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// p·2ⁿ for whole n ≤ 0; 0 where 2ⁿ would be denormal.
template <class D>
HWY_INLINE hn::Vec<D> times_power(D d, hn::Vec<D> p, hn::Vec<D> n) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (hn::MaxLanes(D()) == 16) {
    const __mmask16 keep = _mm512_cmp_ps_mask(n.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    return hn::Vec<D>{_mm512_maskz_scalef_ps(keep, p.raw, n.raw)};
  }
#endif
  using C = ExpConstants<float>;
  const hn::RebindToSigned<D> di;
  const auto field = hn::Add(at_least(d, hn::Set(d, C::kMinExponent), n), hn::Set(d, C::kMagic));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<C::kMantissa>(hn::BitCast(di, field))));
}

// exp(x) = p·2ⁿ for |x| ≤ 100, n whole, to 1.5 units in the last place where there is FMA.
template <class D>
HWY_INLINE hn::Vec<D> exp_parts(D d, hn::Vec<D> x, hn::Vec<D>& n) {
  const auto magic = hn::Set(d, 0x1.8p23f);
  const auto log2e = hn::Set(d, 1.44269504088896340736f);
  const auto log2e_rest = hn::Set(d, 1.92596303e-8f);  // log2(e) - float(log2(e))
  n = hn::Sub(hn::MulAdd(x, log2e, magic), magic);
  const auto r = hn::MulAdd(x, log2e_rest, hn::MulSub(x, log2e, n));
  return polynomial(d, r, ExpConstants<float>::kExp2);
}

// exp(x) for x ≤ 0; what would be denormal is 0.
template <class D>
HWY_INLINE hn::Vec<D> exp_negative(D d, hn::Vec<D> x) {
  x = at_least(d, hn::Set(d, -100.0f), x);  // exp of it is 0 already, and no infinity goes on
  hn::Vec<D> n;
  const auto p = exp_parts(d, x, n);
  return times_power(d, p, n);
}

// x·sigmoid(z), where z has the sign of x.
template <class D>
HWY_INLINE hn::Vec<D> times_sigmoid(D d, hn::Vec<D> x, hn::Vec<D> z) {
  const auto one = hn::Set(d, 1.0f);
#if HWY_TARGET == HWY_AVX3
  // x / (1 + exp(-z)) as it stands: an exponential beyond the numbers is an infinity here, and one
  // below them adds nothing. The limits keep infinities out of the reduction; NaN stays NaN.
  if constexpr (hn::MaxLanes(D()) == 16) {
    const auto limited = hn::Min(hn::Set(d, 87.0f), at_least(d, hn::Set(d, -100.0f), z));
    hn::Vec<D> n;
    const auto p = exp_parts(d, hn::Neg(limited), n);
    return hn::Div(x, hn::Add(one, hn::Vec<D>{_mm512_scalef_ps(p.raw, n.raw)}));
  }
#endif
  const auto e = exp_negative(d, hn::Neg(hn::Abs(z)));
  const auto part = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Mul(x, hn::Div(part, hn::Add(one, e)));
}

// x·Φ(x). Φ(-t) = exp(-t²/2)·u·p(u) with u = 1 / (1 + 0.3·t), p minimax in relative error for
// t ≤ 14 (Remez), to 3.5e-9.
template <class D>
HWY_INLINE hn::Vec<D> gelu(D d, hn::Vec<D> x) {
  static constexpr float kTail[] = {
      0.11968663403f,    0.119572842414f, 0.110227313839f,  0.0784256269f,   0.096057692838f,
      -0.0792470866147f, 0.191581392328f, -0.228067288953f, 0.112375683556f, -0.0206128120616f};
  const auto one = hn::Set(d, 1.0f);
  const auto t = hn::Abs(x);
  const auto u = hn::Div(one, hn::MulAdd(t, hn::Set(d, 0.3f), one));
  const auto e = exp_negative(d, hn::Mul(hn::Mul(t, t), hn::Set(d, -0.5f)));
  const auto tail = hn::Mul(e, hn::Mul(u, polynomial(d, u, kTail)));
  return hn::Mul(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)));
}

template <Activation kind, class D>
HWY_INLINE hn::Vec<D> activate(D d, hn::Vec<D> x) {
  if constexpr (kind == Activation::relu) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);  // NaN stays NaN
  } else if constexpr (kind == Activation::gelu) {
    return gelu(d, x);
  } else if constexpr (kind == Activation::gelu_tanh) {
    const auto cubic = hn::Mul(x, hn::Mul(x, x));
    const auto inner = hn::MulAdd(cubic, hn::Set(d, 0.044715f), x);
    return times_sigmoid(d, x, hn::Mul(inner, hn::Set(d, 1.5957691216057307117f)));
  } else if constexpr (kind == Activation::quick_gelu) {
    return times_sigmoid(d, x, hn::Mul(x, hn::Set(d, 1.702f)));
  } else if constexpr (kind == Activation::silu) {
    return times_sigmoid(d, x, x);
  } else {
    return x;
  }
}

// y[i] = fn(x[i], b[i]), n elements. What is left after whole vectors goes through a small array.
template <class Fn>
HWY_INLINE void for_vectors(const float* x, const float* b, std::int64_t n, float* y, const Fn fn) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(fn(d, hn::LoadU(d, x + i), hn::LoadU(d, b + i)), d, y + i);
  }
  if (i == n) return;
  const std::size_t rest = static_cast<std::size_t>(n - i) * sizeof(float);
  HWY_ALIGN float line[2][hn::MaxLanes(d)] = {};
  std::memcpy(line[0], x + i, rest);
  std::memcpy(line[1], b + i, rest);
  hn::Store(fn(d, hn::Load(d, line[0]), hn::Load(d, line[1])), d, line[0]);
  std::memcpy(y + i, line[0], rest);
}

template <Activation kind>
struct Activate {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> x, hn::Vec<D>) const {
    return activate<kind>(d, x);
  }
};
template <Activation kind>
struct Gate {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, hn::Vec<D> gate, hn::Vec<D> x) const {
    return hn::Mul(activate<kind>(d, gate), x);
  }
};
struct Sum {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D, hn::Vec<D> x, hn::Vec<D> b) const {
    return hn::Add(x, b);
  }
};

template <template <Activation> class Fn>
HWY_INLINE void for_activation(Activation kind, const float* x, const float* b, std::int64_t n,
                               float* y) {
  switch (kind) {
    case Activation::none: return for_vectors(x, b, n, y, Fn<Activation::none>());
    case Activation::relu: return for_vectors(x, b, n, y, Fn<Activation::relu>());
    case Activation::gelu: return for_vectors(x, b, n, y, Fn<Activation::gelu>());
    case Activation::gelu_tanh: return for_vectors(x, b, n, y, Fn<Activation::gelu_tanh>());
    case Activation::quick_gelu: return for_vectors(x, b, n, y, Fn<Activation::quick_gelu>());
    case Activation::silu: return for_vectors(x, b, n, y, Fn<Activation::silu>());
  }
}

// y[i] = activation(x[i])
inline void activate_line(Activation kind, const float* x, std::int64_t n, float* y) noexcept {
  for_activation<Activate>(kind, x, x, n, y);
}

// y[i] = activation(gate[i])·x[i]
inline void gated_line(Activation kind, const float* gate, const float* x, std::int64_t n,
                       float* y) noexcept {
  for_activation<Gate>(kind, gate, x, n, y);
}

// y[i] = x[i] + b[i]
inline void add_line(const float* x, const float* b, std::int64_t n, float* y) noexcept {
  for_vectors(x, b, n, y, Sum());
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
