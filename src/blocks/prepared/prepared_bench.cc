// Whole blocks and layers, prepared, at the sizes of bench/blocks. The rate is of all useful
// operations; `bench/compare --blocks` sets it against the machine's own peak and against others.

#include <benchmark/benchmark.h>

#include <cmath>
#include <deque>
#include <random>
#include <string>

#include "qkv/layers.h"
#include "qkv/prepared.h"
#include "qkv/vision.h"

namespace qkv {
namespace {

// Random weights that live as long as the program.
TensorView numbers(const Dims& shape, double deviation = 0.05) {
  static std::deque<Tensor> all;
  static std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  Tensor tensor(DType::f32, shape);
  for (float& x : tensor.as<float>()) x = normal(random);
  all.push_back(std::move(tensor));
  return std::as_const(all.back()).view();
}

LinearWeights linear(std::int64_t out, std::int64_t in) {
  return {numbers({out, in}), numbers({out})};
}

template <class Block>
void run(benchmark::State& state, const Block& block, const Dims& shape, const Dims& out_shape) {
  const Tensor x = Tensor::copy_of(numbers(shape, 1));
  Tensor out(DType::f32, out_shape);
  for (auto _ : state) block.forward(x, out);
  const double flops = static_cast<double>(block.plan(shape).flops);
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

VitWeights vit(std::int64_t dim, std::int64_t heads) {
  return {linear(3 * dim, dim), linear(dim, dim), {}, {}, heads};
}

EncoderLayerWeights encoder(std::int64_t dim, std::int64_t heads) {
  EncoderLayerWeights w;
  w.attention = vit(dim, heads);
  w.norm1 = {numbers({dim}, 1), numbers({dim})};
  w.norm2 = {numbers({dim}, 1), numbers({dim})};
  w.linear1 = linear(4 * dim, dim);
  w.linear2 = linear(dim, 4 * dim);
  w.activation = Activation::gelu;
  w.norm_first = true;
  return w;
}

ConvWeights conv(std::int64_t out, std::int64_t in) {
  return {numbers({out, in, 1, 1}), numbers({out})};
}

DetectorWeights detector(std::int64_t c) {
  const DetectorDims d = detector_dims(c, c2psa_heads(c));
  return {conv(d.channels, c), conv(c, c), {numbers({c, 1, 3, 3}), numbers({c})}, d.heads,
          d.key_dim,           d.head_dim};
}

C2psaWeights c2psa(std::int64_t c1) {
  const std::int64_t c = c1 / 2;
  return {conv(c1, c1), conv(c1, c1), {{detector(c), conv(2 * c, c), conv(c, 2 * c)}}};
}

void transformer(benchmark::State& state) {
  const TransformerWeights w{linear(512, 512), linear(512, 512), linear(512, 512), linear(512, 512),
                             8};
  run(state, PreparedAttention(w), {32, 20, 512}, {32, 20, 512});
}
BENCHMARK(transformer)->Name("transformer_B32_T20_d512")->UseRealTime();

void vit_attention(benchmark::State& state) {
  const Dims x{state.range(0), 197, 768};
  run(state, PreparedAttention(vit(768, 12)), x, x);
}
BENCHMARK(vit_attention)->Name("vit_attention_B")->Arg(1)->Arg(8)->UseRealTime();

void vit_layer(benchmark::State& state) {
  const Dims x{state.range(0), 197, 768};
  run(state, PreparedEncoderLayer(encoder(768, 12)), x, x);
}
BENCHMARK(vit_layer)->Name("vit_layer_B")->Arg(1)->Arg(8)->UseRealTime();

// Weights kept as int8; `off` is the error's root mean square, of the output's.
void vit_layer_int8(benchmark::State& state) {
  const EncoderLayerWeights w = encoder(768, 12);
  const Dims x{1, 197, 768};
  const Tensor input = Tensor::copy_of(numbers(x, 1));
  Tensor exact(DType::f32, x), rough(DType::f32, x);
  PrepareOptions options;
  options.storage = WeightStorage::i8;
  const PreparedEncoderLayer layer(w, options);
  PreparedEncoderLayer(w).forward(input, exact);
  layer.forward(input, rough);
  double error = 0, size = 0;
  for (std::size_t i = 0; i < exact.as<float>().size(); ++i) {
    const double e = exact.as<float>()[i];
    error += (rough.as<float>()[i] - e) * (rough.as<float>()[i] - e);
    size += e * e;
  }
  run(state, layer, x, x);
  state.counters["off"] = std::sqrt(error / size);
}
BENCHMARK(vit_layer_int8)->UseRealTime();

void gpt(benchmark::State& state) {
  const GptWeights w{linear(3 * 768, 768), linear(768, 768), 12};
  run(state, PreparedAttention(w), {1, 1024, 768}, {1, 1024, 768});
}
BENCHMARK(gpt)->Name("gpt2_attention_T1024")->UseRealTime();

void detector_attention(benchmark::State& state) {
  const std::int64_t c = state.range(0), side = state.range(1);
  const Dims x{1, c, side, side};
  run(state, PreparedDetector(detector(c)), x, x);
}
BENCHMARK(detector_attention)->Name("detector")->ArgsProduct({{128, 256}, {20, 40}})->UseRealTime();

void detector_c2psa(benchmark::State& state) {
  const std::int64_t c = state.range(0), side = state.range(1);
  const Dims x{1, 2 * c, side, side};
  run(state, PreparedC2psa(c2psa(2 * c)), x, x);
}
BENCHMARK(detector_c2psa)->Name("c2psa")->ArgsProduct({{128, 256}, {20, 40}})->UseRealTime();

// Four pixels of four channels, as in `qkv explain pixels`: what a call costs.
void four_pixels(benchmark::State& state) {
  run(state, PreparedAttention(vit(4, 2)), {1, 4, 4}, {1, 4, 4});
}
BENCHMARK(four_pixels)->UseRealTime();

void whole_vit(benchmark::State& state) {
  VisionWeights w;
  w.patch = linear(768, 3 * 16 * 16);
  w.cls = numbers({768});
  w.positions = numbers({197, 768});
  w.layers.assign(12, encoder(768, 12));
  w.norm = {numbers({768}, 1), numbers({768})};
  w.head = linear(1000, 768);
  const PreparedVision vision(w);
  const Tensor pixels = Tensor::copy_of(numbers({state.range(0), 3, 224, 224}, 1));
  Tensor scores(DType::f32, {state.range(0), 1000});
  for (auto _ : state) vision.forward(pixels, scores);
  state.counters["GFLOP/s"] =
      benchmark::Counter(static_cast<double>(vision.plan(state.range(0)).flops) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(whole_vit)->Name("whole_vit_B")->Arg(1)->Arg(8)->UseRealTime();

}  // namespace
}  // namespace qkv
