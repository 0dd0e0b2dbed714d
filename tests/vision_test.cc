// Whole vision transformers, from checkpoints with the names of Hugging Face and timm, against an
// independent evaluation in f64.

#include "models/vision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "io/test_files.h"
#include "models/test_weights.h"
#include "tests/block_oracle.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

constexpr std::int64_t kWidth = 8, kHeads = 2, kHidden = 12, kPatch = 2, kSide = 6, kClasses = 5;
constexpr std::int64_t kLayers = 2, kPatches = (kSide / kPatch) * (kSide / kPatch);

bool everything(std::int64_t, std::int64_t) { return true; }

std::vector<double> numbers(const TensorView& view) {
  const Tensor wide = Tensor::copy_of(view, DType::f64);
  return {wide.as<double>().begin(), wide.as<double>().end()};
}

Matrix sum(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

Matrix columns(const Matrix& m, std::int64_t begin, std::int64_t end) {
  Matrix part(m.rows, end - begin);
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = begin; c < end; ++c) part(r, c - begin) = m(r, c);
  }
  return part;
}

void scale(Matrix& m, const std::vector<double>& by) {
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < m.columns; ++c) m(r, c) *= by[static_cast<std::size_t>(c)];
  }
}

// How a library names things.
struct Names {
  std::string cls, positions, patch, norm, head;
  std::function<std::string(std::int64_t, const std::string&)> layer;  // "query", "norm1", …
};

struct Model {
  Checkpoint weights;
  Names names;
  bool timm, with_cls = true, mean_pooled = false;
  double eps;

  Model(Names names_, bool timm_, double eps_, bool cls = true, bool fc_norm = false)
      : names(std::move(names_)),
        timm(timm_),
        with_cls(cls),
        mean_pooled(fc_norm || !cls),
        eps(eps_) {
    if (cls) weights.add(names.cls, {1, 1, kWidth});
    weights.add(names.positions, {1, kPatches + (cls ? 1 : 0), kWidth});
    linear(names.patch, {kWidth, 3, kPatch, kPatch});
    for (std::int64_t i = 0; i < kLayers; ++i) {
      if (timm) {
        linear(names.layer(i, "qkv"), {3 * kWidth, kWidth});
        weights.add(names.layer(i, "ls1") + ".gamma", {kWidth});
        weights.add(names.layer(i, "ls2") + ".gamma", {kWidth});
      } else {
        for (const char* part : {"query", "key", "value"})
          linear(names.layer(i, part), {kWidth, kWidth});
      }
      linear(names.layer(i, "output"), {kWidth, kWidth});
      linear(names.layer(i, "norm1"), {kWidth});
      linear(names.layer(i, "norm2"), {kWidth});
      linear(names.layer(i, "fc1"), {kHidden, kWidth});
      linear(names.layer(i, "fc2"), {kWidth, kHidden});
    }
    linear(names.norm, {kWidth});
    linear(names.head, {kClasses, kWidth});
  }

  void linear(const std::string& name, const Dims& shape) {
    weights.add(name + ".weight", shape);
    weights.add(name + ".bias", {shape[0]});
  }

  Matrix apply(const std::string& name, const Matrix& x) const {
    return linear_oracle(x, matrix_of(weights[name + ".weight"]), numbers(weights[name + ".bias"]));
  }
  Matrix norm(const std::string& name, const Matrix& x) const {
    return layer_norm_oracle(x, kWidth, numbers(weights[name + ".weight"]),
                             numbers(weights[name + ".bias"]), eps);
  }

  Matrix embed(const TensorView& pixels) const {
    const TensorView conv = weights[names.patch + ".weight"];
    const std::int64_t first = with_cls ? 1 : 0, side = kSide / kPatch;
    Matrix x(kPatches + first, kWidth);
    for (std::int64_t n = 0; n < kPatches; ++n) {
      for (std::int64_t o = 0; o < kWidth; ++o) {
        double value = weights[names.patch + ".bias"].at({o});
        for (std::int64_t c = 0; c < 3; ++c) {
          for (std::int64_t u = 0; u < kPatch; ++u) {
            for (std::int64_t v = 0; v < kPatch; ++v) {
              value += conv.at({o, c, u, v}) *
                       pixels.at({c, n / side * kPatch + u, n % side * kPatch + v});
            }
          }
        }
        x(n + first, o) = value;
      }
    }
    for (std::int64_t o = 0; with_cls && o < kWidth; ++o)
      x(0, o) = weights[names.cls].at({0, 0, o});
    return sum(x, matrix_of(weights[names.positions].select(0, 0)));
  }

  Matrix layer(std::int64_t i, const Matrix& x) const {
    const Matrix normed = norm(names.layer(i, "norm1"), x);
    Matrix q, k, v;
    if (timm) {
      const Matrix qkv = apply(names.layer(i, "qkv"), normed);
      q = columns(qkv, 0, kWidth), k = columns(qkv, kWidth, 2 * kWidth);
      v = columns(qkv, 2 * kWidth, 3 * kWidth);
    } else {
      q = apply(names.layer(i, "query"), normed), k = apply(names.layer(i, "key"), normed);
      v = apply(names.layer(i, "value"), normed);
    }
    Scores scores;
    Matrix added =
        apply(names.layer(i, "output"), attention_oracle(q, k, v, kHeads, everything, scores));
    if (timm) scale(added, numbers(weights[names.layer(i, "ls1") + ".gamma"]));
    const Matrix y = sum(x, added);
    Matrix hidden = apply(names.layer(i, "fc1"), norm(names.layer(i, "norm2"), y));
    for (double& h : hidden.values) h = h * std::erfc(-h / std::sqrt(2.0)) / 2;
    added = apply(names.layer(i, "fc2"), hidden);
    if (timm) scale(added, numbers(weights[names.layer(i, "ls2") + ".gamma"]));
    return sum(y, added);
  }

  std::vector<double> operator()(const TensorView& pixels, bool norm_pooled) const {
    Matrix x = embed(pixels);
    for (std::int64_t i = 0; i < kLayers; ++i) x = layer(i, x);
    if (!norm_pooled) x = norm(names.norm, x);
    Matrix pooled(1, kWidth);
    const std::int64_t first = with_cls ? 1 : 0;
    for (std::int64_t c = 0; c < kWidth; ++c) {
      if (!mean_pooled) {
        pooled(0, c) = x(0, c);
        continue;
      }
      for (std::int64_t n = 0; n < kPatches; ++n) pooled(0, c) += x(n + first, c) / kPatches;
    }
    if (norm_pooled) pooled = norm(names.norm, pooled);
    return apply(names.head, pooled).values;
  }
};

Names transformers4(const std::string& prefix) {
  return {prefix + "embeddings.cls_token",
          prefix + "embeddings.position_embeddings",
          prefix + "embeddings.patch_embeddings.projection",
          prefix + "layernorm",
          "classifier",
          [prefix](std::int64_t i, const std::string& part) {
            static const std::map<std::string, std::string> parts = {
                {"query", "attention.attention.query"}, {"key", "attention.attention.key"},
                {"value", "attention.attention.value"}, {"output", "attention.output.dense"},
                {"norm1", "layernorm_before"},          {"norm2", "layernorm_after"},
                {"fc1", "intermediate.dense"},          {"fc2", "output.dense"}};
            return prefix + "encoder.layer." + std::to_string(i) + "." + parts.at(part);
          }};
}

Names transformers5() {
  Names names = transformers4("vit.");
  names.layer = [](std::int64_t i, const std::string& part) {
    static const std::map<std::string, std::string> parts = {{"query", "attention.q_proj"},
                                                             {"key", "attention.k_proj"},
                                                             {"value", "attention.v_proj"},
                                                             {"output", "attention.o_proj"},
                                                             {"norm1", "layernorm_before"},
                                                             {"norm2", "layernorm_after"},
                                                             {"fc1", "mlp.fc1"},
                                                             {"fc2", "mlp.fc2"}};
    return "vit.layers." + std::to_string(i) + "." + parts.at(part);
  };
  return names;
}

Names timm(const std::string& norm) {
  return {"cls_token",
          "pos_embed",
          "patch_embed.proj",
          norm,
          "head",
          [](std::int64_t i, const std::string& part) {
            static const std::map<std::string, std::string> parts = {
                {"qkv", "attn.qkv"}, {"output", "attn.proj"}, {"norm1", "norm1"},
                {"norm2", "norm2"},  {"fc1", "mlp.fc1"},      {"fc2", "mlp.fc2"},
                {"ls1", "ls1"},      {"ls2", "ls2"}};
            return "blocks." + std::to_string(i) + "." + parts.at(part);
          }};
}

constexpr const char* kHuggingFaceConfig = R"({"model_type": "vit", "hidden_size": 8,
  "image_size": 6, "patch_size": 2, "num_attention_heads": 2, "num_hidden_layers": 2,
  "intermediate_size": 12, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
  "id2label": {"0": "cat", "1": "dog", "2": "tree", "4": "house"}})";
constexpr const char* kTimmConfig = R"({"architecture": "vit_tiny", "num_classes": 5,
  "model_args": {"num_heads": 2}, "label_names": ["a", "b", "c", "d", "e"],
  "pretrained_cfg": {"input_size": [3, 6, 6], "interpolation": "bilinear", "crop_pct": 0.75,
  "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}})";

class Vision : public io::FileTest {
 protected:
  void save(const Model& model, const std::string& config) {
    model.weights.save(path("model.safetensors"));
    file("config.json", config);
  }
  // Layers of width 8 with weights up to 1: sums of a few dozen numbers below 10. timm's layer
  // scale is folded into weights that stay f32, rounded once: 2⁻²⁴ of each of them, also in f64.
  void check(const Model& model, bool norm_pooled) {
    const VisionModel loaded = load_vision(directory_);
    const PreparedVision vision(loaded.weights);
    const Tensor pixels = random_tensor({3, 3, kSide, kSide}, 5);
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor in = Tensor::copy_of(pixels.view(), dtype);
      Tensor scores(dtype, {3, kClasses});
      vision.forward(in, scores);
      for (std::int64_t b = 0; b < 3; ++b) {
        const std::vector<double> expected = model(pixels.view().select(0, b), norm_pooled);
        for (std::int64_t c = 0; c < kClasses; ++c) {
          EXPECT_NEAR(scores.view().at({b, c}), expected[static_cast<std::size_t>(c)],
                      dtype == DType::f32 ? 1e-4
                      : model.timm        ? 1e-6
                                          : 1e-12);
        }
      }
    }
  }
};

TEST_F(Vision, HuggingFace) {
  const Model model(transformers4("vit."), false, 1e-5);
  save(model, kHuggingFaceConfig);
  file("preprocessor_config.json", R"({"do_resize": true, "size": {"height": 6, "width": 6},
    "resample": 3, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]})");
  check(model, false);
  const VisionModel loaded = load_vision(directory_);
  EXPECT_EQ(loaded.labels, (std::vector<std::string>{"cat", "dog", "tree", "class 3", "house"}));
  EXPECT_EQ(loaded.processing.resample, io::Resample::bicubic);
  EXPECT_EQ(loaded.processing.height, 6);
  EXPECT_EQ(loaded.processing.mean[2], 0.3);
  EXPECT_EQ(loaded.processing.deviation[0], 0.4);
}

TEST_F(Vision, HuggingFaceNewer) {
  const Model model(transformers5(), false, 1e-5);
  save(model, kHuggingFaceConfig);
  check(model, false);
}

TEST_F(Vision, Timm) {
  const Model model(timm("norm"), true, 1e-6);
  save(model, kTimmConfig);
  check(model, false);
  const VisionModel loaded = load_vision(directory_);
  EXPECT_EQ(loaded.origin, "timm");
  EXPECT_EQ(loaded.labels.at(4), "e");
  EXPECT_EQ(loaded.processing.shortest_edge, 8);
  EXPECT_EQ(loaded.processing.crop_height, 6);
  EXPECT_EQ(loaded.processing.resample, io::Resample::bilinear);
}

TEST_F(Vision, TimmMeanPooled) {
  const Model pooled(timm("fc_norm"), true, 1e-6, true, true);
  save(pooled, kTimmConfig);
  check(pooled, true);
  const Model bare(timm("norm"), true, 1e-6, false);
  save(bare, kTimmConfig);
  check(bare, false);
}

TEST_F(Vision, RefusesOtherModels) {
  const Model model(transformers4("vit."), false, 1e-5);
  const auto refused = [&](const std::string& config, const std::string& fragment) {
    save(model, config);
    try {
      PreparedVision{load_vision(directory_).weights};
      ADD_FAILURE() << fragment;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos) << error.what();
    }
  };
  const auto with = [](std::string config, const std::string& what, const std::string& by) {
    return config.replace(config.find(what), what.size(), by);
  };
  refused("{", "config.json");
  refused("{}", "image_size");
  refused(with(kHuggingFaceConfig, "\"vit\"", "\"swin\""), "model_type");
  refused(with(kHuggingFaceConfig, "\"gelu\"", "\"mish\""), "hidden_act");
  refused(with(kHuggingFaceConfig, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
          "layer.2");
  refused(with(kHuggingFaceConfig, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": -1"),
          "num_hidden_layers");
  refused(with(kHuggingFaceConfig, "\"num_attention_heads\": 2", "\"num_attention_heads\": 3"),
          "heads");
  refused(with(kHuggingFaceConfig, "\"image_size\": 6", "\"image_size\": 8"), "positions");
  refused(with(kHuggingFaceConfig, "\"image_size\": 6", "\"image_size\": 7"), "height");
  refused(with(kHuggingFaceConfig, "\"image_size\": 6", "\"image_size\": 1e30"), "image_size");
}

TEST_F(Vision, RefusesBadCalls) {
  save(Model(transformers4(""), false, 1e-5), kHuggingFaceConfig);
  const PreparedVision vision(load_vision(directory_).weights);
  Tensor scores = random_tensor({2, kClasses}, 1);
  const Tensor small = random_tensor({2, 3, 6, 4}, 2), pixels = random_tensor({1, 3, 6, 6}, 2);
  expect_refused(scores, "PreparedVision", "pixels", [&] { vision.forward(small, scores); });
  expect_refused(scores, "PreparedVision", "scores", [&] { vision.forward(pixels, scores); });
  const BlockPlan plan = vision.plan(4);
  EXPECT_GT(plan.flops, 0);
  EXPECT_GT(plan.workspace, 0);
  EXPECT_NE(to_string(plan).find("1.mlp.reduce"), std::string::npos);
}

}  // namespace
}  // namespace qkv::testing
