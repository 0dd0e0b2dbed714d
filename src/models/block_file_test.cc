#include "models/block_file.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "models/test_weights.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename T>
LoadOptions with_heads(T heads, std::string prefix = "") {
  LoadOptions options;
  options.heads = heads;
  options.prefix = std::move(prefix);
  return options;
}

// The message of the Error that fn throws.
std::string refusal(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::value);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

// What the block gives for an input of that shape.
std::vector<float> run(const BlockWeights& weights, const Dims& shape, const Dims& memory = {}) {
  Checkpoint inputs;
  const TensorView x = inputs.add("x", shape);
  const TensorView m = memory.rank() > 0 ? inputs.add("m", memory) : TensorView();
  Tensor out(DType::f32, block_output_shape(weights, shape));
  block_forward(weights, x, m, out, {});
  return {out.as<float>().begin(), out.as<float>().end()};
}

// Loaded from a file, the block does what it does with the weights themselves.
void expect_same(const Loaded<BlockWeights>& loaded, const BlockWeights& direct,
                 const Dims& shape) {
  EXPECT_EQ(run(loaded.weights, shape), run(direct, shape));
}

// ---------------------------------------------------------------- transformer

void add_packed(Checkpoint& c, const std::string& prefix, std::int64_t E) {
  c.add(prefix + "in_proj_weight", {3 * E, E});
  c.add(prefix + "in_proj_bias", {3 * E});
  c.add(prefix + "out_proj.weight", {E, E});
  c.add(prefix + "out_proj.bias", {E});
}

TEST(LoadTransformer, PyTorchPacked) {
  Checkpoint c;
  c.add("embed.weight", {10, 6});
  add_packed(c, "layers.0.self_attn.", 6);
  const auto loaded = load_block("transformer", c.file(), with_heads(2));
  EXPECT_EQ(loaded.prefix, "layers.0.self_attn");
  const std::string p = "layers.0.self_attn.";
  expect_same(loaded,
              TransformerWeights::from_packed(c[p + "in_proj_weight"], c[p + "in_proj_bias"],
                                              c[p + "out_proj.weight"], c[p + "out_proj.bias"], 2),
              {2, 5, 6});
}

TEST(LoadTransformer, PyTorchWithOtherWidths) {
  Checkpoint c;
  c.add("q_proj_weight", {6, 6});
  c.add("k_proj_weight", {6, 4});
  c.add("v_proj_weight", {6, 4});
  const TensorView bias = c.add("in_proj_bias", {18});
  c.add("out_proj.weight", {6, 6});
  const auto loaded = load_block("transformer", c.file(), with_heads(3));
  TransformerWeights direct{{c["q_proj_weight"], bias.slice(0, 0, 6)},
                            {c["k_proj_weight"], bias.slice(0, 6, 12)},
                            {c["v_proj_weight"], bias.slice(0, 12, 18)},
                            {c["out_proj.weight"], {}},
                            3,
                            0};
  EXPECT_EQ(run(loaded.weights, {1, 3, 6}, {1, 5, 4}), run(direct, {1, 3, 6}, {1, 5, 4}));
}

struct Names {
  const char *query, *key, *value, *output, *query_bias;
};

TEST(LoadTransformer, SeparateMatricesUnderManyNames) {
  const Names all[] = {
      {"q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight", "q_proj.bias"},
      {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "q_proj.bias"},
      {"self.query.weight", "self.key.weight", "self.value.weight", "output.dense.weight",
       "self.query.bias"},
      {"q_lin.weight", "k_lin.weight", "v_lin.weight", "out_lin.weight", "q_lin.bias"},
      {"to_q.weight", "to_k.weight", "to_v.weight", "to_out.0.weight", "to_q.bias"},
      {"W_query.weight", "W_key.weight", "W_value.weight", "out_proj.weight", "W_query.bias"},
      {"w_q", "w_k", "w_v", "w_o", "b_q"},
      {"W_q", "W_k", "W_v", "W_o", "b_q"},
      {"wq", "wk", "wv", "wo", "bq"},
      {"wq.weight", "wk.weight", "wv.weight", "wo.weight", "wq.bias"},
  };
  for (const Names& n : all) {
    Checkpoint c;
    const std::string p = "encoder.0.";
    const TensorView q = c.add(p + n.query, {8, 8}), k = c.add(p + n.key, {8, 8});
    const TensorView v = c.add(p + n.value, {12, 8}), o = c.add(p + n.output, {5, 12});
    const TensorView b = c.add(p + n.query_bias, {8});
    const auto loaded = load_block("transformer", c.file(), with_heads(4));
    expect_same(loaded, TransformerWeights{{q, b}, {k, {}}, {v, {}}, {o, {}}, 4, 0}, {1, 3, 8});
  }
}

TEST(LoadTransformer, KeyHeadsFollowFromTheShapes) {
  Checkpoint c;
  const TensorView q = c.add("q_proj.weight", {8, 8}), k = c.add("k_proj.weight", {4, 8});
  const TensorView v = c.add("v_proj.weight", {4, 8}), o = c.add("o_proj.weight", {8, 8});
  const auto loaded = load_block("transformer", c.file(), with_heads(4));
  EXPECT_EQ(std::get<TransformerWeights>(loaded.weights).kv_heads, 2);
  expect_same(loaded, TransformerWeights{{q, {}}, {k, {}}, {v, {}}, {o, {}}, 4, 2}, {1, 3, 8});
  EXPECT_THAT(refusal([&] { load_block("transformer", c.file(), with_heads(1)); }),
              AllOf(HasSubstr("k_proj.weight"), HasSubstr("4 rows")));
}

// What would silently give another result.
TEST(LoadTransformer, RefusesPartsThatItDoesNotCompute) {
  for (const char* part : {"bias_k", "q_norm.weight", "rotary_emb.inv_freq"}) {
    Checkpoint c;
    add_packed(c, "attn.", 4);
    c.add(std::string("attn.") + part, {4});
    EXPECT_THAT(refusal([&] { load_block("transformer", c.file(), with_heads(2)); }),
                HasSubstr(part));
  }
}

// ---------------------------------------------------------------- vit

TEST(LoadVit, Timm) {
  Checkpoint c;
  const std::string p = "blocks.3.attn.";
  VitWeights direct;
  direct.qkv = {c.add(p + "qkv.weight", {24, 8}), c.add(p + "qkv.bias", {24})};
  direct.proj = {c.add(p + "proj.weight", {8, 8}), c.add(p + "proj.bias", {8})};
  c.add("blocks.3.mlp.fc1.weight", {16, 8});
  direct.heads = 2;
  expect_same(load_block("vit", c.file(), with_heads(2)), direct, {2, 4, 8});
  EXPECT_THAT(refusal([&] { load_block("vit", c.file(), {}); }),
              AllOf(HasSubstr("--heads"), HasSubstr("blocks.3.attn.qkv.weight")));
}

TEST(LoadVit, NormsTellTheHeads) {
  for (const bool with_bias : {true, false}) {
    Checkpoint c;
    VitWeights direct;
    direct.qkv = {c.add("qkv.weight", {24, 8}), {}};
    direct.proj = {c.add("proj.weight", {8, 8}), {}};
    direct.q_norm = NormWeights{c.add("q_norm.weight", {2}), {}, 1e-6, NormKind::rms};
    direct.k_norm = NormWeights{c.add("k_norm.weight", {2}), {}, 1e-6, NormKind::rms};
    if (with_bias) {
      direct.q_norm->bias = c.add("q_norm.bias", {2});
      direct.k_norm->bias = c.add("k_norm.bias", {2});
      direct.q_norm->kind = direct.k_norm->kind = NormKind::layer;
    }
    direct.heads = 4;
    expect_same(load_block("vit", c.file(), {}), direct, {1, 3, 8});
    EXPECT_THAT(refusal([&] { load_block("vit", c.file(), with_heads(2)); }),
                AllOf(HasSubstr("q_norm.weight"), HasSubstr("[4]"), HasSubstr("[2]")));
  }
}

TEST(LoadVit, HuggingFaceMatricesAreStacked) {
  Checkpoint c;
  const std::string p = "vit.encoder.layer.0.attention.";
  Tensor weight(DType::f32, {24, 8}), bias(DType::f32, {24});
  int row = 0;
  for (const char* part : {"query", "key", "value"}) {
    const std::string name = p + "attention." + part;
    copy(c.add(name + ".weight", {8, 8}), weight.view().slice(0, row, row + 8));
    // One of them without a bias, as Whisper's key: it counts as 0.
    if (row != 8) copy(c.add(name + ".bias", {8}), bias.view().slice(0, row, row + 8));
    row += 8;
  }
  VitWeights direct;
  direct.qkv = {weight, bias};
  direct.proj = {c.add(p + "output.dense.weight", {8, 8}), c.add(p + "output.dense.bias", {8})};
  direct.heads = 2;
  const auto loaded = load_block("vit", c.file(), with_heads(2));
  EXPECT_EQ(loaded.prefix, "vit.encoder.layer.0.attention");
  expect_same(loaded, direct, {1, 5, 8});
  EXPECT_EQ(load_block("transformer", c.file(), with_heads(2)).prefix, loaded.prefix);
}

// ---------------------------------------------------------------- gpt

void add_gpt(Checkpoint& c, const std::string& prefix, std::int64_t d, bool conv1d) {
  c.add(prefix + "bias", {1, 1, 7, 7}, 0, 1);  // the mask, a buffer
  c.add(prefix + "c_attn.weight", conv1d ? Dims{d, 3 * d} : Dims{3 * d, d});
  c.add(prefix + "c_attn.bias", {3 * d});
  c.add(prefix + "c_proj.weight", {d, d});
  c.add(prefix + "c_proj.bias", {d});
}

TEST(LoadGpt, Conv1dAndLinear) {
  for (const bool conv1d : {true, false}) {
    Checkpoint c;
    const std::string p = "h.0.attn.";
    add_gpt(c, p, 6, conv1d);
    c.add("h.0.mlp.c_proj.weight", {24, 6});
    expect_same(load_block("gpt", c.file(), with_heads(3)),
                GptWeights::from_arrays(c[p + "c_attn.weight"], c[p + "c_attn.bias"],
                                        c[p + "c_proj.weight"], c[p + "c_proj.bias"], 3),
                {2, 4, 6});
  }
}

TEST(LoadGpt, SeveralPlaces) {
  Checkpoint c;
  for (const char* p : {"transformer.h.0.attn.", "transformer.h.1.attn."}) add_gpt(c, p, 4, true);
  EXPECT_THAT(refusal([&] { load_block("gpt", c.file(), with_heads(2)); }),
              AllOf(HasSubstr("--weights-prefix"), HasSubstr("'transformer.h.0.attn'"),
                    HasSubstr("'transformer.h.1.attn'")));
  // The block's own place, the layer that it is in, and with a dot at the end.
  for (const char* prefix : {"transformer.h.1.attn", "transformer.h.1", "transformer.h.1."}) {
    EXPECT_EQ(load_block("gpt", c.file(), with_heads(2, prefix)).prefix, "transformer.h.1.attn");
  }
  // Not the beginning of a name, but of its parts.
  EXPECT_THAT(refusal([&] { load_block("gpt", c.file(), with_heads(2, "transformer.h.")); }),
              HasSubstr("2 places"));
  EXPECT_THAT(refusal([&] { load_block("gpt", c.file(), with_heads(2, "transformer.h.1.at")); }),
              AllOf(HasSubstr("no name there"), HasSubstr("transformer.h.0.attn.bias")));
}

// A trained model's own intermediates: attention of the first layer, after its projection.
TEST(LoadGpt, RealWeights) {
  const char* shared = std::getenv("QKV_SHARED");
  const std::filesystem::path folder =
      (shared != nullptr && *shared != '\0'
           ? std::filesystem::path(shared)
           : std::filesystem::path(QKV_SOURCE_DIR).parent_path() / "shared") /
      "models" / "nano-gpt-sort";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "no folder models/nano-gpt-sort in $QKV_SHARED or ../shared";
  }
  const auto loaded =
      load_gpt(WeightFile::open(folder / "model.safetensors"), with_heads(3, "transformer.h.0"));
  const WeightFile partials = WeightFile::open(folder / "partials.safetensors");
  const FileTensor x = partials.read("ln1"), y = partials.read("yProj");
  Tensor out(DType::f32, y.view.shape());
  gpt_forward(loaded.weights, x.view, out);
  const Tensor expected = Tensor::copy_of(y.view);
  float largest = 1;
  for (const float value : expected.as<float>()) largest = std::max(largest, std::abs(value));
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    // The file's own rounding, 1e-6 of the largest, and ours: a few sums of 48 terms in f32.
    EXPECT_NEAR(out.as<float>()[at], expected.as<float>()[at], 1e-5 * largest) << i;
  }
}

TEST(LoadGpt, SaysWhatIsMissing) {
  Checkpoint c;
  add_gpt(c, "h.0.attn.", 4, true);
  c.remove("h.0.attn.c_proj.weight");
  EXPECT_THAT(refusal([&] { load_block("gpt", c.file(), with_heads(2)); }),
              AllOf(HasSubstr("w.safetensors"), HasSubstr("expected c_attn.weight, c_proj.weight"),
                    HasSubstr("but no c_proj.weight"), HasSubstr("'h.0.attn'")));
  Checkpoint other;
  for (int i = 0; i < 30; ++i) other.add("layer." + std::to_string(i) + ".weight", {2, 2});
  EXPECT_THAT(refusal([&] { load_block("gpt", other.file(), with_heads(2)); }),
              AllOf(HasSubstr("expected c_attn.weight, c_proj.weight"),
                    HasSubstr("'layer.0.weight'"), HasSubstr("and 22 more")));
  EXPECT_THAT(refusal([&] { load_block("gpt", Checkpoint().file(), with_heads(2)); }),
              HasSubstr("no tensors"));
}

TEST(LoadGpt, SaysWhatIsIllShaped) {
  const auto with = [](const char* name, const Dims& shape) {
    Checkpoint c;
    add_gpt(c, "attn.", 4, true);
    c.remove(std::string("attn.") + name);
    c.add(std::string("attn.") + name, shape);
    return refusal([&] { load_block("gpt", c.file(), with_heads(2)); });
  };
  EXPECT_THAT(with("c_attn.weight", {4, 10}), AllOf(HasSubstr("'attn.c_attn.weight'"),
                                                    HasSubstr("[d, 3·d]"), HasSubstr("[4, 10]")));
  EXPECT_THAT(with("c_proj.weight", {4, 5}),
              AllOf(HasSubstr("'attn.c_proj.weight'"), HasSubstr("[4, 4]"), HasSubstr("[4, 5]")));
  EXPECT_THAT(with("c_attn.bias", {4}), AllOf(HasSubstr("[12]"), HasSubstr("found [4]")));
  EXPECT_THAT(with("c_attn.weight", {0, 0}), HasSubstr("[0, 0]"));
  Checkpoint c;
  add_gpt(c, "attn.", 4, true);
  for (const int heads : {3, 8, 0, -1}) {
    EXPECT_THAT(refusal([&] { load_block("gpt", c.file(), with_heads(heads)); }),
                HasSubstr("heads"));
  }
}

TEST(LoadGpt, RefusesWeightsThatAreNoFloats) {
  Checkpoint c;
  add_gpt(c, "", 4, true);
  c.remove("c_proj.weight");
  c.add("c_proj.weight", Tensor(DType::i32, {4, 4}));
  try {
    load_block("gpt", c.file(), with_heads(2));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::type);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("c_proj.weight"), HasSubstr("i32")));
  }
}

// ---------------------------------------------------------------- detector

// Folded by hand, from the checkpoint's own tensors.
struct Folds {
  const Checkpoint& checkpoint;
  std::deque<FoldedConv> kept;
  double eps = 1e-3;

  ConvWeights operator()(const std::string& name) {
    BatchNorm norm{checkpoint[name + ".bn.weight"], checkpoint[name + ".bn.bias"],
                   checkpoint[name + ".bn.running_mean"], checkpoint[name + ".bn.running_var"],
                   eps};
    kept.push_back(fold_batch_norm({checkpoint[name + ".conv.weight"], {}}, norm));
    return kept.back().view();
  }
  DetectorWeights detector(const std::string& p, std::int64_t c, std::int64_t heads) {
    const std::int64_t head_dim = c / heads;
    return {
        (*this)(p + "qkv"), (*this)(p + "proj"), (*this)(p + "pe"), heads, head_dim / 2, head_dim};
  }
  PsaBlockWeights psa(const std::string& p, std::int64_t c, std::int64_t heads) {
    return {detector(p + "attn.", c, heads), (*this)(p + "ffn.0"), (*this)(p + "ffn.1"), true};
  }
};

TEST(LoadDetector, UltralyticsNames) {
  Checkpoint c;
  add_psa_modules(c, "model.10.m.0.", 8);
  Folds fold{c, {}};
  const auto loaded = load_block("detector", c.file(), with_heads(2, "model.10.m.0.attn"));
  EXPECT_EQ(loaded.prefix, "model.10.m.0.attn");
  expect_same(loaded, fold.detector("model.10.m.0.attn.", 8, 2), {2, 8, 3, 4});
  EXPECT_THAT(refusal([&] { load_block("detector", c.file(), {}); }), HasSubstr("--heads"));
}

TEST(LoadDetector, EpsAndRatioAreOptions) {
  Checkpoint c;
  add_attention_modules(c, "", 8, 24);  // attn_ratio 1
  LoadOptions options = with_heads(2);
  EXPECT_THAT(refusal([&] { load_block("detector", c.file(), options); }),
              AllOf(HasSubstr("'qkv.conv.weight'"), HasSubstr("[16, 8, 1, 1]"),
                    HasSubstr("[24, 8, 1, 1]")));
  options.attn_ratio = 1;
  options.bn_eps = 0.5;
  Folds fold{c, {}, 0.5};
  DetectorWeights direct = fold.detector("", 8, 2);
  direct.key_dim = 4;
  expect_same(load_block("detector", c.file(), options), direct, {1, 8, 2, 2});
}

// conv.weight and conv.bias without bn, and plain weight and bias.
TEST(LoadDetector, FoldedNames) {
  for (const std::string conv : {".conv", ""}) {
    Checkpoint c;
    DetectorWeights direct;
    direct.qkv = {c.add("qkv" + conv + ".weight", {16, 8, 1, 1}),
                  c.add("qkv" + conv + ".bias", {16})};
    direct.proj = {c.add("proj" + conv + ".weight", {8, 8, 1, 1}),
                   c.add("proj" + conv + ".bias", {8})};
    direct.pe = {c.add("pe" + conv + ".weight", {8, 1, 3, 3}), c.add("pe" + conv + ".bias", {8})};
    direct.heads = 2;
    direct.key_dim = 2;
    direct.head_dim = 4;
    expect_same(load_block("detector", c.file(), with_heads(2)), direct, {1, 8, 3, 3});
  }
}

TEST(LoadDetector, HalfABatchNormIsRefused) {
  Checkpoint c;
  add_attention_modules(c, "", 8, 16);
  c.remove("proj.bn.running_var");
  EXPECT_THAT(refusal([&] { load_block("detector", c.file(), with_heads(2)); }),
              AllOf(HasSubstr("'proj.bn.running_var'"), HasSubstr("no such tensor")));
}

TEST(LoadPsa, HeadsComeFromTheChannels) {
  Checkpoint c;
  add_psa_modules(c, "model.10.m.0.", 128);
  Folds fold{c, {}};
  const auto loaded = load_block("psa", c.file(), {});
  EXPECT_EQ(block_heads(loaded.weights), 2);
  expect_same(loaded, fold.psa("model.10.m.0.", 128, 2), {1, 128, 2, 3});
}

TEST(LoadC2psa, AllBlocks) {
  Checkpoint c;
  const std::string p = "model.10.";
  add_conv_module(c, p + "cv1", {16, 16, 1, 1});
  add_conv_module(c, p + "cv2", {16, 16, 1, 1});
  add_psa_modules(c, p + "m.0.", 8);
  add_psa_modules(c, p + "m.1.", 8);
  add_conv_module(c, "model.9.cv1", {8, 16, 1, 1});
  Folds fold{c, {}};
  const C2psaWeights direct{
      fold(p + "cv1"), fold(p + "cv2"), {fold.psa(p + "m.0.", 8, 1), fold.psa(p + "m.1.", 8, 1)}};
  const auto loaded = load_block("c2psa", c.file(), {});
  EXPECT_EQ(loaded.prefix, "model.10");
  EXPECT_EQ(std::get<C2psaWeights>(loaded.weights).blocks.size(), 2u);
  expect_same(loaded, direct, {1, 16, 3, 2});
  EXPECT_THAT(refusal([&] { load_block("psa", c.file(), {}); }),
              AllOf(HasSubstr("'model.10.m.0'"), HasSubstr("'model.10.m.1'")));
}

// YOLOv10's PSA: one block, whose convolutions have no m.0 before them.
TEST(LoadC2psa, OneBlockWithoutAName) {
  Checkpoint c;
  add_conv_module(c, "model.10.cv1", {16, 16, 1, 1});
  add_conv_module(c, "model.10.cv2", {16, 16, 1, 1});
  add_psa_modules(c, "model.10.", 8);
  Folds fold{c, {}};
  const C2psaWeights direct{
      fold("model.10.cv1"), fold("model.10.cv2"), {fold.psa("model.10.", 8, 1)}};
  expect_same(load_block("c2psa", c.file(), {}), direct, {1, 16, 2, 2});
}

// ---------------------------------------------------------------- all

TEST(BlockFile, TensorsInMemoryAreAFileToo) {
  Checkpoint c;
  add_gpt(c, "attn.", 4, true);
  const WeightFile file("a dict", c.named());
  EXPECT_EQ(run(load_block("gpt", file, with_heads(2)).weights, {1, 2, 4}),
            run(load_block("gpt", c.file(), with_heads(2)).weights, {1, 2, 4}));
  EXPECT_THAT(refusal([&] { load_block("vit", file, with_heads(2)); }), HasSubstr("[a dict]"));
}

TEST(BlockFile, UnknownNamesAreRefused) {
  EXPECT_THAT(refusal([] { load_block("lstm", Checkpoint().file(), {}); }),
              AllOf(HasSubstr("transformer, vit, detector, psa, c2psa, gpt"), HasSubstr("lstm")));
  EXPECT_THAT(refusal([] { WeightFile::open("w.pt"); }),
              AllOf(HasSubstr(".safetensors or .npz"), HasSubstr(".pt")));
}

TEST(BlockFile, OnlyATransformerHasAMemory) {
  Checkpoint c;
  add_gpt(c, "", 4, true);
  const auto loaded = load_block("gpt", c.file(), with_heads(2));
  EXPECT_THAT(refusal([&] { run(loaded.weights, {1, 2, 4}, {1, 2, 4}); }), HasSubstr("memory"));
  EXPECT_THAT(refusal([&] { run(loaded.weights, {1, 2, 2, 4}); }), HasSubstr("[B, T, width]"));
}

}  // namespace
}  // namespace qkv
