#pragma once

#include <span>

#include "models/block_file.h"
#include "models/place.h"
#include "qkv/transformer.h"

namespace qkv {

// The names that load_transformer knows; load_vit looks for them, too.
std::span<const NameScheme> transformer_schemes();

// What stands at a place with the names of transformer_schemes()[scheme].
TransformerWeights read_transformer(PlaceReader& reader, std::size_t scheme,
                                    const LoadOptions& options);

// options.heads, or an Error that says why it is needed. `from` is the tensor that does not tell.
std::int64_t heads_or_refuse(const PlaceReader& reader, const LoadOptions& options,
                             std::string_view from);

// How wide a head is, if `total` numbers of a tensor are `heads` of them.
std::int64_t split_or_refuse(const PlaceReader& reader, std::string_view tensor, std::int64_t total,
                             std::int64_t heads);

}  // namespace qkv
