#include "models/vision.h"

#include <fmt/format.h>

#include <cmath>

#include "io/input_file.h"
#include "io/json_tree.h"
#include "io/report.h"
#include "models/place.h"

namespace qkv {
namespace {

constexpr std::int64_t kMostLayers = 10000, kMostSide = 1 << 16;

// A JSON file of the folder; an empty object if it may be missing and is.
class JsonFile {
 public:
  JsonFile(const std::filesystem::path& path, bool required) : name_(path.string()) {
    value_.is = io::JsonObject();
    if (!required && !std::filesystem::exists(path)) return;
    const auto file = io::InputFile::open(path, FileAccess::copy);
    value_ = io::parse_json(io::as_text(file->bytes()), name_);
  }
  io::JsonPlace root() const { return {value_, name_}; }

 private:
  std::string name_;
  io::JsonValue value_;
};

Activation activation_of(const io::JsonPlace& config, std::string_view key) {
  const io::JsonPlace place = config.get(key);
  if (place.is_null()) return Activation::gelu;
  const std::string_view name = place.string();
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return Activation::gelu_tanh;
  }
  if (name == "quick_gelu") return Activation::quick_gelu;
  if (name == "relu") return Activation::relu;
  if (name == "silu" || name == "swish") return Activation::silu;
  place.refuse("gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu or silu");
}

// A number, or a pair of them: height and width.
std::pair<std::int64_t, std::int64_t> sides(const io::JsonPlace& place) {
  if (const auto* pair = std::get_if<io::JsonArray>(&place.value().is)) {
    if (pair->size() != 2) place.refuse("a number or two");
    return {place.item(0).integer(1, kMostSide), place.item(1).integer(1, kMostSide)};
  }
  const std::int64_t side = place.integer(1, kMostSide);
  return {side, side};
}

// ---- weights by their names

// Reads what both libraries have.
class VisionReader {
 public:
  VisionReader(const WeightFile& file, std::string prefix, double eps)
      : reader_(file, std::move(prefix)), eps_(eps) {}

  PlaceReader& place() noexcept { return reader_; }
  bool has(const std::string& name) const { return reader_.has(name); }

  LinearWeights linear(const std::string& name, std::int64_t out, std::int64_t in) {
    LinearWeights w;
    w.weight = reader_.read(name + ".weight", {out, in});
    w.bias = reader_.read_if_there(name + ".bias", {w.weight.dim(0)});
    return w;
  }
  NormWeights norm(const std::string& name, std::int64_t width) {
    return {reader_.read(name + ".weight", {width}), reader_.read_if_there(name + ".bias", {width}),
            eps_};
  }
  // [1, rows, width] as [rows, width].
  TensorView rows(const std::string& name, std::int64_t width) {
    return reader_.read(name, {1, -1, width}).select(0, 0);
  }

  // The patches' convolution decides the width.
  std::int64_t patches(const std::string& name, VisionWeights& w) {
    const TensorView conv = reader_.read(name + ".weight", {-1, -1, -1, -1});
    const Dims& shape = conv.shape();
    if (shape[2] != shape[3] || shape[2] < 1) {
      reader_.refuse(name + ".weight", "square patches", to_string(shape));
    }
    const std::int64_t width = shape[0];
    auto matrix = std::make_shared<const Tensor>(Tensor::copy_of(conv));
    w.patch.weight = matrix->view().flatten(1, 3);
    w.patch.bias = reader_.read_if_there(name + ".bias", {width});
    w.channels = shape[1];
    w.patch_size = shape[2];
    reader_.keep(std::move(matrix));
    return width;
  }

 private:
  PlaceReader reader_;
  double eps_;
};

// Names of one layer's parts, relative to the layer.
struct LayerNames {
  std::string_view query, key, value, output, norm1, norm2, linear1, linear2;
};
constexpr LayerNames kTransformers4 = {"attention.attention.query", "attention.attention.key",
                                       "attention.attention.value", "attention.output.dense",
                                       "layernorm_before",          "layernorm_after",
                                       "intermediate.dense",        "output.dense"};
constexpr LayerNames kTransformers5 = {"attention.q_proj", "attention.k_proj", "attention.v_proj",
                                       "attention.o_proj", "layernorm_before", "layernorm_after",
                                       "mlp.fc1",          "mlp.fc2"};

EncoderLayerWeights read_layer(VisionReader& reader, const std::string& prefix,
                               const LayerNames& names, std::int64_t width, std::int64_t heads,
                               Activation activation) {
  const auto name = [&](std::string_view part) { return prefix + std::string(part); };
  TransformerWeights attention;
  attention.query = reader.linear(name(names.query), width, width);
  attention.key = reader.linear(name(names.key), width, width);
  attention.value = reader.linear(name(names.value), width, width);
  attention.output = reader.linear(name(names.output), width, width);
  attention.heads = heads;
  EncoderLayerWeights layer;
  layer.attention = attention;
  layer.norm1 = reader.norm(name(names.norm1), width);
  layer.norm2 = reader.norm(name(names.norm2), width);
  layer.linear1 = reader.linear(name(names.linear1), -1, width);
  layer.linear2 = reader.linear(name(names.linear2), width, layer.linear1.weight.dim(0));
  layer.activation = activation;
  layer.norm_first = true;
  return layer;
}

VisionWeights read_hugging_face(VisionReader& reader, const std::string& prefix,
                                const io::JsonPlace& config) {
  VisionWeights w;
  const std::int64_t width = reader.patches(prefix + "embeddings.patch_embeddings.projection", w);
  std::tie(w.height, w.width) = sides(config.at("image_size"));
  if (reader.has(prefix + "embeddings.distillation_token")) {
    reader.place().refuse(prefix + "embeddings.distillation_token", "no token besides CLS", "one");
  }
  w.cls = reader.rows(prefix + "embeddings.cls_token", width).select(0, 0);
  w.positions = reader.rows(prefix + "embeddings.position_embeddings", width);
  const std::int64_t heads = config.at("num_attention_heads").integer(1, width);
  const std::int64_t count = config.at("num_hidden_layers").integer(0, kMostLayers);
  const Activation activation = activation_of(config, "hidden_act");
  const bool older = reader.has(prefix + "encoder.layer.0.layernorm_before.weight");
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string layer =
        fmt::format("{}{}.{}.", prefix, older ? "encoder.layer" : "layers", i);
    w.layers.push_back(read_layer(reader, layer, older ? kTransformers4 : kTransformers5, width,
                                  heads, activation));
  }
  w.norm = reader.norm(prefix + "layernorm", width);
  if (reader.has("classifier.weight")) w.head = reader.linear("classifier", -1, width);
  return w;
}

EncoderLayerWeights read_timm_layer(VisionReader& reader, const std::string& prefix,
                                    std::int64_t width, std::int64_t heads) {
  constexpr std::array<std::string_view, 2> kNotKnown = {"attn.norm.weight", "mlp.fc1_g.weight"};
  for (const std::string_view name : kNotKnown) {
    const std::string full = prefix + std::string(name);
    if (reader.has(full)) reader.place().refuse(full, "a plain VisionTransformer", "this");
  }
  VitWeights attention;
  attention.qkv = reader.linear(prefix + "attn.qkv", 3 * width, width);
  attention.proj = reader.linear(prefix + "attn.proj", width, width);
  attention.heads = heads;
  if (reader.has(prefix + "attn.q_norm.weight")) {
    attention.q_norm = reader.norm(prefix + "attn.q_norm", width / heads);
    attention.k_norm = reader.norm(prefix + "attn.k_norm", width / heads);
  }
  EncoderLayerWeights layer;
  layer.attention = attention;
  layer.norm1 = reader.norm(prefix + "norm1", width);
  layer.norm2 = reader.norm(prefix + "norm2", width);
  layer.linear1 = reader.linear(prefix + "mlp.fc1", -1, width);
  layer.linear2 = reader.linear(prefix + "mlp.fc2", width, layer.linear1.weight.dim(0));
  layer.activation = Activation::gelu;
  layer.norm_first = true;
  layer.scale1 = reader.place().read_if_there(prefix + "ls1.gamma", {width});
  layer.scale2 = reader.place().read_if_there(prefix + "ls2.gamma", {width});
  return layer;
}

std::int64_t timm_heads(VisionReader& reader, const io::JsonPlace& config,
                        std::optional<std::int64_t> heads, std::int64_t width) {
  if (!heads) {
    const io::JsonPlace said = config.get("model_args").is_null()
                                   ? config.get("model_args")
                                   : config.get("model_args").get("num_heads");
    heads = said.is_null() ? width / 64 : said.integer(1, width);
  }
  if (*heads < 1 || width % *heads != 0) {
    reader.place().refuse("patch_embed.proj.weight",
                          fmt::format("a width that {} heads share", *heads),
                          fmt::format("{}", width));
  }
  return *heads;
}

VisionWeights read_timm(VisionReader& reader, const io::JsonPlace& config,
                        std::optional<std::int64_t> wanted_heads) {
  VisionWeights w;
  const std::int64_t width = reader.patches("patch_embed.proj", w);
  const std::int64_t heads = timm_heads(reader, config, wanted_heads, width);
  for (const char* token : {"dist_token", "reg_token", "norm_pre.weight"}) {
    if (reader.has(token)) reader.place().refuse(token, "a plain VisionTransformer", "this");
  }
  if (reader.has("cls_token")) w.cls = reader.rows("cls_token", width).select(0, 0);
  w.positions = reader.rows("pos_embed", width);
  for (std::int64_t i = 0; reader.has(fmt::format("blocks.{}.norm1.weight", i)); ++i) {
    w.layers.push_back(read_timm_layer(reader, fmt::format("blocks.{}.", i), width, heads));
  }
  w.norm_pooled = reader.has("fc_norm.weight");
  w.pooling = w.norm_pooled || !w.cls.has_value() ? Pooling::mean : Pooling::first;
  w.norm = reader.norm(w.norm_pooled ? "fc_norm" : "norm", width);
  if (reader.has("head.weight")) w.head = reader.linear("head", -1, width);
  return w;
}

// ---- images

std::array<double, 3> three(const io::JsonPlace& place, double otherwise) {
  std::array<double, 3> numbers{otherwise, otherwise, otherwise};
  if (place.is_null()) return numbers;
  if (place.array().size() != 3) place.refuse("three numbers");
  for (std::size_t i = 0; i < 3; ++i) numbers[i] = place.item(i).number();
  return numbers;
}

bool flag(const io::JsonPlace& config, std::string_view key, bool otherwise) {
  const io::JsonPlace place = config.get(key);
  return place.is_null() ? otherwise : place.boolean();
}

void check_deviation(const io::ImageProcessing& p, const io::JsonPlace& place) {
  for (const double d : p.deviation) {
    if (!(std::abs(d) > 0)) place.refuse("deviations other than 0");
  }
}

void read_size(const io::JsonPlace& size, io::ImageProcessing& p) {
  if (size.is_null()) return;
  if (!std::holds_alternative<io::JsonObject>(size.value().is)) {
    std::tie(p.height, p.width) = sides(size);
  } else if (size.has("shortest_edge")) {
    p.shortest_edge = size.at("shortest_edge").integer(1, kMostSide);
  } else {
    p.height = size.at("height").integer(1, kMostSide);
    p.width = size.at("width").integer(1, kMostSide);
  }
}

// Fields as transformers' image processors write them; each has its processor's default.
io::ImageProcessing hugging_face_processing(const io::JsonPlace& config, const VisionWeights& w) {
  io::ImageProcessing p;
  p.height = w.height;
  p.width = w.width;
  if (flag(config, "do_resize", true)) {
    read_size(config.get("size"), p);
  } else {
    p.height = p.width = 0;
  }
  if (config.has("resample")) {
    const std::int64_t resample = config.at("resample").integer(0, 5);
    if (resample != 2 && resample != 3) {
      config.at("resample").refuse("2 (bilinear) or 3 (bicubic)");
    }
    p.resample = resample == 2 ? io::Resample::bilinear : io::Resample::bicubic;
  }
  if (flag(config, "do_center_crop", false)) {
    io::ImageProcessing crop;
    read_size(config.at("crop_size"), crop);
    p.crop_height = crop.height;
    p.crop_width = crop.width;
  }
  if (!flag(config, "do_rescale", true)) {
    p.scale = 1;
  } else if (config.has("rescale_factor")) {
    p.scale = config.at("rescale_factor").number();
  }
  if (flag(config, "do_normalize", true)) {
    p.mean = three(config.get("image_mean"), 0.5);
    p.deviation = three(config.get("image_std"), 0.5);
    check_deviation(p, config.get("image_std"));
  }
  return p;
}

io::ImageProcessing timm_processing(const io::JsonPlace& config, const VisionWeights& w) {
  const io::JsonPlace cfg = config.has("pretrained_cfg") ? config.at("pretrained_cfg") : config;
  io::ImageProcessing p;
  p.mean = {0.485, 0.456, 0.406};
  p.deviation = {0.229, 0.224, 0.225};
  if (cfg.has("mean")) p.mean = three(cfg.at("mean"), 0);
  if (cfg.has("std")) p.deviation = three(cfg.at("std"), 1);
  check_deviation(p, cfg.get("std"));
  p.resample = io::Resample::bicubic;
  if (cfg.has("interpolation")) {
    const std::string_view name = cfg.at("interpolation").string();
    if (name != "bicubic" && name != "bilinear")
      cfg.at("interpolation").refuse("bicubic or bilinear");
    if (name == "bilinear") p.resample = io::Resample::bilinear;
  }
  const double part = cfg.has("crop_pct") ? cfg.at("crop_pct").number() : 0.875;
  if (!(part > 0.01 && part <= 1)) cfg.at("crop_pct").refuse("a share of the image, up to 1");
  if (w.height != w.width) config.refuse("square images", "others");
  p.shortest_edge = static_cast<std::int64_t>(std::floor(static_cast<double>(w.height) / part));
  p.crop_height = w.height;
  p.crop_width = w.width;
  p.round_crop = true;
  return p;
}

// ---- labels

std::vector<std::string> labels_of(const io::JsonPlace& config, std::int64_t classes) {
  std::vector<std::string> labels;
  const io::JsonPlace named = config.get("id2label");
  const io::JsonPlace listed = config.get("label_names");
  if (!named.is_null()) {
    for (std::int64_t i = 0; i < classes; ++i) {
      const io::JsonPlace label = named.get(std::to_string(i));
      labels.emplace_back(label.is_null() ? fmt::format("class {}", i)
                                          : std::string(label.string()));
    }
  } else if (!listed.is_null()) {
    for (std::size_t i = 0; i < listed.array().size(); ++i) {
      labels.emplace_back(listed.item(i).string());
    }
    if (static_cast<std::int64_t>(labels.size()) != classes) labels.clear();
  }
  return labels;
}

// The image's size: as many positions as the file has, or what the configuration says.
void timm_image_size(VisionWeights& w, const io::JsonPlace& config) {
  const io::JsonPlace cfg = config.has("pretrained_cfg") ? config.at("pretrained_cfg") : config;
  if (cfg.has("input_size")) {
    if (cfg.at("input_size").array().size() != 3) cfg.at("input_size").refuse("[C, H, W]");
    w.height = cfg.at("input_size").item(1).integer(1, kMostSide);
    w.width = cfg.at("input_size").item(2).integer(1, kMostSide);
    return;
  }
  const std::int64_t patches = w.positions.dim(0) - (w.cls.has_value() ? 1 : 0);
  const auto side =
      static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(patches))));
  w.height = w.width = side * w.patch_size;
}

}  // namespace

VisionModel load_vision(const std::filesystem::path& folder, std::optional<std::int64_t> heads) {
  const JsonFile config_file(folder / "config.json", true);
  const JsonFile processor(folder / "preprocessor_config.json", false);
  const io::JsonPlace config = config_file.root();
  const WeightFile file = WeightFile::open(folder / "model.safetensors");
  VisionModel model;
  const bool timm = file.contains("patch_embed.proj.weight");
  if (!timm && config.has("model_type") && config.at("model_type").string() != "vit") {
    config.at("model_type").refuse("vit");
  }
  const double eps =
      timm ? 1e-6 : (config.has("layer_norm_eps") ? config.at("layer_norm_eps").number() : 1e-12);
  VisionReader reader(file, "", eps);
  if (timm) {
    model.origin = "timm";
    model.weights = read_timm(reader, config, heads);
    timm_image_size(model.weights, config);
    model.processing = timm_processing(config, model.weights);
  } else {
    model.origin = "Hugging Face";
    const bool whole = file.contains("vit.embeddings.cls_token");
    model.weights = read_hugging_face(reader, whole ? "vit." : "", config);
    model.processing = hugging_face_processing(processor.root(), model.weights);
  }
  model.owners = std::move(reader.place().owners());
  if (model.weights.head.weight.has_value()) {
    model.labels = labels_of(config, model.weights.head.weight.dim(0));
  }
  return model;
}

}  // namespace qkv
