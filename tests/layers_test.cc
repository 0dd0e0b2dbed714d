// Encoder and decoder layers against an independent evaluation in f64, token by token.

#include "qkv/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/block_oracle.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

constexpr std::int64_t kWidth = 48, kHeads = 3, kHidden = 100;

std::vector<double> vector_of(const Tensor& t) {
  return {t.as<double>().begin(), t.as<double>().end()};
}

bool everything(std::int64_t, std::int64_t) { return true; }
bool causal(std::int64_t i, std::int64_t j) { return j <= i; }

Matrix columns(const Matrix& m, std::int64_t begin, std::int64_t end) {
  Matrix part(m.rows, end - begin);
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = begin; c < end; ++c) part(r, c - begin) = m(r, c);
  }
  return part;
}

Matrix sum(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

Matrix scaled(Matrix a, const std::vector<double>& scale) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t c = 0; c < a.columns; ++c) a(r, c) *= scale[static_cast<std::size_t>(c)];
  }
  return a;
}

// All numbers of a layer, and its evaluation.
struct Layer {
  Tensor in = random_tensor({3 * kWidth, kWidth}, 1, 0.2),
         in_b = random_tensor({3 * kWidth}, 2, 0.2);
  Tensor out = random_tensor({kWidth, kWidth}, 3, 0.2), out_b = random_tensor({kWidth}, 4, 0.2);
  Tensor cross_in = random_tensor({3 * kWidth, kWidth}, 5, 0.2);
  Tensor cross_out = random_tensor({kWidth, kWidth}, 6, 0.2);
  Tensor w1 = random_tensor({kHidden, kWidth}, 7, 0.2), b1 = random_tensor({kHidden}, 8, 0.2);
  Tensor w2 = random_tensor({kWidth, kHidden}, 9, 0.2), b2 = random_tensor({kWidth}, 10, 0.2);
  Tensor g[3] = {random_tensor({kWidth}, 11), random_tensor({kWidth}, 12),
                 random_tensor({kWidth}, 13)};
  Tensor h[3] = {random_tensor({kWidth}, 14), random_tensor({kWidth}, 15),
                 random_tensor({kWidth}, 16)};
  Tensor s1 = random_tensor({kWidth}, 17), s2 = random_tensor({kWidth}, 18);
  static constexpr double kEps = 1e-5;

  NormWeights norm_weights(int i) const { return {g[i], h[i], kEps}; }
  TransformerWeights self_weights() const {
    return TransformerWeights::from_packed(in, in_b, out, out_b, kHeads);
  }
  TransformerWeights cross_weights() const {
    return TransformerWeights::from_packed(cross_in, {}, cross_out, {}, kHeads);
  }

  Matrix norm(int i, const Matrix& x) const {
    return layer_norm_oracle(x, kWidth, vector_of(g[i]), vector_of(h[i]), kEps);
  }
  Matrix self(const Matrix& x, const Visible& visible) const {
    const Matrix qkv = linear_oracle(x, matrix_of(in), vector_of(in_b));
    Scores scores;
    const Matrix heads =
        attention_oracle(columns(qkv, 0, kWidth), columns(qkv, kWidth, 2 * kWidth),
                         columns(qkv, 2 * kWidth, 3 * kWidth), kHeads, visible, scores);
    return linear_oracle(heads, matrix_of(out), vector_of(out_b));
  }
  Matrix cross(const Matrix& x, const Matrix& memory) const {
    const Matrix w = matrix_of(cross_in);
    const Matrix q = columns(linear_oracle(x, w), 0, kWidth), kv = linear_oracle(memory, w);
    Scores scores;
    const Matrix heads =
        attention_oracle(q, columns(kv, kWidth, 2 * kWidth), columns(kv, 2 * kWidth, 3 * kWidth),
                         kHeads, everything, scores);
    return linear_oracle(heads, matrix_of(cross_out));
  }
  Matrix ffn(const Matrix& x, Activation activation) const {
    Matrix hidden = linear_oracle(x, matrix_of(w1), vector_of(b1));
    for (double& v : hidden.values) {
      v = activation == Activation::relu ? std::max(v, 0.0)
                                         : v * std::erfc(-v / std::sqrt(2.0)) / 2;
    }
    return linear_oracle(hidden, matrix_of(w2), vector_of(b2));
  }
};

void expect_entries(const TensorView& found, const std::vector<Matrix>& expected,
                    double tolerance) {
  for (std::int64_t b = 0; b < found.dim(0); ++b) {
    const Matrix one = matrix_of(found.select(0, b));
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      ASSERT_NEAR(one.values[i], expected[static_cast<std::size_t>(b)].values[i], tolerance);
    }
  }
}

// Sums on the way: 48, 48, T, 48, 48, 100, of numbers whose size a norm brings back to 1; in f32
// some 350 roundings of 6e-8 in all, at most 2e-5 of outputs up to 10.
constexpr double kTolerance[] = {2e-4, 1e-11};

TEST(EncoderLayer, IsItsFormula) {
  const Layer layer;
  const Tensor x = random_tensor({9, 7, kWidth}, 20);
  for (const bool norm_first : {false, true}) {
    for (const bool vit : {false, true}) {
      const Activation activation = vit ? Activation::gelu : Activation::relu;
      const bool scale = vit && norm_first;
      std::vector<Matrix> expected;
      for (std::int64_t b = 0; b < x.dim(0); ++b) {
        const Matrix one = matrix_of(x.view().select(0, b));
        if (norm_first) {
          const auto times = [&](Matrix m, const Tensor& s) {
            return scale ? scaled(std::move(m), vector_of(s)) : m;
          };
          const Matrix y = sum(one, times(layer.self(layer.norm(0, one), everything), layer.s1));
          expected.push_back(sum(y, times(layer.ffn(layer.norm(1, y), activation), layer.s2)));
        } else {
          const Matrix y = layer.norm(0, sum(one, layer.self(one, everything)));
          expected.push_back(layer.norm(1, sum(y, layer.ffn(y, activation))));
        }
      }
      EncoderLayerWeights w;
      w.attention = layer.self_weights();
      if (vit) {
        w.attention = VitWeights{{layer.in, layer.in_b}, {layer.out, layer.out_b}, {}, {}, kHeads};
      }
      w.norm1 = layer.norm_weights(0);
      w.norm2 = layer.norm_weights(1);
      w.linear1 = {layer.w1, layer.b1};
      w.linear2 = {layer.w2, layer.b2};
      w.activation = activation;
      w.norm_first = norm_first;
      if (scale) w.scale1 = layer.s1, w.scale2 = layer.s2;
      const PreparedEncoderLayer prepared(w);
      for (const DType dtype : {DType::f32, DType::f64}) {
        const Tensor in = Tensor::copy_of(x.view(), dtype);
        const double tolerance = kTolerance[dtype == DType::f64];
        for (const int threads : {1, 2}) {  // with two, sequences are dealt out
          Tensor out(dtype, x.shape());
          prepared.forward(in, out, {.threads = threads});
          expect_entries(out, expected, tolerance);
        }
        Tensor strided(dtype, {7, 9, kWidth});
        prepared.forward(in, strided.view().transpose(0, 1));
        expect_entries(strided.view().transpose(0, 1), expected, tolerance);
      }
    }
  }
}

TEST(EncoderLayer, ManyRowsGoInParts) {
  const Layer layer;
  EncoderLayerWeights w;
  w.attention = layer.self_weights();
  w.norm1 = layer.norm_weights(0);
  w.norm2 = layer.norm_weights(1);
  w.linear1 = {layer.w1, layer.b1};
  w.linear2 = {layer.w2, layer.b2};
  const Tensor x = random_tensor({1, 1100, kWidth}, 20);
  const Matrix one = matrix_of(x.view().select(0, 0));
  const Matrix y = layer.norm(0, sum(one, layer.self(one, everything)));
  Tensor out(DType::f64, x.shape());
  PreparedEncoderLayer(w).forward(x, out);
  expect_entries(out, {layer.norm(1, sum(y, layer.ffn(y, Activation::relu)))}, 1e-11);
}

TEST(DecoderLayer, IsItsFormula) {
  const Layer layer;
  const Tensor x = random_tensor({9, 6, kWidth}, 21), memory = random_tensor({9, 8, kWidth}, 22);
  for (const bool norm_first : {false, true}) {
    std::vector<Matrix> expected;
    for (std::int64_t b = 0; b < x.dim(0); ++b) {
      const Matrix one = matrix_of(x.view().select(0, b)),
                   m = matrix_of(memory.view().select(0, b));
      if (norm_first) {
        const Matrix y = sum(one, layer.self(layer.norm(0, one), causal));
        const Matrix z = sum(y, layer.cross(layer.norm(1, y), m));
        expected.push_back(sum(z, layer.ffn(layer.norm(2, z), Activation::relu)));
      } else {
        const Matrix y = layer.norm(0, sum(one, layer.self(one, causal)));
        const Matrix z = layer.norm(1, sum(y, layer.cross(y, m)));
        expected.push_back(layer.norm(2, sum(z, layer.ffn(z, Activation::relu))));
      }
    }
    TransformerDecoderLayerWeights w;
    w.self_attention = layer.self_weights();
    w.cross_attention = layer.cross_weights();
    w.norm1 = layer.norm_weights(0);
    w.norm2 = layer.norm_weights(1);
    w.norm3 = layer.norm_weights(2);
    w.linear1 = {layer.w1, layer.b1};
    w.linear2 = {layer.w2, layer.b2};
    w.norm_first = norm_first;
    const PreparedDecoderLayer prepared(w);
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor in = Tensor::copy_of(x.view(), dtype), m = Tensor::copy_of(memory.view(), dtype);
      const double tolerance = kTolerance[dtype == DType::f64];
      Tensor out(dtype, x.shape()), again(dtype, x.shape());
      prepared.forward(in, m, out, {.threads = 2});
      expect_entries(out, expected, tolerance);
      prepared.forward(in, prepared.read(m), again, {.threads = 2});
      EXPECT_TRUE(same_bits(out, again));
    }
  }
}

// What the layer's output is off by with weights in 8 bits: 2.5 % of its size, root mean square.
// Each of the four products is off by 1 to 1.5 % (see WeightStorage), and the residuals are exact.
TEST(EncoderLayer, Int8WeightsAreOffByLittle) {
  constexpr std::int64_t T = 50, d = 256;
  const auto numbers = [](const Dims& shape, std::uint64_t seed, double deviation) {
    return random_tensor(shape, seed, deviation, DType::f32);
  };
  const Tensor qkv = numbers({3 * d, d}, 1, 0.06), proj = numbers({d, d}, 2, 0.06);
  const Tensor w1 = numbers({4 * d, d}, 3, 0.06), w2 = numbers({d, 4 * d}, 4, 0.03);
  EncoderLayerWeights w;
  w.attention = VitWeights{{qkv, {}}, {proj, {}}, {}, {}, 4};
  w.linear1 = {w1, {}};
  w.linear2 = {w2, {}};
  w.activation = Activation::gelu;
  w.norm_first = true;
  const Tensor x = numbers({1, T, d}, 5, 1);
  Tensor exact(DType::f32, x.shape()), rough(DType::f32, x.shape());
  PreparedEncoderLayer(w).forward(x, exact);
  PreparedEncoderLayer(w, {.storage = WeightStorage::i8}).forward(x, rough);
  double error = 0, size = 0;
  for (std::size_t i = 0; i < exact.as<float>().size(); ++i) {
    const double e = exact.as<float>()[i], r = rough.as<float>()[i];
    error += (r - e) * (r - e);
    size += e * e;
  }
  EXPECT_LE(std::sqrt(error / size), 0.025);
  EXPECT_GT(error, 0);
}

TEST(EncoderLayer, Refuses) {
  const Layer layer;
  EncoderLayerWeights w;
  w.attention = layer.self_weights();
  w.norm1 = layer.norm_weights(0);
  w.norm2 = layer.norm_weights(1);
  w.linear1 = {layer.w1, layer.b1};
  w.linear2 = {layer.w2, layer.b2};
  Tensor y = random_tensor({1, 2, kWidth}, 1);
  const auto refused = [&](const char* subject, const EncoderLayerWeights& weights) {
    expect_refused(y, "PreparedEncoderLayer", subject, [&] { PreparedEncoderLayer{weights}; });
  };
  EncoderLayerWeights bad = w;
  bad.linear2 = {layer.w1, {}};
  refused("linear2.weight", bad);
  bad = w;
  bad.norm2.weight = layer.b1;
  refused("norm2.weight", bad);
  bad = w;
  bad.scale2 = layer.s1;
  refused("scale2", bad);
  const PreparedEncoderLayer prepared(w);
  expect_refused(y, "PreparedEncoderLayer", "out", [&] { prepared.forward(y, y); });
  const BlockPlan plan = prepared.plan({2, 5, kWidth});
  // Products alone: 2·10·48·(4·48 + 2·100), and 2·2·3·25·32 of attention.
  EXPECT_EQ(plan.flops, 2 * 10 * 48 * (4 * 48 + 2 * 100) + 2 * 2 * 3 * 25 * 32);
}

}  // namespace
}  // namespace qkv::testing
