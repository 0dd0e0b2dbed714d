#pragma once

#include <cstdint>
#include <vector>

#include "qkv/export.h"
#include "qkv/linear.h"
#include "qkv/tensor.h"

namespace qkv {

// Rotary position embedding: each pair of channels of a head is turned by an angle that grows with
// the token's position, so that a product of query and key depends on their distance.
//
//   θ(p, i) = p·f[i],  i < R/2                 f: rope_frequencies
//   y[a] = x[a]·cos θ − x[b]·sin θ
//   y[b] = x[a]·sin θ + x[b]·cos θ             (a, b) the i-th pair of channels

// Which channels are a pair.
//   half_split   (i, i + R/2): Llama and GPT-NeoX as Hugging Face stores them; ONNX's default
//   interleaved  (2·i, 2·i + 1): the paper, GPT-J, Meta's own Llama files; ONNX's `interleaved`
enum class RopePairing : std::uint8_t { half_split, interleaved };

// How the frequencies are stretched for texts longer than those of the training.
//   linear   f / factor
//   llama3   f where a turn is shorter than original_context / high_freq_factor tokens, f / factor
//            where it is longer than original_context / low_freq_factor, a mixture in between
enum class RopeScalingKind : std::uint8_t { none, linear, llama3 };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;           // > 0
  double low_freq_factor = 1;  // llama3 only, as what follows; 0 < low < high
  double high_freq_factor = 4;
  double original_context = 8192;  // tokens, > 0
};

// f[i] = base^(−2·i/R), scaled, for i < R/2. `width` is R, even and at most 65536.
QKV_API std::vector<double> rope_frequencies(std::int64_t width, double base = 10000,
                                             const RopeScaling& scaling = {});

// cos[p, i] and sin[p, i] of the positions first + p: both [P, R/2], f32 or f64, rounded once from
// f64. The number of frequencies has to be R/2.
QKV_API void rope_table(const std::vector<double>& frequencies, std::int64_t first,
                        const MutableTensorView& cos, const MutableTensorView& sin);

// The angles of each token.
struct RopeAngles {
  TensorView cos{}, sin{};  // one shape: [P, R/2] with positions, otherwise [T, R/2] or [B, T, R/2]
  TensorView
      positions{};  // [T] or [B, T], i32 or i64, each in [0, P): the token's row of the table
};

// Turns the first R channels of each head; the others pass as they are.
//
//   x, out [B, H, T, D] or [H, T, D], R ≤ D
//
// Dtypes, strides and errors as in linear_forward, except that out may be x itself (the same
// elements with the same strides). What is in `positions` is checked before anything is written.
QKV_API void rope_forward(const RopeAngles& angles, const TensorView& x,
                          const MutableTensorView& out,
                          RopePairing pairing = RopePairing::half_split,
                          const LinearOptions& options = {});

}  // namespace qkv
