#pragma once

#include <cstdint>
#include <optional>

#include "qkv/cpu.h"
#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// Dimensions, everywhere: B batch, Hq and Hkv heads, Tq and Tk tokens, D width of query and key,
// Dv width of value.

// Key j is visible to query i only if j ≤ i + offset.
//   aligned       the offset option says where the queries stand; without one, Tq has to equal Tk
//   top_left      offset 0: the first query sees the first key
//   bottom_right  offset Tk - Tq: the last query sees the last key
enum class Causal : std::uint8_t { none, aligned, top_left, bottom_right };

// Query i stands at position p = i + offset and sees keys p - left ≤ j ≤ p + right.
// -1 is unbounded, 0 the token itself.
struct Window {
  std::int64_t left = -1;
  std::int64_t right = -1;
};

enum class Accumulate : std::uint8_t {
  natural,  // f64 for f64 inputs, f32 for f32, f16 and bf16
  f64,      // f64 for all: slow, exact, for tests and explanations
};

enum class AttentionKernel : std::uint8_t {
  automatic,  // the fastest one that can do the job
  reference,  // plain loops
  fused,      // one pass over the keys, vectorised; lanes are queries
  decode,     // the same for few queries: lanes run along D, and threads share the keys of a head
};

// Every option composes with every other one. Views that are left empty are not applied. (Each
// member has an initialiser so that naming only some of them, {.scale = 1}, warns nowhere.)
// "Per sequence" is per batch entry or, in a packed batch, per sequence of it.
struct AttentionOptions {
  std::optional<double> scale{};  // of Q·Kᵀ; 1/√D unless given. Finite; 0 and negatives are fine
  std::optional<double> softcap{};  // > 0: S becomes softcap·tanh(S / softcap)

  // Which keys a query may see, as structure. Visible are the keys of (causal ∧ window) ∪ prefix,
  // below the key length, in the query's own sequence, and let through by mask and bias.
  Causal causal = Causal::none;
  Window window{};
  std::optional<std::int64_t> offset{};  // position of query 0; 0 unless given
  TensorView offsets{};                  // the same, per sequence (i32 or i64); not with `offset`
  TensorView prefix{};                   // per sequence (i32 or i64): keys j < prefix are visible
  TensorView key_lengths{};  // per sequence (i32 or i64), in [0, Tk]: later keys do not exist

  // Which keys, as data, broadcast right-aligned against [B, Hq, Tq, Tk].
  TensorView mask{};  // bool: true may attend
  TensorView bias{};  // q's dtype or f32: added after softcap; -inf hides the key

  TensorView alibi{};  // slopes [Hq], f32 or f64: subtracts slope·|i + offset - j|
  TensorView sinks{};  // [Hq], f32 or f64: adds exp(sink) to the denominator; -inf adds nothing

  // A packed batch: B = 1, n sequences end to end. Integers [n + 1] (i32 or i64) from 0, not
  // decreasing, the last one Tq or Tk. Both or none.
  TensorView query_starts{};
  TensorView key_starts{};

  Accumulate accumulate = Accumulate::natural;
  AttentionKernel kernel = AttentionKernel::automatic;
  SimdTarget target = SimdTarget::automatic;  // of the fused kernel; one that cannot run is refused
  int threads = 0;                            // 0: num_threads(). Never changes a bit of a result
};

// What else to write, besides the output; each only if its view is given. Asking for a stage does
// not change a bit of the output. Dtype: q's, f32 or f64.
//
//   scores     scale·Q·Kᵀ                        hidden keys included
//   softcapped the same after softcap            hidden keys included
//   masked     after bias and ALiBi, -inf where hidden
//   weights    softmax, 0 where hidden
//
// Shape [B, Hq, Tq, Tk], or [n, Tk] if `rows` [n, 3] (i32 or i64) names (batch, head, query) rows.
// A key past its sequence's length, or of another sequence of a packed batch, does not exist: it
// is never read and stands as -inf in each of the first three.
struct AttentionStages {
  MutableTensorView scores{};
  MutableTensorView softcapped{};
  MutableTensorView masked{};
  MutableTensorView weights{};
  MutableTensorView lse{};  // [B, Hq, Tq], f32 or f64: log Σ exp(S), sink included
  TensorView rows{};        // does not apply to lse
};

// Scaled dot-product attention:
//
//   S = scale · Q·Kᵀ                        [B, Hq, Tq, Tk]
//   S = softcap · tanh(S / softcap)         if a softcap is set
//   S = S + bias - alibi·|i + offset - j|,  hidden entries removed
//   P = softmax(S)                          a sink adds exp(sink) to the denominator only
//   O = P·V                                 [B, Hq, Tq, Dv]
//
//   query [B, Hq, Tq, D]   key [B, Hkv, Tk, D]   value [B, Hkv, Tk, Dv]   out [B, Hq, Tq, Dv]
//
// Query head h reads key and value head h / (Hq / Hkv). Layouts are strides: pass a permuted view
// for [B, T, H, D], packed or channel-first data, in and out. Inputs share one dtype (f32, f64,
// f16, bf16); out is of that dtype, or f32 or f64.
//
// A query that sees no key gets output 0, weights 0 and LSE -inf (or its sink). What is hidden is
// not read: NaN there does no harm. NaN in what is attended gives NaN. Empty dimensions are fine,
// except D and Dv.
//
// Throws Error, before anything is written, if arguments do not fit or an output overlaps itself,
// another output or an input. Same bits for any number of threads and whatever else is in the
// batch. Re-entrant.
//
//   Tensor out(DType::f32, {1, 8, 20, 64});
//   attention_forward(q, k, v, out, {.causal = Causal::top_left});
QKV_API void attention_forward(const TensorView& query, const TensorView& key,
                               const TensorView& value, const MutableTensorView& out,
                               const AttentionOptions& options = {},
                               const AttentionStages& stages = {});

}  // namespace qkv
