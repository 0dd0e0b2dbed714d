// The blocks at real sizes, in f32 and f64, against an independent evaluation in f64.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "qkv/detector.h"
#include "qkv/gpt.h"
#include "qkv/prepared.h"
#include "qkv/transformer.h"
#include "qkv/vit.h"
#include "tests/block_oracle.h"
#include "tests/block_trace.h"
#include "tests/effort.h"

namespace qkv::testing {
namespace {

std::vector<double> vector_of(const Tensor& t) {
  const Tensor wide = Tensor::copy_of(t.view(), DType::f64);
  return {wide.as<double>().begin(), wide.as<double>().end()};
}

// Batch entry b of [B, T, width].
Matrix entry(const Tensor& x, std::int64_t b) { return matrix_of(x.view().select(0, b)); }

Matrix columns(const Matrix& m, std::int64_t begin, std::int64_t end) {
  Matrix part(m.rows, end - begin);
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = begin; c < end; ++c) part(r, c - begin) = m(r, c);
  }
  return part;
}

void append(std::vector<double>& all, const Matrix& m) {
  all.insert(all.end(), m.values.begin(), m.values.end());
}

bool everything(std::int64_t, std::int64_t) { return true; }

// Runs a block in f32 and f64, for one call and prepared; `run` gives the output for a dtype of
// inputs and weights.
void expect_close(const std::string& block, const std::vector<double>& expected,
                  const Tolerance& tolerance, const std::function<Tensor(DType, bool)>& run) {
  double largest = 0;
  for (double e : expected) largest = std::max(largest, std::abs(e));
  for (const auto& [dtype, eps, prepared] :
       {std::tuple{DType::f32, 0x1p-23, false}, std::tuple{DType::f32, 0x1p-23, true},
        std::tuple{DType::f64, 0x1p-52, false}, std::tuple{DType::f64, 0x1p-52, true}}) {
    const std::string name = block + (prepared ? ", prepared" : "");
    const auto start = std::chrono::steady_clock::now();
    const Tensor out = run(dtype, prepared);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const std::vector<double> found = vector_of(out);
    ASSERT_EQ(found.size(), expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double error = std::abs(found[i] - expected[i]);
      worst = error <= worst ? worst : error;
    }
    // In f64 the evaluation that is compared with errs as much as the block.
    const double allowed = tolerance.of(dtype == DType::f64 ? 2 * eps : eps, largest);
    EXPECT_LE(worst, allowed) << name << " in " << name_of(dtype);
    EXPECT_LE(worst, dtype == DType::f64 ? 1e-12 : allowed) << name;
    std::printf("  %-32s %s  max error %.2e  allowed %.2e  max|y| %.2f  %.2f s\n", name.c_str(),
                std::string(name_of(dtype)).c_str(), worst, allowed, largest, took.count());
  }
}

TEST(BlocksAtRealSize, VitBase) {
  constexpr std::int64_t B = 1, N = 197, dim = 768, heads = 12, head_dim = 64;
  const Tensor x = random_tensor({B, N, dim}, 1);
  const Tensor w = random_tensor({3 * dim, dim}, 2, 0.05), b = random_tensor({3 * dim}, 3, 0.2);
  const Tensor pw = random_tensor({dim, dim}, 4, 0.05), pb = random_tensor({dim}, 5, 0.2);
  const Tensor qg = random_tensor({head_dim}, 6), qb = random_tensor({head_dim}, 7);
  const Tensor kg = random_tensor({head_dim}, 8), kb = random_tensor({head_dim}, 9);
  for (const bool norm : {false, true}) {
    const Matrix qkv = linear_oracle(entry(x, 0), matrix_of(w), vector_of(b));
    Matrix q = columns(qkv, 0, dim), k = columns(qkv, dim, 2 * dim);
    if (norm) {
      q = layer_norm_oracle(q, head_dim, vector_of(qg), vector_of(qb), 1e-6);
      k = layer_norm_oracle(k, head_dim, vector_of(kg), vector_of(kb), 1e-6);
    }
    Scores scores;
    const Matrix heads_out =
        attention_oracle(q, k, columns(qkv, 2 * dim, 3 * dim), heads, everything, scores);
    const Matrix expected = linear_oracle(heads_out, matrix_of(pw), vector_of(pb));
    Tolerance tolerance;
    tolerance.scores_of(dim + head_dim, head_dim, scores);
    for (std::int64_t n : {dim, N, dim}) tolerance.sum_of(n);
    expect_close(norm ? "ViT-B with q/k norm" : "ViT-B", expected.values, tolerance,
                 [&](DType dtype, bool prepared) {
                   const auto as = [&](const Tensor& t) {
                     return Tensor::copy_of(t.view(), dtype);
                   };
                   const Tensor w_ = as(w), b_ = as(b), pw_ = as(pw), pb_ = as(pb), qg_ = as(qg),
                                qb_ = as(qb), kg_ = as(kg), kb_ = as(kb);
                   VitWeights weights{{w_, b_}, {pw_, pb_}, {}, {}, heads};
                   if (norm) weights.q_norm = NormWeights{qg_, qb_};
                   if (norm) weights.k_norm = NormWeights{kg_, kb_};
                   Tensor out(dtype, {B, N, dim});
                   if (prepared) {
                     PreparedAttention(weights).forward(as(x), out);
                   } else {
                     vit_forward(weights, as(x), out);
                   }
                   return out;
                 });
  }
}

TEST(BlocksAtRealSize, TransformerBase) {
  constexpr std::int64_t B = share_of(32), T = 20, S = 33, d = 512, heads = 8, d_k = 64;
  const Tensor x = random_tensor({B, T, d}, 11), memory = random_tensor({B, S, d}, 12);
  const Tensor in = random_tensor({3 * d, d}, 13, 0.06), in_b = random_tensor({3 * d}, 14, 0.2);
  const Tensor ow = random_tensor({d, d}, 15, 0.06), ob = random_tensor({d}, 16, 0.2);
  std::vector<Matrix> w;  // W^Q, W^K, W^V
  std::vector<std::vector<double>> bias;
  for (int i = 0; i < 3; ++i) {
    w.push_back(matrix_of(in.view().slice(0, i * d, (i + 1) * d)));
    bias.push_back(vector_of(Tensor::copy_of(in_b.view().slice(0, i * d, (i + 1) * d))));
  }
  const Matrix w_out = matrix_of(ow);
  for (const bool cross : {false, true}) {
    const Tensor& from = cross ? memory : x;
    std::vector<double> expected;
    Scores scores;
    for (std::int64_t b = 0; b < B; ++b) {
      const Matrix q = linear_oracle(entry(x, b), w[0], bias[0]);
      const Matrix k = linear_oracle(entry(from, b), w[1], bias[1]);
      const Matrix v = linear_oracle(entry(from, b), w[2], bias[2]);
      const Matrix concat = attention_oracle(q, k, v, heads, everything, scores);
      append(expected, linear_oracle(concat, w_out, vector_of(ob)));
    }
    Tolerance tolerance;
    tolerance.scores_of(d, d_k, scores);
    for (std::int64_t n : {d, from.dim(1), d}) tolerance.sum_of(n);
    expect_close(
        cross ? "Transformer-base cross" : "Transformer-base self", expected, tolerance,
        [&](DType dtype, bool prepared) {
          const auto as = [&](const Tensor& t) { return Tensor::copy_of(t.view(), dtype); };
          const Tensor in_ = as(in), in_b_ = as(in_b), ow_ = as(ow), ob_ = as(ob);
          const auto weights = TransformerWeights::from_packed(in_, in_b_, ow_, ob_, heads);
          Tensor out(dtype, {B, T, d});
          if (prepared && cross) {
            PreparedCrossAttention(weights).forward(as(x), as(memory), out);
          } else if (prepared) {
            PreparedAttention(weights).forward(as(x), out);
          } else if (cross) {
            transformer_forward(weights, as(x), as(memory), out);
          } else {
            transformer_forward(weights, as(x), out);
          }
          return out;
        });
  }
}

TEST(BlocksAtRealSize, Gpt2Small) {
  constexpr std::int64_t B = 1, T = 256, d = 768, heads = 12, d_k = 64;
  const Tensor x = random_tensor({B, T, d}, 21);
  // A Conv1D's: (in, out).
  const Tensor w = random_tensor({d, 3 * d}, 22, 0.05), b = random_tensor({3 * d}, 23, 0.2);
  const Tensor pw = random_tensor({d, d}, 24, 0.05), pb = random_tensor({d}, 25, 0.2);
  const Matrix qkv = linear_oracle(entry(x, 0), matrix_of(w.view().transpose(0, 1)), vector_of(b));
  Scores scores;
  const Matrix concat = attention_oracle(
      columns(qkv, 0, d), columns(qkv, d, 2 * d), columns(qkv, 2 * d, 3 * d), heads,
      [](std::int64_t i, std::int64_t j) { return j <= i; }, scores);
  const Matrix expected =
      linear_oracle(concat, matrix_of(pw.view().transpose(0, 1)), vector_of(pb));
  Tolerance tolerance;
  tolerance.scores_of(d, d_k, scores);
  for (std::int64_t n : {d, T, d}) tolerance.sum_of(n);
  expect_close("GPT-2 small", expected.values, tolerance, [&](DType dtype, bool prepared) {
    const auto as = [&](const Tensor& t) { return Tensor::copy_of(t.view(), dtype); };
    const Tensor w_ = as(w), b_ = as(b), pw_ = as(pw), pb_ = as(pb);
    Tensor out(dtype, {B, T, d});
    const GptWeights weights = GptWeights::from_arrays(w_, b_, pw_, pb_, heads);
    if (prepared) {
      PreparedAttention(weights).forward(as(x), out);
    } else {
      gpt_forward(weights, as(x), out);
    }
    return out;
  });
}

// --- the detector ---------------------------------------------------------------------------

// A convolution without bias and its BatchNorm, as a checkpoint has them.
struct ConvWithNorm {
  Tensor weight, gamma, beta, mean, variance;

  ConvWithNorm(const Dims& shape, std::uint64_t seed, double deviation)
      : weight(random_tensor(shape, seed, deviation)),
        gamma(random_tensor({shape[0]}, seed + 1000, 0.3)),
        beta(random_tensor({shape[0]}, seed + 2000, 0.3)),
        mean(random_tensor({shape[0]}, seed + 3000, 0.3)),
        variance(random_tensor({shape[0]}, seed + 4000, 0.3)) {
    for (double& g : gamma.as<double>()) g = 1 + g;
    for (double& v : variance.as<double>()) v = 0.5 + v * v;
  }

  FoldedConv fold(DType dtype) const {
    return fold_batch_norm({Tensor::copy_of(weight.view(), dtype).view(), {}},
                           {gamma, beta, mean, variance, 1e-3});
  }

  void norm(Matrix& y) const {
    for (std::int64_t c = 0; c < y.columns; ++c) {
      const std::size_t n = static_cast<std::size_t>(c);
      for (std::int64_t r = 0; r < y.rows; ++r) {
        y(r, c) = (y(r, c) - mean.as<double>()[n]) / std::sqrt(variance.as<double>()[n] + 1e-3) *
                      gamma.as<double>()[n] +
                  beta.as<double>()[n];
      }
    }
  }

  // 1×1, on pixels [N, C].
  Matrix pointwise(const Matrix& x) const {
    const Matrix w = matrix_of(weight.view().flatten(1, 3));
    Matrix y = linear_oracle(x, w);
    norm(y);
    return y;
  }

  // Depthwise 3×3, padding 1, on pixels [H·W, C].
  Matrix depthwise(const Matrix& x, std::int64_t H, std::int64_t W) const {
    Matrix y(x.rows, x.columns);
    for (std::int64_t c = 0; c < x.columns; ++c) {
      for (std::int64_t p = 0; p < H * W; ++p) {
        for (std::int64_t q = 0; q < H * W; ++q) {  // q is p or one of its neighbours
          const std::int64_t u = q / W - p / W + 1, v = q % W - p % W + 1;
          if (u < 0 || u > 2 || v < 0 || v > 2) continue;
          y(p, c) += x(q, c) * weight.as<double>()[static_cast<std::size_t>(c * 9 + u * 3 + v)];
        }
      }
    }
    norm(y);
    return y;
  }
};

void silu(Matrix& m) {
  for (double& v : m.values) v *= 1 / (1 + std::exp(-v));
}

Matrix sum(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

// The block's weights, and its evaluation on pixels [N, C].
struct PsaCheckpoint {
  std::int64_t c, heads, head_dim, key_dim, H, W;
  ConvWithNorm qkv, proj, pe, expand, reduce;
  // What the views of weights point into.
  mutable std::vector<FoldedConv> folded;

  PsaCheckpoint(std::int64_t c_, std::int64_t H_, std::int64_t W_, std::uint64_t seed)
      : c(c_),
        heads(std::max<std::int64_t>(c_ / 64, 1)),
        head_dim(c_ / heads),
        key_dim(head_dim / 2),
        H(H_),
        W(W_),
        qkv({c_ + 2 * heads * key_dim, c_, 1, 1}, seed + 1, 0.09),
        proj({c_, c_, 1, 1}, seed + 2, 0.09),
        pe({c_, 1, 3, 3}, seed + 3, 0.3),
        expand({2 * c_, c_, 1, 1}, seed + 4, 0.09),
        reduce({c_, 2 * c_, 1, 1}, seed + 5, 0.06) {}

  Matrix operator()(const Matrix& x, Scores& scores) const {
    const Matrix y = qkv.pointwise(x);
    const std::int64_t each = 2 * key_dim + head_dim;
    Matrix q(x.rows, heads * key_dim), k = q, v(x.rows, c);
    for (std::int64_t n = 0; n < x.rows; ++n) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < key_dim; ++i) {
          q(n, h * key_dim + i) = y(n, h * each + i);
          k(n, h * key_dim + i) = y(n, h * each + key_dim + i);
        }
        for (std::int64_t i = 0; i < head_dim; ++i) {
          v(n, h * head_dim + i) = y(n, h * each + 2 * key_dim + i);
        }
      }
    }
    const Matrix attended = attention_oracle(q, k, v, heads, everything, scores);
    const Matrix first = sum(x, proj.pointwise(sum(attended, pe.depthwise(v, H, W))));
    Matrix hidden = expand.pointwise(first);
    silu(hidden);
    return sum(first, reduce.pointwise(hidden));
  }

  PsaBlockWeights weights(DType dtype) const {
    folded.clear();
    for (const ConvWithNorm* conv : {&qkv, &proj, &pe, &expand, &reduce}) {
      folded.push_back(conv->fold(dtype));
    }
    return {{folded[0].view(), folded[1].view(), folded[2].view(), heads, key_dim, head_dim},
            folded[3].view(),
            folded[4].view()};
  }
};

// [B, C, H, W] from and to pixels.
Matrix pixels_of(const Tensor& x) {
  return matrix_of(x.view().select(0, 0).flatten(1, 2).transpose(0, 1));
}

std::vector<double> image_of(const Matrix& pixels) {
  std::vector<double> image;
  for (std::int64_t c = 0; c < pixels.columns; ++c) {
    for (std::int64_t n = 0; n < pixels.rows; ++n) image.push_back(pixels(n, c));
  }
  return image;
}

TEST(BlocksAtRealSize, C2psaOfYolo11n) {
  constexpr std::int64_t c1 = 256, c = 128, H = 20, W = 20;
  const Tensor x = random_tensor({1, c1, H, W}, 31);
  const ConvWithNorm cv1({2 * c, c1, 1, 1}, 32, 0.06), cv2({c1, 2 * c, 1, 1}, 33, 0.06);
  const PsaCheckpoint block(c, H, W, 40);

  Scores scores;
  Matrix both = cv1.pointwise(pixels_of(x));
  silu(both);
  const Matrix b = block(columns(both, c, 2 * c), scores);
  for (std::int64_t n = 0; n < both.rows; ++n) {
    for (std::int64_t i = 0; i < c; ++i) both(n, c + i) = b(n, i);
  }
  Matrix expected = cv2.pointwise(both);
  silu(expected);

  Tolerance tolerance;
  tolerance.scores_of(c1 + c, block.key_dim, scores);
  for (std::int64_t n : {c1, c, H * W, c, c, 2 * c, 2 * c}) tolerance.sum_of(n);
  expect_close("C2PSA of YOLO11n", image_of(expected), tolerance, [&](DType dtype, bool prepared) {
    const FoldedConv cv1_ = cv1.fold(dtype), cv2_ = cv2.fold(dtype);
    Tensor out(dtype, {1, c1, H, W});
    const C2psaWeights weights{cv1_.view(), cv2_.view(), {block.weights(dtype)}};
    const Tensor input = Tensor::copy_of(x.view(), dtype);
    if (prepared) {
      PreparedC2psa(weights).forward(input, out);
    } else {
      c2psa_forward(weights, input, out);
    }
    return out;
  });
}

TEST(BlocksAtRealSize, PsaBlockAlone) {
  constexpr std::int64_t c = 128, H = 13, W = 7;
  const Tensor x = random_tensor({1, c, H, W}, 51);
  const PsaCheckpoint block(c, H, W, 52);
  Scores scores;
  const Matrix expected = block(pixels_of(x), scores);
  Tolerance tolerance;
  tolerance.scores_of(c, block.key_dim, scores);
  for (std::int64_t n : {c, H * W, c, c, 2 * c}) tolerance.sum_of(n);
  expect_close("PSABlock", image_of(expected), tolerance, [&](DType dtype, bool prepared) {
    Tensor out(dtype, {1, c, H, W});
    const Tensor input = Tensor::copy_of(x.view(), dtype);
    if (prepared) {
      PreparedPsaBlock(block.weights(dtype)).forward(input, out);
    } else {
      psa_block_forward(block.weights(dtype), input, out);
    }
    return out;
  });
}

}  // namespace
}  // namespace qkv::testing
