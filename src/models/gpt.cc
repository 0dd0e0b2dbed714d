#include <fmt/format.h>

#include <array>
#include <utility>

#include "models/transformer_names.h"

namespace qkv {

Loaded<GptWeights> load_gpt(const WeightFile& file, const LoadOptions& options) {
  static const std::array<NameScheme, 1> schemes = {
      NameScheme{"GPT-2", {"c_attn.weight", "c_proj.weight"}}};
  const FoundPlace place = find_place(file, options.prefix, "gpt", schemes);
  PlaceReader reader(file, place.prefix);

  const TensorView c_attn = reader.read("c_attn.weight", {-1, -1});
  const std::int64_t d = std::min(c_attn.dim(0), c_attn.dim(1));
  const std::int64_t wide = std::max(c_attn.dim(0), c_attn.dim(1));
  if (d == 0 || wide % 3 != 0 || wide / 3 != d) {
    reader.refuse("c_attn.weight", "shape [d, 3·d] (Conv1D) or [3·d, d] (Linear)",
                  to_string(c_attn.shape()));
  }
  const std::int64_t heads = heads_or_refuse(reader, options, "c_attn.weight");
  split_or_refuse(reader, "c_attn.weight", d, heads);
  const TensorView c_attn_bias = reader.read_if_there("c_attn.bias", {wide});
  const TensorView c_proj = reader.read("c_proj.weight", {d, d});
  const TensorView c_proj_bias = reader.read_if_there("c_proj.bias", {d});
  return {GptWeights::from_arrays(c_attn, c_attn_bias, c_proj, c_proj_bias, heads),
          std::move(reader.owners()), place.prefix};
}

}  // namespace qkv
