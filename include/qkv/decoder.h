#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "qkv/activation.h"
#include "qkv/export.h"
#include "qkv/kv_cache.h"
#include "qkv/linear.h"
#include "qkv/norm.h"
#include "qkv/rope.h"
#include "qkv/step.h"
#include "qkv/tensor.h"

// Decoder-only Transformers, token by token: GPT-2's family and Llama's are choices of these parts.
// Everything takes views of weights; a layer needs no model.

namespace qkv {

// One layer, of width d, with a feed-forward of width f:
//
//   x = x + output(attention(rope(query(norm1(x))), rope(key(norm1(x))), value(norm1(x))))
//   x = x + down(activation(up(norm2(x))))                       without a gate
//   x = x + down(activation(gate(norm2(x))) · up(norm2(x)))      with one (SwiGLU with silu)
struct DecoderLayerWeights {
  NormWeights norm1{}, norm2{};
  LinearWeights query{};       // [Hq·D, d]
  LinearWeights key{};         // [Hkv·D, d]
  LinearWeights value{};       // [Hkv·D, d]
  LinearWeights output{};      // [d, Hq·D]
  LinearWeights gate{}, up{};  // [f, d]; no gate: none
  LinearWeights down{};        // [d, f]
};

// What all layers of a decoder have in common.
struct DecoderShape {
  std::int64_t width = 0;                // d
  std::int64_t heads = 1, kv_heads = 1;  // Hq, Hkv
  std::int64_t head_dim = 0;             // D
  std::int64_t hidden = 0;               // f
  Activation activation = Activation::gelu_tanh;
  bool rope = false;  // queries and keys are turned by their position
  RopePairing pairing = RopePairing::half_split;
};

// Memory of a forward of up to `tokens` tokens, had once and used by all layers.
class QKV_API DecoderWorkspace {
 public:
  DecoderWorkspace(const DecoderShape& shape, std::int64_t tokens);
  std::int64_t tokens() const noexcept { return tokens_; }

 private:
  friend class DecoderLayer;
  std::int64_t tokens_;
  Tensor norm_, qkv_, concat_, hidden_, gated_;
};

// New tokens on their way through the layers.
struct DecoderStep {
  KVCache* cache = nullptr;
  SequenceId sequence = 0;  // for which T tokens are reserved
  TensorView cos{}, sin{};  // [T, R/2], f32, dense: of the new tokens' positions; none without rope
  int threads = 0;
  // If given, it is shown the layer's steps: norm1, qkv, query, key, value, (query_rope, key_rope,)
  // scores, masked, weights, heads, concat, projected, residual, norm2, fc (or gate and up),
  // activated, mlp, output. query … [1, heads, T, D]; key and value [1, Hkv, T, D], the new ones;
  // scores … [1, heads, T, keys], over the cached ones too. It does not change a bit of the output.
  StepObserver observer{};
};

// A layer made ready for many calls: weights are copied once into the order that the products read
// them in. An immutable value.
class QKV_API DecoderLayer {
 public:
  // Throws Error if weights do not fit the shape; `name` stands for the layer in messages.
  DecoderLayer(const DecoderLayerWeights& weights, const DecoderShape& shape, std::string_view name,
               const PrepareOptions& options = {});

  // x [T, d], f32, dense, T at most the workspace's tokens, is replaced by the layer's output. Keys
  // and values go to layer `layer` of the cache, which the caller has reserved and will commit.
  void forward(const MutableTensorView& x, std::int64_t layer, const DecoderStep& step,
               DecoderWorkspace& workspace) const;

  std::size_t bytes() const noexcept;  // of its weights

 private:
  struct Prepared;
  std::shared_ptr<const Prepared> prepared_;
};

// A whole decoder.
struct DecoderWeights {
  DecoderShape shape{};
  TensorView tokens{};     // [vocabulary, d]: a row a token
  TensorView positions{};  // [context, d], added to it; none with rope
  std::vector<DecoderLayerWeights> layers{};
  NormWeights norm{};                      // after the last layer
  LinearWeights head{};                    // [vocabulary, d]
  std::int64_t context = 0;                // positions that it knows
  std::vector<double> rope_frequencies{};  // of R/2 pairs; empty without rope
  std::shared_ptr<const void> owner{};     // of the elements of tokens and positions, or none
};

class QKV_API Decoder {
 public:
  // Checks and prepares. The elements of `tokens` and `positions` are read where they lie: what
  // owns them has to be weights.owner, which is kept, or to outlive every copy. The others are
  // copied. `progress` is told how many of the layers are done.
  explicit Decoder(const DecoderWeights& weights, const PrepareOptions& options = {},
                   const std::function<void(std::int64_t)>& progress = {});

  std::int64_t layers() const noexcept;
  std::int64_t vocabulary() const noexcept;
  std::int64_t context() const noexcept;
  const DecoderShape& shape() const noexcept;
  std::size_t bytes() const noexcept;  // of the weights that a token's step reads

  struct Parts;

 private:
  friend class DecoderSession;
  std::shared_ptr<const Parts> parts_;
};

struct DecoderSessionOptions {
  std::int64_t capacity = 0;  // tokens; 0: the decoder's context. No more than that
  KVStorage storage = KVStorage::f32;
  std::int64_t chunk = 256;  // tokens that go through the layers at once
  int threads = 0;
};

// One text that grows: its cache, and the memory of a step. After the first call none of its own is
// allocated. One thread at a time.
class QKV_API DecoderSession {
 public:
  explicit DecoderSession(Decoder decoder, const DecoderSessionOptions& options = {});

  // Appends the tokens, any number from 1 on, and returns the logits [vocabulary] of what comes
  // after the last of them, valid until the next call. Throws Error, with nothing appended, if a
  // token is not in the vocabulary or the cache has no room. `observer` is shown tokens' steps
  // "embedding" [T, d], then for layer n "h.n.<step>", then "norm" [T, d] and "logits" [T,
  // vocabulary].
  TensorView append(std::span<const std::int32_t> tokens, const StepObserver& observer = {});

  // The same, with the logits after each of them: [T, vocabulary], f32 or f64, any strides.
  void append_all(std::span<const std::int32_t> tokens, const MutableTensorView& logits);

  std::int64_t length() const;  // tokens so far
  std::int64_t capacity() const noexcept;
  void truncate(std::int64_t length);  // forgets the tokens from there on

  // A layer's part of the cache, in f32: [Hkv, tokens, D].
  Tensor keys(std::int64_t layer) const { return cache_.keys(sequence_, layer); }
  Tensor values(std::int64_t layer) const { return cache_.values(sequence_, layer); }

  const Decoder& decoder() const noexcept { return decoder_; }
  KVCacheUsage usage() const { return cache_.usage(); }
  std::int64_t bytes_per_token() const noexcept;  // of the cache

 private:
  void run_chunk(std::span<const std::int32_t> tokens, const StepObserver& observer,
                 const MutableTensorView& logits);
  void embed(std::span<const std::int32_t> tokens, const MutableTensorView& x);
  void run_layers(const MutableTensorView& x, const StepObserver& observer);

  Decoder decoder_;
  DecoderSessionOptions options_;
  KVCache cache_;
  SequenceId sequence_;
  DecoderWorkspace workspace_;
  Tensor x_, normed_, logits_, cos_, sin_;
};

}  // namespace qkv
