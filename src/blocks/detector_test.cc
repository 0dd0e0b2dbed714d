#include "qkv/detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

using ::testing::ElementsAre;

// Note 000: four pixels of four channels; one head, key_dim 2, head_dim 2 ≠ 4 / 1.
struct Pixels {
  Tensor tokens = tensor_of({1, 0, 1, 2, 2, 1, 0, 2, 3, 0, 1, 2, 4, 1, 0, 2}, {4, 4});
  Tensor wq = tensor_of({1, 0, 0, 0, 0, 1, 0, 0}, {4, 2});  // (in, out), as the note writes them
  Tensor wk = tensor_of({0, 1, 1, 0, 0, 0, 0, 0}, {4, 2});
  Tensor wv = tensor_of({0, 0, 0, 1, 1, 0, 0, 0}, {4, 2});
  Tensor qkv{DType::f64, {6, 4, 1, 1}};
  DetectorWeights weights;

  Pixels() {
    int row = 0;
    for (const Tensor* w : {&wq, &wk, &wv}) {
      for (std::int64_t o = 0; o < 2; ++o, ++row) {
        for (std::int64_t i = 0; i < 4; ++i) {
          qkv.view().set({row, i, 0, 0}, w->view().at({i, o}));
        }
      }
    }
    weights.qkv.weight = qkv.view();
    weights.key_dim = weights.head_dim = 2;
  }

  // [N, C] is the image [1, C, 2, 2] by strides.
  TensorView image() const {
    return TensorView(tokens.view().data(), DType::f64, {1, 4, 2, 2}, {0, 1, 8, 4});
  }
};

TEST(Detector, EveryNumberOfTheNoteOnPixels) {
  const Pixels p;
  Tensor out(DType::f64, {1, 2, 2, 2});
  Trace trace;
  detector_forward(p.weights, p.image(), out, {.observer = trace.observer()});

  EXPECT_THAT(trace.names, ElementsAre("input", "qkv", "query", "key", "value", "scores", "weights",
                                       "heads", "concat", "output"));
  EXPECT_EQ(trace.shape("qkv"), "[1, 6, 2, 2]");
  EXPECT_EQ(trace.shape("query"), "[1, 1, 2, 4]");
  EXPECT_EQ(trace.shape("key"), "[1, 1, 2, 4]");
  EXPECT_EQ(trace.shape("value"), "[1, 1, 2, 4]");
  EXPECT_EQ(trace.shape("scores"), "[1, 1, 4, 4]");

  const auto tokens_last = [&](const char* step) { return trace.at(step).view().transpose(2, 3); };
  expect_values(tokens_last("query"), {1, 1, 2, 0, 3, 1, 4, 0}, 0);
  expect_values(tokens_last("key"), {0, 1, 1, 2, 0, 3, 1, 4}, 0);
  expect_values(tokens_last("value"), {1, 0, 0, 1, 1, 0, 0, 1}, 0);
  constexpr double kPrinted = 5e-7;  // the note's page gives six decimals
  expect_values(trace.at("scores"),
                {0.707107, 2.121320, 2.121320, 3.535534, 0, 1.414214, 0, 1.414214, 0.707107,
                 3.535534, 2.121320, 4.949747, 0, 2.828427, 0, 2.828427},
                kPrinted);
  expect_values(trace.at("weights"),
                {0.038248, 0.157323, 0.157323, 0.647107, 0.097785, 0.402215, 0.097785, 0.402215,
                 0.010914, 0.184656, 0.044893, 0.759537, 0.027904, 0.472096, 0.027904, 0.472096},
                kPrinted);
  expect_values(tokens_last("heads"),
                {0.195570, 0.804430, 0.195570, 0.804430, 0.055807, 0.944193, 0.055807, 0.944193},
                kPrinted);
  EXPECT_TRUE(same_bits(trace.at("output"), out));
}

TEST(Detector, WatchingDoesNotChangeABit) {
  const Pixels p;
  Tensor plain(DType::f64, {1, 2, 2, 2}), watched(DType::f64, {1, 2, 2, 2});
  Trace trace;
  detector_forward(p.weights, p.image(), plain);
  detector_forward(p.weights, p.image(), watched, {.observer = trace.observer()});
  EXPECT_TRUE(same_bits(plain, watched));
}

// Note 001: why 4 channels become 8.
TEST(Detector, ShapesOfTheNoteOnAttnRatio) {
  const DetectorDims dims = detector_dims(4, 2, 0.5);
  EXPECT_EQ(dims.head_dim, 2);
  EXPECT_EQ(dims.key_dim, 1);
  EXPECT_EQ(dims.channels, 8);

  const Tensor x = random_tensor({1, 4, 3, 3}, 1), qkv = random_tensor({8, 4, 1, 1}, 2);
  const Tensor proj = random_tensor({4, 4, 1, 1}, 3), pe = random_tensor({4, 1, 3, 3}, 4);
  const DetectorWeights weights{{qkv, {}}, {proj, {}}, {pe, {}}, 2, 1, 2};
  Tensor out(DType::f64, {1, 4, 3, 3});
  Trace trace;
  detector_forward(weights, x, out, {.observer = trace.observer()});
  EXPECT_EQ(trace.shape("qkv"), "[1, 8, 3, 3]");
  EXPECT_EQ(trace.shape("query"), "[1, 2, 1, 9]");
  EXPECT_EQ(trace.shape("key"), "[1, 2, 1, 9]");
  EXPECT_EQ(trace.shape("value"), "[1, 2, 2, 9]");
  EXPECT_EQ(trace.shape("weights"), "[1, 2, 9, 9]");
  EXPECT_EQ(trace.shape("concat"), "[1, 4, 3, 3]");
  EXPECT_EQ(trace.shape("pe"), "[1, 4, 3, 3]");
  EXPECT_EQ(trace.shape("sum"), "[1, 4, 3, 3]");
  EXPECT_EQ(trace.shape("output"), "[1, 4, 3, 3]");
  // Per head: channel 4 is q of head 1.
  for (std::int64_t n = 0; n < 9; ++n) {
    EXPECT_EQ(trace.at("query").view().at({0, 1, 0, n}),
              trace.at("qkv").view().at({0, 4, n / 3, n % 3}));
  }
}

TEST(Detector, DimsTruncateAsTheFamilyDoes) {
  EXPECT_EQ(detector_dims(128, 2).key_dim, 32);
  EXPECT_EQ(detector_dims(10, 2, 0.5).key_dim, 2);  // int(2.5)
  EXPECT_EQ(c2psa_heads(128), 2);
  EXPECT_EQ(c2psa_heads(32), 1);
  EXPECT_THROW(detector_dims(10, 3), Error);
  EXPECT_THROW(detector_dims(4, 4, 0.5), Error);  // no key channel
  EXPECT_THROW(detector_dims(4, 0), Error);
  EXPECT_THROW(detector_dims(4, 1, std::nan("")), Error);
  EXPECT_THROW(detector_dims(4, 1, 1e300), Error);
}

// A 5×4 image whose rows, columns and channels lie in any order is the same image.
TEST(Detector, LayoutOfTheImageIsStrides) {
  const Tensor nchw = random_tensor({2, 6, 5, 4}, 1);
  const Tensor nhwc = Tensor::copy_of(nchw.view().permute({0, 2, 3, 1}));
  const Tensor qkv = random_tensor({20, 6}, 2), bias = random_tensor({20}, 3);
  const Tensor proj = random_tensor({6, 12}, 4), pe = random_tensor({12, 1, 3, 3}, 5);
  const DetectorWeights weights{{qkv, bias}, {proj, {}}, {pe, {}}, 2, 2, 6};
  Tensor a(DType::f64, {2, 6, 5, 4}), b(DType::f64, {2, 5, 4, 6});
  detector_forward(weights, nchw, a);
  detector_forward(weights, nhwc.view().permute({0, 3, 1, 2}), b.view().permute({0, 3, 1, 2}));
  EXPECT_TRUE(same_bits(a, Tensor::copy_of(b.view().permute({0, 3, 1, 2}))));
}

TEST(Detector, EmptyBatchAndImage) {
  const Tensor qkv = random_tensor({8, 4}, 1), pe = random_tensor({4, 1, 3, 3}, 2);
  const DetectorWeights weights{{qkv, {}}, {}, {pe, {}}, 2, 1, 2};
  Tensor none(DType::f32, {0, 4, 3, 3}), flat(DType::f32, {1, 4, 0, 3});
  Tensor out_none(DType::f32, {0, 4, 3, 3}), out_flat(DType::f32, {1, 4, 0, 3});
  EXPECT_NO_THROW(detector_forward(weights, none, out_none));
  EXPECT_NO_THROW(detector_forward(weights, flat, out_flat));
}

struct PsaParts {
  Tensor qkv = random_tensor({16, 8, 1, 1}, 1), proj = random_tensor({8, 8, 1, 1}, 2);
  Tensor pe = random_tensor({8, 1, 3, 3}, 3), expand = random_tensor({16, 8, 1, 1}, 4);
  Tensor reduce = random_tensor({8, 16, 1, 1}, 5);
  PsaBlockWeights weights{{{qkv, {}}, {proj, {}}, {pe, {}}, 2, 2, 4}, {expand, {}}, {reduce, {}}};
};

TEST(PsaBlock, IsItsTwoHalvesWithAndWithoutShortcut) {
  PsaParts parts;
  const Tensor x = random_tensor({1, 8, 3, 3}, 9);
  for (const bool shortcut : {true, false}) {
    parts.weights.shortcut = shortcut;
    Tensor out(DType::f64, {1, 8, 3, 3});
    Trace trace;
    psa_block_forward(parts.weights, x, out, {.observer = trace.observer()});
    EXPECT_THAT(trace.names,
                ElementsAre("input", "attn.input", "attn.qkv", "attn.query", "attn.key",
                            "attn.value", "attn.scores", "attn.weights", "attn.heads",
                            "attn.concat", "attn.pe", "attn.sum", "attn.output", "residual",
                            "ffn.expand", "ffn.silu", "ffn.reduce", "output"));
    for (std::int64_t n = 0; n < 72; ++n) {
      const auto value = [&](const char* step) { return trace.at(step).as<double>()[n]; };
      const double from = shortcut ? x.as<double>()[n] : 0;
      const double residual = shortcut ? value("residual") : 0;
      EXPECT_DOUBLE_EQ(value("residual"), from + value("attn.output"));
      EXPECT_DOUBLE_EQ(out.as<double>()[n], residual + value("ffn.reduce"));
    }
    const double h = trace.at("ffn.expand").as<double>()[5];
    EXPECT_DOUBLE_EQ(trace.at("ffn.silu").as<double>()[5], h / (1 + std::exp(-h)));
  }
}

TEST(C2psa, RunsItsBlocksInTurnOnTheSecondHalf) {
  PsaParts first, second;
  second.weights.shortcut = false;
  const Tensor x = random_tensor({2, 10, 3, 4}, 6);
  const Tensor cv1 = random_tensor({16, 10, 1, 1}, 7), cv2 = random_tensor({10, 16, 1, 1}, 8);
  Tensor out(DType::f64, {2, 10, 3, 4});
  Trace trace;
  c2psa_forward({{cv1, {}}, {cv2, {}}, {first.weights, second.weights}}, x, out,
                {.observer = trace.observer()});
  const TensorView halves = trace.at("cv1").view();
  Tensor b(DType::f64, {2, 8, 3, 4}), c(DType::f64, {2, 8, 3, 4});
  psa_block_forward(first.weights, halves.slice(1, 8, 16), b);
  psa_block_forward(second.weights, b, c);
  EXPECT_EQ(max_difference(trace.at("concat").view().slice(1, 8, 16), c), 0);
  EXPECT_EQ(max_difference(trace.at("concat").view().slice(1, 0, 8), halves.slice(1, 0, 8)), 0);
  EXPECT_EQ(trace.shape("blocks.1.attn.weights"), "[2, 2, 12, 12]");
}

TEST(FoldBatchNorm, OneConvolutionDoesWhatTwoStepsDid) {
  const Tensor w = random_tensor({3, 2, 1, 1}, 1), b = random_tensor({3}, 2);
  const Tensor gamma = random_tensor({3}, 3), beta = random_tensor({3}, 4);
  const Tensor mean = random_tensor({3}, 5), variance = tensor_of({0.5, 2, 0}, {3});
  const FoldedConv folded = fold_batch_norm({w, b}, {gamma, beta, mean, variance, 1e-3});
  EXPECT_EQ(folded.weight.dtype(), DType::f64);
  for (std::int64_t o = 0; o < 3; ++o) {
    const double x0 = 0.7, x1 = -1.3;
    const double conv =
        x0 * w.view().at({o, 0, 0, 0}) + x1 * w.view().at({o, 1, 0, 0}) + b.view().at({o});
    const double expected = (conv - mean.view().at({o})) /
                                std::sqrt(variance.view().at({o}) + 1e-3) * gamma.view().at({o}) +
                            beta.view().at({o});
    EXPECT_NEAR(x0 * folded.weight.view().at({o, 0, 0, 0}) +
                    x1 * folded.weight.view().at({o, 1, 0, 0}) + folded.bias.view().at({o}),
                expected, 1e-12 * (1 + std::abs(expected)));
  }
  const Tensor narrow = Tensor::copy_of(w.view(), DType::bf16);
  EXPECT_EQ(fold_batch_norm({narrow, {}}, {{}, {}, mean, variance}).weight.dtype(), DType::f32);
}

TEST(FoldBatchNorm, Refuses) {
  const Tensor w = random_tensor({3, 2, 1, 1}, 1), three = tensor_of({1, 2, 3}, {3});
  const Tensor two = tensor_of({1, 2}, {2}), bad = tensor_of({1, 1, -1}, {3});
  const Tensor whole = tensor_of({1, 2, 3}, {3}, DType::i32), none;
  const auto refused = [&](const char* subject, const ConvWeights& conv, const BatchNorm& norm) {
    expect_refused(none, "fold_batch_norm", subject, [&] { fold_batch_norm(conv, norm); });
  };
  refused("conv.weight", {{}, {}}, {{}, {}, three, three});
  refused("conv.weight", {whole, {}}, {{}, {}, three, three});
  refused("conv.bias", {w, two}, {{}, {}, three, three});
  refused("norm.mean", {w, {}}, {{}, {}, {}, three});
  refused("norm.variance", {w, {}}, {{}, {}, three, two});
  refused("norm.variance[2]", {w, {}}, {{}, {}, three, bad});
  refused("norm.variance[0]", {w, {}}, {{}, {}, three, three, std::nan("")});
  refused("norm.weight", {w, {}}, {two, {}, three, three});
}

TEST(Detector, Refuses) {
  PsaParts parts;
  Tensor x = random_tensor({1, 8, 3, 3}, 1), out(DType::f64, {1, 8, 3, 3});
  const auto refused = [&](const char* subject, const DetectorWeights& w, const TensorView& in,
                           const MutableTensorView& to, const BlockOptions& options = {}) {
    expect_refused(out, "detector_forward", subject, [&] { detector_forward(w, in, to, options); });
  };
  const DetectorWeights good = parts.weights.attention;
  DetectorWeights w = good;
  w.heads = 0;
  refused("heads", w, x, out);
  w.heads = 3;
  refused("qkv.weight", w, x, out);
  w.heads = std::numeric_limits<std::int64_t>::max();
  refused("qkv.weight", w, x, out);
  w = good;
  w.pe.weight = parts.proj.view();
  refused("pe.weight", w, x, out);
  w = good;
  w.proj.weight = parts.pe.view();
  refused("proj.weight", w, x, out);
  w = good;
  w.qkv.bias = x.view();
  refused("qkv.bias", w, x, out);
  refused("x", good, {}, out);
  refused("x", good, x.view().select(0, 0), out);
  refused("qkv.weight", good, x.view().slice(1, 0, 7), out);
  refused("out", good, x, x);
  refused("out", good, x, {});
  refused("out", good, x, out.view().slice(2, 0, 2));
  refused("out", good, x, parts.proj.view());
  refused("threads", good, x, out, {.threads = -1});
  refused("scale", good, x, out, {.attention = {.scale = std::nan("")}});
  refused("mask", good, x, out, {.attention = {.mask = x.view()}});
}

TEST(C2psa, Refuses) {
  PsaParts parts;
  Tensor x = random_tensor({1, 10, 3, 4}, 6), out(DType::f64, {1, 10, 3, 4});
  const Tensor cv1 = random_tensor({16, 10, 1, 1}, 7), cv2 = random_tensor({10, 16, 1, 1}, 8);
  const Tensor odd = random_tensor({15, 10, 1, 1}, 9), wide = random_tensor({10, 17, 1, 1}, 9);
  const auto refused = [&](const char* subject, const C2psaWeights& w) {
    expect_refused(out, "c2psa_forward", subject, [&] { c2psa_forward(w, x, out); });
  };
  refused("cv1.weight", {{cv2, {}}, {cv2, {}}, {parts.weights}});
  refused("cv1.weight", {{odd, {}}, {cv2, {}}, {parts.weights}});
  refused("cv2.weight", {{cv1, {}}, {wide, {}}, {parts.weights}});
  PsaBlockWeights bad = parts.weights;
  bad.reduce = bad.expand;
  refused("blocks.1.reduce.weight", {{cv1, {}}, {cv2, {}}, {parts.weights, bad}});
  bad = parts.weights;
  bad.attention.qkv.weight = {};
  refused("blocks.0.attn.qkv.weight", {{cv1, {}}, {cv2, {}}, {bad}});
  const Tensor wide_proj = random_tensor({9, 8}, 1);
  bad = parts.weights;
  bad.attention.proj.weight = wide_proj.view();
  expect_refused(out, "psa_block_forward", "attn.proj.weight", [&] {
    psa_block_forward(bad, x.view().slice(1, 0, 8), out.view().slice(1, 0, 8));
  });
}

}  // namespace
}  // namespace qkv::testing
