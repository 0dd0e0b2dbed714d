// The blocks against PyTorch. The outputs of PyTorch are no part of the project: they are made by
// tests/golden/make_torch_goldens.py and found in the folder that QKV_GOLDEN names; without it
// these tests are skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "models/vision.h"
#include "qkv/detector.h"
#include "qkv/gpt.h"
#include "qkv/safetensors.h"
#include "qkv/transformer.h"
#include "qkv/vit.h"
#include "tests/block_oracle.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

// A file of the folder, in f32 as it is stored or widened to f64 (the same numbers).
class Weights {
 public:
  Weights(const SafetensorsFile& file, DType dtype) : file_(file), dtype_(dtype) {}

  TensorView operator[](const std::string& name) {
    kept_.push_back(Tensor::copy_of(file_.tensor(name), dtype_));
    return kept_.back().view();
  }

  LinearWeights linear(const std::string& name) {
    return {(*this)[name + ".weight"], (*this)[name + ".bias"]};
  }

  // A convolution and its BatchNorm.
  ConvWeights conv(const std::string& name) {
    folded_.push_back(fold_batch_norm(
        {(*this)[name + ".conv.weight"], {}},
        {(*this)[name + ".bn.weight"], (*this)[name + ".bn.bias"],
         (*this)[name + ".bn.running_mean"], (*this)[name + ".bn.running_var"], 1e-3}));
    return folded_.back().view();
  }

  DetectorWeights attention(const std::string& prefix, std::int64_t dim) {
    const DetectorDims dims = detector_dims(dim, c2psa_heads(dim));
    return {conv(prefix + "qkv"), conv(prefix + "proj"), conv(prefix + "pe"),
            dims.heads,           dims.key_dim,          dims.head_dim};
  }

  PsaBlockWeights block(const std::string& prefix, std::int64_t dim) {
    return {attention(prefix + "attn.", dim), conv(prefix + "ffn.0"), conv(prefix + "ffn.1")};
  }

 private:
  const SafetensorsFile& file_;
  DType dtype_;
  std::deque<Tensor> kept_;  // views of its elements stay good when it grows
  std::deque<FoldedConv> folded_;
};

class Golden : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("QKV_GOLDEN");
    if (folder == nullptr || *folder == '\0') {
      GTEST_SKIP() << "QKV_GOLDEN is not set: run tests/golden/make_torch_goldens.py (it needs "
                      "PyTorch) and set QKV_GOLDEN to the folder that it wrote";
    }
    folder_ = folder;
  }

  using Run = std::function<void(Weights&, const MutableTensorView& out, const BlockOptions&)>;

  // `sums`: lengths of the sums on the way, the first of them that which makes query and key; d_k
  // the width of these. See Tolerance.
  void compare(const std::string& name, const std::vector<std::int64_t>& sums, std::int64_t d_k,
               const Run& run) {
    const SafetensorsFile file(folder_ / (name + ".safetensors"));
    const TensorView expected = file.tensor("out");
    const Tensor aligned = Tensor::copy_of(expected);
    double largest = 0;
    for (double value : aligned.as<double>()) largest = std::max(largest, std::abs(value));
    Tolerance tolerance;
    for (std::int64_t n : sums) tolerance.sum_of(n);
    for (const DType dtype : {DType::f64, DType::f32}) {
      Weights weights(file, dtype);
      Tensor out(DType::f64, expected.shape());
      Scores scores;
      double weights_off = 0;
      run(weights, out, {.observer = [&](std::string_view step, const TensorView& value) {
            if (step.ends_with("scores")) count(value, scores);
            if (step == "weights" && file.contains("weights")) {
              weights_off = max_difference(value, file.tensor("weights"));
            }
          }});
      if (dtype == DType::f64) tolerance.scores_of(sums.front(), d_k, scores);
      const double off = max_difference(out, expected);
      // In f64 PyTorch's own roundings are as large as the block's.
      const double allowed = tolerance.of(dtype == DType::f64 ? 0x1p-51 : 0x1p-23, largest);
      EXPECT_LE(off, allowed) << name << " in " << name_of(dtype);
      EXPECT_LE(weights_off, allowed) << name << " in " << name_of(dtype);
      std::printf("  %-18s %s  max error %.2e  allowed %.2e  max|y| %.2f", name.c_str(),
                  std::string(name_of(dtype)).c_str(), off, allowed, largest);
      if (file.contains("weights")) std::printf("  weights %.2e", weights_off);
      std::printf("\n");
    }
  }

  static void count(const TensorView& value, Scores& scores) {
    const Tensor wide = Tensor::copy_of(value, DType::f64);
    for (double score : wide.as<double>()) scores.squares += score * score;
    scores.count += wide.size();
  }

  std::filesystem::path folder_;
};

TEST_F(Golden, MultiheadAttention) {
  compare("mha_self", {512, 20, 512}, 64, [](Weights& w, const auto& out, const auto& options) {
    const auto weights = TransformerWeights::from_packed(
        w["in_proj_weight"], w["in_proj_bias"], w["out_proj.weight"], w["out_proj.bias"], 8);
    transformer_forward(weights, w["x"], out, options);
  });
  compare("mha_cross", {512, 33, 512}, 64, [](Weights& w, const auto& out, const auto& options) {
    const auto weights = TransformerWeights::from_packed(
        w["in_proj_weight"], w["in_proj_bias"], w["out_proj.weight"], w["out_proj.bias"], 8);
    transformer_forward(weights, w["x"], w["key"], out, options);
  });
}

// Widths of its own for key and value: PyTorch keeps the weights apart then, the biases not.
TEST_F(Golden, MultiheadAttentionWithKdimAndVdim) {
  compare("mha_kdim_vdim", {512, 33, 512}, 64,
          [](Weights& w, const auto& out, const auto& options) {
            const TensorView bias = w["in_proj_bias"];
            const TransformerWeights weights{{w["q_proj_weight"], bias.slice(0, 0, 512)},
                                             {w["k_proj_weight"], bias.slice(0, 512, 1024)},
                                             {w["v_proj_weight"], bias.slice(0, 1024, 1536)},
                                             w.linear("out_proj"),
                                             8};
            transformer_forward(weights, w["x"], w["key"], w["value"], out, options);
          });
}

TEST_F(Golden, Vit) {
  compare("vit", {768, 197, 768}, 64, [](Weights& w, const auto& out, const auto& options) {
    vit_forward({w.linear("qkv"), w.linear("proj"), {}, {}, 12}, w["x"], out, options);
  });
  compare("vit_qk_norm", {768 + 64, 197, 768}, 64,
          [](Weights& w, const auto& out, const auto& options) {
            VitWeights weights{w.linear("qkv"), w.linear("proj"), {}, {}, 12};
            weights.q_norm = NormWeights{w["q_norm.weight"], w["q_norm.bias"], 1e-6};
            weights.k_norm = NormWeights{w["k_norm.weight"], w["k_norm.bias"], 1e-6};
            vit_forward(weights, w["x"], out, options);
          });
}

TEST_F(Golden, Gpt2) {
  compare("gpt2", {768, 256, 768}, 64, [](Weights& w, const auto& out, const auto& options) {
    const auto weights = GptWeights::from_arrays(w["c_attn_weight"], w["c_attn_bias"],
                                                 w["c_proj_weight"], w["c_proj_bias"], 12);
    gpt_forward(weights, w["x"], out, options);
  });
}

TEST_F(Golden, Detector) {
  compare("detector", {128, 400, 9, 128}, 32, [](Weights& w, const auto& out, const auto& options) {
    detector_forward(w.attention("", 128), w["x"], out, options);
  });
  compare("psa_block", {128, 400, 9, 128, 128, 256}, 32,
          [](Weights& w, const auto& out, const auto& options) {
            psa_block_forward(w.block("", 128), w["x"], out, options);
          });
  compare(
      "c2psa", {256 + 128, 400, 9, 128, 128, 256, 256}, 32,
      [](Weights& w, const auto& out, const auto& options) {
        c2psa_forward({w.conv("cv1"), w.conv("cv2"), {w.block("m.0.", 128)}}, w["x"], out, options);
      });
  // Two blocks: every sum but the first and the last twice.
  compare("c2psa_two_blocks", {128 + 64, 64, 117, 117, 9, 9, 64, 64, 64, 64, 128, 128, 128}, 32,
          [](Weights& w, const auto& out, const auto& options) {
            c2psa_forward(
                {w.conv("cv1"), w.conv("cv2"), {w.block("m.0.", 64), w.block("m.1.", 64)}}, w["x"],
                out, options);
          });
}

// tests/golden/make_vit_golden.py: transformers' own ViT-B/16, weights and names as it saves them.
TEST_F(Golden, WholeVit) {
  if (!std::filesystem::exists(folder_ / "vit-b16")) {
    GTEST_SKIP() << "no vit-b16 in QKV_GOLDEN: run tests/golden/make_vit_golden.py";
  }
  const SafetensorsFile golden(folder_ / "vit-b16" / "golden.safetensors");
  const VisionModel model = load_vision(folder_ / "vit-b16");
  const PreparedVision vision(model.weights);
  const TensorView exact = golden.tensor("exact");
  Tensor scores(DType::f32, exact.shape());
  vision.forward(golden.tensor("pixels"), scores);
  const double off = max_difference(scores, exact);
  std::printf("  ViT-B/16: off by %.1e, transformers in f32 by %.1e\n", off,
              max_difference(golden.tensor("scores"), exact));
  EXPECT_LE(off, 1e-4);
}

}  // namespace
}  // namespace qkv::testing
