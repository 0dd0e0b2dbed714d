// exp and tanh of a vector, for attention. Included once for each SIMD target (see Highway's
// foreach_target.h), hence no ordinary guard.
//
// Both write x = n·ln 2 + r with |r| ≤ ln 2 / 2 and multiply a polynomial by 2ⁿ; on AVX-512 exp has
// 0 ≤ r < ln 2, which it gets in one instruction. The polynomials are minimax over these intervals
// in relative error (Remez), in base 2 so that the reduction is exact.

#if defined(QKV_KERNELS_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_SIMD_EXP_INL_H_
#undef QKV_KERNELS_SIMD_EXP_INL_H_
#else
#define QKV_KERNELS_SIMD_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename Real>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  using Integer = std::int32_t;
  static constexpr int kMantissa = 23;
  static constexpr float kMinExponent = -127;  // 2ⁿ of it is 0
  // Adding it leaves round(z) + 127, an exponent field, in the lowest bits of the sum.
  static constexpr float kMagic = 0x1.8p23f + 127;
  // 2^r to 7.5e-8.
  static constexpr float kExp2[] = {1.0000000716546416382f,    0.69314696706526492761f,
                                    0.24022119723969178047f,   0.05550713272875391178f,
                                    0.0096755413310213911451f, 0.0013276472167819943329f};
  // 2^r to 7.5e-8 for r from 0 to 1.
  static constexpr float kExp2OfFraction[] = {0.99999992506375993494f,   0.69315307320709622907f,
                                              0.24015361698272357832f,   0.055826318231683376816f,
                                              0.0089893398765987357656f, 0.0018775767656580149639f};
  // (2^r - 1) / r to 1.1e-8.
  static constexpr float kExp2m1[] = {0.6931471879266856674578f,  0.24022649794964410029f,
                                      0.05550357433648186784512f, 0.0096182374941833146346f,
                                      0.00133907354753998715528f, 0.000154035126186610031151f};
};

template <>
struct ExpConstants<double> {
  using Integer = std::int64_t;
  static constexpr int kMantissa = 52;
  static constexpr double kMinExponent = -1023;
  static constexpr double kMagic = 0x1.8p52 + 1023;
  // 2^r to 1.8e-17.
  static constexpr double kExp2[] = {1.0,
                                     0.693147180559945696750638,
                                     0.2402265069591009800656598,
                                     0.05550410866479039455165273,
                                     0.009618129107607002379584462,
                                     0.001333355815343996474704669,
                                     0.00015403530441572130329704,
                                     0.0000152527273851938681968871,
                                     0.000001321544267532982214323746,
                                     0.000000101806476592341388884602,
                                     7.072570412814423509578242e-9,
                                     4.078071929588336665004221e-10};
  // (2^r - 1) / r to 1.8e-17.
  static constexpr double kExp2m1[] = {
      0.6931471805599453112017315,      0.2402265069591009788900772,
      0.05550410866482123649924451,     0.009618129107607065299836098,
      0.00133335581465316447071478,     0.0001540353044148128374598464,
      0.00001525273370120071307390763,  0.000001321544272387838815749062,
      0.000000101781213058067180114195, 7.072561768398301166059683e-9,
      4.445536131848176023472799e-10};
};

// Σ coefficients[k]·x^k, by Horner's rule.
template <class D, typename Real, int n>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, const Real (&coefficients)[n]) {
  hn::Vec<D> sum = hn::Set(d, coefficients[n - 1]);
  HWY_UNROLL(12)
  for (int k = n - 2; k >= 0; --k) sum = hn::MulAdd(sum, x, hn::Set(d, coefficients[k]));
  return sum;
}

// max(z, low), and NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> at_least(D, hn::Vec<D> low, hn::Vec<D> z) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Max(low, z);  // the instruction gives its second operand if one is NaN
#else
  return hn::IfThenElse(hn::Lt(z, low), low, z);
#endif
}

// min(z, high), and NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> at_most(D, hn::Vec<D> high, hn::Vec<D> z) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Min(high, z);  // as above
#else
  return hn::IfThenElse(hn::Gt(z, high), high, z);
#endif
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// z = 2^z of n whole vectors of f32, as exp2_or_zero() says, step by step in all of them. z -
// floor(z) and the product by 2^floor(z) are an instruction each here (rounding to nearest would be
// two more on some CPUs).
template <class D, int n>
HWY_INLINE void exp2_by_fraction(D d, hn::Vec<D> (&z)[n]) {
  using C = ExpConstants<float>;
  constexpr int kLast = sizeof(C::kExp2OfFraction) / sizeof(float) - 1;
  hn::Vec<D> r[n], sum[n];
  __mmask16 keep[n];
  HWY_UNROLL(4)
  for (int k = 0; k < n; ++k) {
    r[k] = hn::Vec<D>{_mm512_reduce_ps(z[k].raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
    keep[k] = _mm512_cmp_ps_mask(z[k].raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    sum[k] = hn::Set(d, C::kExp2OfFraction[kLast]);
  }
  HWY_UNROLL(12)
  for (int term = kLast - 1; term >= 0; --term) {
    HWY_UNROLL(4)
    for (int k = 0; k < n; ++k)
      sum[k] = hn::MulAdd(sum[k], r[k], hn::Set(d, C::kExp2OfFraction[term]));
  }
  HWY_UNROLL(4)
  for (int k = 0; k < n; ++k) {
    z[k] = hn::Vec<D>{_mm512_maskz_scalef_ps(keep[k], sum[k].raw, z[k].raw)};
  }
}
#endif

// 2^z, for z ≤ 127. What would be denormal is 0 exactly, but for a factor √2 below the smallest
// normal number on some targets: denormals make the products that follow slow, and add nothing to a
// sum that has a 1 in it. NaN stays NaN, -inf gives 0.
template <class D>
HWY_INLINE hn::Vec<D> exp2_or_zero(D d, hn::Vec<D> z) {
  using C = ExpConstants<hn::TFromD<D>>;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(hn::TFromD<D>) == 4 && hn::MaxLanes(D()) == 16) {
    hn::Vec<D> one[] = {z};
    exp2_by_fraction(d, one);
    return one[0];
  }
  // The same for half a vector: the same bits.
  if constexpr (sizeof(hn::TFromD<D>) == 4 && hn::MaxLanes(D()) == 8) {
    const hn::Vec<D> r{_mm256_reduce_ps(z.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
    const __mmask8 keep = _mm256_cmp_ps_mask(z.raw, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ);
    return hn::Vec<D>{
        _mm256_maskz_scalef_ps(keep, polynomial(d, r, C::kExp2OfFraction).raw, z.raw)};
  }
#endif
  const auto magic = hn::Set(d, C::kMagic);
  z = at_least(d, hn::Set(d, C::kMinExponent), z);
  const auto biased = hn::Add(z, magic);
  const auto r = hn::Sub(z, hn::Sub(biased, magic));
  const hn::RebindToSigned<D> di;
  const auto power = hn::BitCast(d, hn::ShiftLeft<C::kMantissa>(hn::BitCast(di, biased)));
  return hn::Mul(polynomial(d, r, C::kExp2), power);
}

// z = the same of n vectors, side by side.
template <class D, int n>
HWY_INLINE void exp2_or_zero(D d, hn::Vec<D> (&z)[n]) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(hn::TFromD<D>) == 4 && hn::MaxLanes(D()) == 16) {
    return exp2_by_fraction(d, z);
  }
#endif
  HWY_UNROLL(4)
  for (int k = 0; k < n; ++k) z[k] = exp2_or_zero(d, z[k]);
}

// a / b for b from 1 to 2^100, to a unit in the last place. AVX-512 makes it of a guess and a
// correction of the quotient: four operations, where Intel's CPUs are busy with a division for ten
// cycles or more.
template <class D>
HWY_INLINE hn::Vec<D> quotient(D, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (sizeof(hn::TFromD<D>) == 4 && hn::MaxLanes(D()) >= 8) {
    hn::Vec<D> inverse;  // to 2^-14
    if constexpr (hn::MaxLanes(D()) == 16) inverse = hn::Vec<D>{_mm512_rcp14_ps(b.raw)};
    if constexpr (hn::MaxLanes(D()) == 8) inverse = hn::Vec<D>{_mm256_rcp14_ps(b.raw)};
    const auto guess = hn::Mul(a, inverse);
    return hn::MulAdd(hn::NegMulAdd(guess, b, a), inverse, guess);
  }
#endif
  return hn::Div(a, b);
}

// x = tanh(x) of n vectors, step by step in all of them: each is a chain of some twenty operations
// that wait for each other, and a CPU looks ahead over only so many chains. tanh(x) = (e^2x - 1) /
// (e^2x + 1), where e^2x - 1 is found without cancellation, so that small x are as exact as large.
template <class D, int n>
HWY_INLINE void tanh_of(D d, hn::Vec<D> (&x)[n]) {
  using Real = hn::TFromD<D>;
  using V = hn::Vec<D>;
  using C = ExpConstants<Real>;
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, Real{1}), two = hn::Set(d, Real{2}), magic = hn::Set(d, C::kMagic);
  // tanh is ±1 from here on: the exponent stays small. NaN stays NaN.
  const V limit = hn::Set(d, sizeof(Real) == 4 ? Real{32} : Real{64});
  const V two_log2e = hn::Set(d, static_cast<Real>(2.88539008177792681471984936200378427));
  constexpr int kTerms = sizeof(C::kExp2m1) / sizeof(Real);
  V r[n], power[n], sum[n];
  HWY_UNROLL(4)
  for (int k = 0; k < n; ++k) {
    const V z = at_most(d, limit, hn::Mul(hn::Abs(x[k]), two_log2e));
    const V biased = hn::Add(z, magic);
    r[k] = hn::Sub(z, hn::Sub(biased, magic));
    power[k] = hn::BitCast(d, hn::ShiftLeft<C::kMantissa>(hn::BitCast(di, biased)));
    sum[k] = hn::Set(d, C::kExp2m1[kTerms - 1]);
  }
  HWY_UNROLL(12)
  for (int term = kTerms - 2; term >= 0; --term) {
    HWY_UNROLL(4)
    for (int k = 0; k < n; ++k) sum[k] = hn::MulAdd(sum[k], r[k], hn::Set(d, C::kExp2m1[term]));
  }
  HWY_UNROLL(4)
  for (int k = 0; k < n; ++k) {
    // 2^z - 1 = 2ⁿ·(2^r - 1) + (2ⁿ - 1)
    const V expm1 = hn::MulAdd(power[k], hn::Mul(sum[k], r[k]), hn::Sub(power[k], one));
    x[k] = hn::CopySign(quotient(d, expm1, hn::Add(expm1, two)), x[k]);
  }
}

}  // namespace qkv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
