#pragma once

// Explanations of blocks: the block's own forward runs, observed, and what it shows becomes steps.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "explain/explanation.h"
#include "qkv/decoder.h"
#include "qkv/detector.h"
#include "qkv/gpt.h"
#include "qkv/transformer.h"
#include "qkv/vit.h"

namespace qkv {

// Labels of tokens ("Your", "journey", …), where there are any.
using TokenLabels = std::vector<std::string>;

// Every builder computes in f64 if asked to by options.attention.accumulate, as the blocks do.
// Steps, where a block has them, in this order: input, w_query, w_key, w_value, qkv, query, key,
// value, scores (Q·Kᵀ), scaled, softcapped, masked, weights, heads, concat, w_output, output.

// query, key, value [B, H, T, D] as in attention_forward.
Explanation explain_attention(const TensorView& query, const TensorView& key,
                              const TensorView& value, const AttentionOptions& options,
                              const TokenLabels& tokens = {});
Explanation explain_simple(const TensorView& x, const BlockOptions& options,
                           const TokenLabels& tokens = {});
// memory: none for self-attention.
Explanation explain_transformer(const TransformerWeights& weights, const TensorView& x,
                                const TensorView& memory, const BlockOptions& options,
                                const TokenLabels& tokens = {});
Explanation explain_vit(const VitWeights& weights, const TensorView& x, const BlockOptions& options,
                        const TokenLabels& tokens = {});
Explanation explain_gpt(const GptWeights& weights, const TensorView& x, const BlockOptions& options,
                        const TokenLabels& tokens = {});
Explanation explain_detector(const DetectorWeights& weights, const TensorView& x,
                             const BlockOptions& options);
Explanation explain_psa_block(const PsaBlockWeights& weights, const TensorView& x,
                              const BlockOptions& options);
Explanation explain_c2psa(const C2psaWeights& weights, const TensorView& x,
                          const BlockOptions& options);

// Where in a decoder to look.
struct DecoderPlace {
  std::int64_t layer = 0;
  std::int64_t cached = 0;  // tokens at the start that went before: their keys come from the cache
  int threads = 0;
};
// The attention of one layer on a text: the steps of a bare block, and query_rope and key_rope
// where it has them. Keys and values that came from the cache stand first, their labels as ‹…›.
// `weights` are those of the decoder; a label a token, or none.
Explanation explain_decoder(const Decoder& decoder, const DecoderWeights& weights,
                            std::span<const std::int32_t> tokens, const DecoderPlace& place,
                            const TokenLabels& tokens_labels = {});

// The worked examples: dot, pixels, channels, journey, causal, heads, scaling, vit, transformer.
const std::vector<std::string>& example_names();
Explanation explain_example(std::string_view name);

}  // namespace qkv
