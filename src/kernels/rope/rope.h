#pragma once

#include <cstdint>

#include "qkv/rope.h"
#include "qkv/tensor.h"

namespace qkv {

// y[a] = x[a]·cos[i] − x[b]·sin[i]
// y[b] = x[a]·sin[i] + x[b]·cos[i]      (a, b) = (i, i + half) or (2·i, 2·i + 1), i < half
// y[c] = x[c]                           2·half ≤ c < n
//
// x of n numbers; y may be x. No allocation, no check: for one head of one token.
template <typename Real>
void rope_row(const Real* x, const Real* cos, const Real* sin, std::int64_t half, std::int64_t n,
              RopePairing pairing, Real* y) noexcept;

// Everything in it is checked.
struct RopeProblem {
  TensorView x;          // [B, H, T, D]
  TensorView cos, sin;   // [P, R/2] with positions, else [B, T, R/2] (strides may be 0)
  TensorView positions;  // [B, T] or none
  MutableTensorView y;   // [B, H, T, D], may be x
  RopePairing pairing;
};

// Head by head of token `item` = b·T + t. Scratch: 2·D numbers.
template <typename Real>
void rope_reference_token(const RopeProblem& problem, std::int64_t item, Real* scratch) noexcept;

}  // namespace qkv
