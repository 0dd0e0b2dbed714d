#include "qkv/gpt_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "io/input_file.h"
#include "io/report.h"
#include "models/gpt_config.h"
#include "models/place.h"
#include "models/weight_file.h"
#include "qkv/error.h"
#include "qkv/safetensors.h"

namespace qkv {

struct GptModel::Parts {
  std::string family;
  DecoderWeights weights;
  std::optional<Decoder> decoder;
  std::optional<Tokenizer> tokenizer;
  std::vector<std::int32_t> end_tokens;
};

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  const auto file = io::InputFile::open(path, FileAccess::copy);
  return std::string(io::as_text(file->bytes()));
}

// Several files as one: each tensor is in the file that the index says, and in no other.
WeightFile open_shards(const fs::path& folder, const fs::path& index) {
  const auto list = parse_shard_index(read_text(index), index.string());
  std::map<std::string, SafetensorsFile> files;
  std::map<std::string, std::string> place;
  for (const auto& [tensor, file] : list) {
    place.emplace(tensor, file);
    if (!files.contains(file)) files.emplace(file, SafetensorsFile(folder / file));
  }
  auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  std::vector<NamedTensor> tensors;
  for (const auto& [name, file] : files) {
    owners->push_back(file.owner());
    for (const std::string& tensor : file.names()) {
      const auto listed = place.find(tensor);
      if (listed == place.end() || listed->second != name) {
        io::refuse((folder / name).string(), io::in_quotes(tensor),
                   "a tensor that the index puts here",
                   listed == place.end() ? "one that it does not name"
                                         : fmt::format("one that it puts into {}", listed->second));
      }
      tensors.push_back({tensor, file.tensor(tensor)});
    }
  }
  for (const auto& [tensor, name] : list) {
    if (!files.at(name).contains(tensor)) {
      io::refuse((folder / name).string(), io::in_quotes(tensor),
                 "a tensor of this name, as the index says", "none");
    }
  }
  return WeightFile(index.string(), tensors, owners);
}

WeightFile open_weights(const fs::path& folder) {
  std::error_code ignored;
  const fs::path one = folder / "model.safetensors",
                 index = folder / "model.safetensors.index.json";
  if (!fs::exists(one, ignored) && fs::exists(index, ignored)) return open_shards(folder, index);
  return WeightFile::open(one);
}

// Reads tensors by name, remembering which, so that none is left over.
class ModelReader {
 public:
  // `anchor` is a tensor that every model of the family has once.
  ModelReader(const WeightFile& file, std::string_view anchor)
      : file_(file), place_(file, prefix_of(file, anchor)) {}

  TensorView read(const std::string& name, const Dims& shape) {
    used_.insert(place_.full(name));
    return place_.read(name, shape);
  }
  TensorView read_if_there(const std::string& name, const Dims& shape) {
    used_.insert(place_.full(name));
    return place_.read_if_there(name, shape);
  }
  void ignore(const std::string& name) { used_.insert(place_.full(name)); }

  // lm_head stands beside the rest of the model.
  TensorView read_head(GptConfig::Head head, const Dims& shape) {
    const std::string& prefix = place_.prefix();
    const std::size_t dot = prefix.rfind('.');
    PlaceReader beside(file_, dot == prefix.npos ? "" : prefix.substr(0, dot));
    used_.insert(beside.full("lm_head.weight"));
    if (head == GptConfig::Head::tied) return {};
    TensorView view = head == GptConfig::Head::own ? beside.read("lm_head.weight", shape)
                                                   : beside.read_if_there("lm_head.weight", shape);
    for (auto& owner : beside.owners()) place_.keep(owner);
    return view;
  }

  void refuse_others() const {
    for (const std::string& name : file_.names()) {
      if (!used_.contains(name)) {
        io::refuse(file_.name(), io::in_quotes(name),
                   "only tensors of the model that config.json describes",
                   "one that it does not have");
      }
    }
  }

  const PlaceReader& place() const noexcept { return place_; }
  std::vector<std::shared_ptr<const void>>& owners() noexcept { return place_.owners(); }

 private:
  static std::string prefix_of(const WeightFile& file, std::string_view anchor) {
    std::vector<std::string> found;
    for (const std::string& name : file.names()) {
      if (name == anchor) found.emplace_back();
      if (name.ends_with(fmt::format(".{}", anchor))) {
        found.push_back(name.substr(0, name.size() - anchor.size() - 1));
      }
    }
    if (found.size() != 1) {
      io::refuse(file.name(), io::in_quotes(anchor), "one tensor of this name, after some prefix",
                 found.empty() ? "none" : fmt::format("{}", found.size()));
    }
    return found.front();
  }

  const WeightFile& file_;
  PlaceReader place_;
  std::set<std::string> used_;
};

NormWeights read_norm(ModelReader& reader, const std::string& name, const GptConfig& config) {
  NormWeights norm;
  norm.weight = reader.read(name + ".weight", {config.shape.width});
  if (!config.llama) norm.bias = reader.read_if_there(name + ".bias", {config.shape.width});
  norm.eps = config.norm_eps;
  norm.kind = config.llama ? NormKind::rms : NormKind::layer;
  return norm;
}

// [out, in], whichever way it is stored.
LinearWeights read_gpt2_map(ModelReader& reader, const std::string& name, bool conv1d,
                            std::int64_t in, std::int64_t out) {
  const TensorView weight = reader.read(name + ".weight", conv1d ? Dims{in, out} : Dims{out, in});
  return {conv1d ? weight.transpose(0, 1) : weight, reader.read_if_there(name + ".bias", {out})};
}

LinearWeights part_of(const LinearWeights& all, std::int64_t part, std::int64_t rows) {
  const auto slice = [&](const TensorView& view) {
    return view.has_value() ? view.slice(0, part * rows, (part + 1) * rows) : view;
  };
  return {slice(all.weight), slice(all.bias)};
}

bool is_conv1d(ModelReader& reader, std::int64_t d) {
  const std::string name = "h.0.attn.c_attn.weight";
  const TensorView weight = reader.read(name, {-1, -1});
  if (weight.shape() == Dims{d, 3 * d}) return true;
  if (weight.shape() == Dims{3 * d, d}) return false;
  reader.place().refuse(name,
                        fmt::format("shape [{0}, {1}] (Conv1D) or [{1}, {0}] (Linear)", d, 3 * d),
                        to_string(weight.shape()));
}

DecoderWeights read_gpt2(ModelReader& reader, const GptConfig& config) {
  const std::int64_t d = config.shape.width, f = config.shape.hidden;
  DecoderWeights w;
  w.tokens = reader.read("wte.weight", {config.vocabulary, d});
  w.positions = reader.read("wpe.weight", {config.context, d});
  const bool conv1d = is_conv1d(reader, d);
  for (std::int64_t n = 0; n < config.layers; ++n) {
    const auto in_layer = [&](std::string_view name) { return fmt::format("h.{}.{}", n, name); };
    DecoderLayerWeights layer;
    layer.norm1 = read_norm(reader, in_layer("ln_1"), config);
    const LinearWeights qkv = read_gpt2_map(reader, in_layer("attn.c_attn"), conv1d, d, 3 * d);
    layer.query = part_of(qkv, 0, d);
    layer.key = part_of(qkv, 1, d);
    layer.value = part_of(qkv, 2, d);
    layer.output = read_gpt2_map(reader, in_layer("attn.c_proj"), conv1d, d, d);
    layer.norm2 = read_norm(reader, in_layer("ln_2"), config);
    layer.up = read_gpt2_map(reader, in_layer("mlp.c_fc"), conv1d, d, f);
    layer.down = read_gpt2_map(reader, in_layer("mlp.c_proj"), conv1d, f, d);
    reader.ignore(in_layer("attn.bias"));  // a mask, no weight
    reader.ignore(in_layer("attn.masked_bias"));
    w.layers.push_back(layer);
  }
  w.norm = read_norm(reader, "ln_f", config);
  return w;
}

DecoderWeights read_llama(ModelReader& reader, const GptConfig& config) {
  const DecoderShape& s = config.shape;
  const std::int64_t d = s.width, f = s.hidden;
  DecoderWeights w;
  w.tokens = reader.read("embed_tokens.weight", {config.vocabulary, d});
  for (std::int64_t n = 0; n < config.layers; ++n) {
    const auto in_layer = [&](std::string_view name) {
      return fmt::format("layers.{}.{}", n, name);
    };
    const auto map = [&](std::string_view name, std::int64_t in, std::int64_t out, bool bias) {
      LinearWeights linear{reader.read(in_layer(fmt::format("{}.weight", name)), {out, in}), {}};
      if (bias) linear.bias = reader.read(in_layer(fmt::format("{}.bias", name)), {out});
      return linear;
    };
    DecoderLayerWeights layer;
    layer.norm1 = read_norm(reader, in_layer("input_layernorm"), config);
    layer.query = map("self_attn.q_proj", d, s.heads * s.head_dim, config.attention_bias);
    layer.key = map("self_attn.k_proj", d, s.kv_heads * s.head_dim, config.attention_bias);
    layer.value = map("self_attn.v_proj", d, s.kv_heads * s.head_dim, config.attention_bias);
    layer.output = map("self_attn.o_proj", s.heads * s.head_dim, d, config.attention_bias);
    layer.norm2 = read_norm(reader, in_layer("post_attention_layernorm"), config);
    layer.gate = map("mlp.gate_proj", d, f, config.mlp_bias);
    layer.up = map("mlp.up_proj", d, f, config.mlp_bias);
    layer.down = map("mlp.down_proj", f, d, config.mlp_bias);
    reader.ignore(in_layer("self_attn.rotary_emb.inv_freq"));  // follows from the config
    w.layers.push_back(layer);
  }
  w.norm = read_norm(reader, "norm", config);
  w.rope_frequencies = config.rope_frequencies;
  return w;
}

void check_tokenizer(const Tokenizer& tokenizer, const GptConfig& config, const fs::path& folder) {
  for (std::int64_t id = config.vocabulary; id < tokenizer.size(); ++id) {
    if (tokenizer.contains(static_cast<std::int32_t>(id))) {
      io::refuse(folder.string(), "tokenizer",
                 fmt::format("ids below the model's vocabulary, {}", config.vocabulary),
                 fmt::format("{}", id));
    }
  }
}

}  // namespace

GptModel GptModel::load(const fs::path& folder, const GptLoadOptions& options) {
  const fs::path config_path = folder / "config.json";
  const GptConfig config = parse_gpt_config(read_text(config_path), config_path.string());
  auto parts = std::make_shared<Parts>();
  parts->family = config.llama ? "llama" : "gpt2";
  parts->end_tokens = config.end_tokens;
  if (Tokenizer::is_in(folder)) {
    parts->tokenizer = Tokenizer::open(folder);
    check_tokenizer(*parts->tokenizer, config, folder);
  }
  const WeightFile file = open_weights(folder);
  ModelReader reader(file, config.llama ? "embed_tokens.weight" : "wte.weight");
  DecoderWeights& weights = parts->weights;
  weights = config.llama ? read_llama(reader, config) : read_gpt2(reader, config);
  weights.shape = config.shape;
  weights.context = config.context;
  const TensorView head = reader.read_head(config.head, weights.tokens.shape());
  weights.head.weight = head.has_value() ? head : weights.tokens;
  reader.refuse_others();
  weights.owner =
      std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(reader.owners()));

  PrepareOptions prepare;
  prepare.storage = options.storage;
  std::function<void(std::int64_t)> progress;
  if (options.progress) {
    progress = [&](std::int64_t done) { options.progress(done, config.layers); };
  }
  parts->decoder.emplace(weights, prepare, progress);
  return GptModel(std::move(parts));
}

const std::string& GptModel::family() const noexcept { return parts_->family; }
const Decoder& GptModel::decoder() const noexcept { return *parts_->decoder; }
const DecoderWeights& GptModel::weights() const noexcept { return parts_->weights; }
const std::optional<Tokenizer>& GptModel::tokenizer() const noexcept { return parts_->tokenizer; }
const std::vector<std::int32_t>& GptModel::end_tokens() const noexcept {
  return parts_->end_tokens;
}

std::string GptModel::describe() const {
  const DecoderShape& s = decoder().shape();
  const std::string heads = s.heads == s.kv_heads
                                ? fmt::format("{} heads", s.heads)
                                : fmt::format("{} heads on {}", s.heads, s.kv_heads);
  return fmt::format("{}: {} layers, {} of {}, width {}, vocabulary {}, context {}", family(),
                     decoder().layers(), heads, s.head_dim, s.width, decoder().vocabulary(),
                     decoder().context());
}

}  // namespace qkv
