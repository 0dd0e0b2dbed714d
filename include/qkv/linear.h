#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "qkv/activation.h"
#include "qkv/attention.h"
#include "qkv/cpu.h"
#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// A linear map, as views of weights that someone else owns.
struct LinearWeights {
  TensorView weight{};  // [out, in], any strides: a Conv1D's (in, out) array is its transpose
  TensorView bias{};    // [out], or none
};

enum class LinearBackend : std::uint8_t {
  automatic,  // the fastest one that can do the job
  reference,  // plain loops
  simd,       // our own matrix product, vectorised
  onednn,     // oneDNN's, to compare with, where the build has it: dense f32, prepared; else simd
};

QKV_API std::string_view name_of(LinearBackend backend) noexcept;

struct LinearOptions {
  Activation activation = Activation::none;
  TensorView residual{};  // of out's shape, any float dtype and strides; may be out itself
  Accumulate accumulate = Accumulate::natural;
  LinearBackend backend = LinearBackend::automatic;
  SimdTarget target = SimdTarget::automatic;
  int threads = 0;  // 0: num_threads(). Never changes a bit of a result
};

// The same linear map for every row:
//
//   out[..., o] = activation(Σ_i x[..., i]·weight[o, i] + bias[o]) + residual[..., o]
//
//   x [..., in]   out [..., out]
//
// Any float dtypes and strides, each of its own: a channel-first image [B, C, H, W] is passed as
// its view permute({0, 2, 3, 1}). Computed in f64 if x is f64 (or accumulate says so), otherwise in
// f32; rounded once to out's dtype. Throws Error, before anything is written, if arguments do not
// fit or out overlaps itself, x, a weight, or residual (unless that is the same view).
QKV_API void linear_forward(const LinearWeights& weights, const TensorView& x,
                            const MutableTensorView& out, const LinearOptions& options = {});

// How PreparedLinear keeps its weights. Results are those of the weights as they are kept, and for
//
//   i8   products of 8-bit integers: weights are scaled per output (off by at most 1/254 of the
//        largest of them), each row of x when it comes (off by at most 1/510 of max - min, 0
//        included). On numbers like a normal distribution's a result is off by 1 to 1.5 % RMS. The
//        sums are exact, and every target gives the same bits before an activation. A row that is
//        not finite gives NaN. At most 65536 inputs; computed in f32, whatever x is.
enum class WeightStorage : std::uint8_t { as_given, f32, f64, f16, bf16, i8 };

QKV_API std::string_view name_of(WeightStorage storage) noexcept;

struct PrepareOptions {
  WeightStorage storage = WeightStorage::as_given;
  LinearBackend backend = LinearBackend::automatic;
  SimdTarget target = SimdTarget::automatic;
};

// A linear map whose weights were copied once into the order that a kernel reads them in. An
// immutable value: copies share the weights, and any threads may use it at once.
//
//   const PreparedLinear project({w.weight, w.bias});
//   project.forward(x, out, {.activation = Activation::gelu});
class QKV_API PreparedLinear {
 public:
  class Packed;  // of the kernels

  PreparedLinear() = default;  // none; see has_value
  // Copies the weights: the views are needed no longer. Throws Error if they do not fit.
  explicit PreparedLinear(const LinearWeights& weights, const PrepareOptions& options = {});
  // Several maps of one input as one, their outputs side by side: [out of the first, of the second,
  // …]. Query, key and value then come from one product.
  explicit PreparedLinear(std::span<const LinearWeights> weights,
                          const PrepareOptions& options = {});
  PreparedLinear(std::initializer_list<LinearWeights> weights, const PrepareOptions& options = {})
      : PreparedLinear(std::span(weights.begin(), weights.size()), options) {}

  bool has_value() const noexcept { return packed_ != nullptr; }
  std::int64_t in() const noexcept;
  std::int64_t out() const noexcept;
  std::size_t bytes() const noexcept;  // that the weights take

  // linear_forward of these weights: same meaning, same errors, same bits as with weights that are
  // not prepared and have the storage's dtype. Backend and target are those that were prepared for,
  // whatever the options say. Allocates only what the calling thread then keeps for its next call.
  void forward(const TensorView& x, const MutableTensorView& out,
               const LinearOptions& options = {}) const;

  // Which kernel runs for so many rows, and why: a few lines.
  std::string describe(std::int64_t rows, const LinearOptions& options = {}) const;

  const Packed& packed() const noexcept { return *packed_; }  // for the library itself

 private:
  std::shared_ptr<const Packed> packed_;
};

}  // namespace qkv
