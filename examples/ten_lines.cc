#include <qkv/qkv.h>

#include <cstdio>

int main() {
  // "Your journey starts": 3 tokens of width 3, in one batch and one head: [B, H, T, D].
  const float x[] = {0.4f, 0.1f, 0.8f, 0.5f, 0.8f, 0.6f, 0.5f, 0.8f, 0.6f};
  const auto tokens = qkv::TensorView::of(x, {1, 1, 3, 3});
  qkv::Tensor z(qkv::DType::f32, {1, 1, 3, 3}), weights(qkv::DType::f32, {1, 1, 3, 3});
  qkv::attention_forward(tokens, tokens, tokens, z, {.scale = 1.0}, {.weights = weights});
  for (float w : weights.as<float>().first(3)) std::printf("%.5f ", w);
  std::printf("-> %.4f %.4f %.4f\n", z.as<float>()[0], z.as<float>()[1], z.as<float>()[2]);
}
