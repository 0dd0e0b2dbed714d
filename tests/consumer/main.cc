// A program that somebody else writes: it includes public headers, links libqkv, computes an
// attention and catches an error of the library. The three projects in this folder build it in the
// three ways that a user has.
#include <cmath>
#include <cstdio>
#include <cstring>

#include "qkv/qkv.h"
#include "qkv/version.h"

namespace {

// One query, two equal keys: the mean of the two values.
bool attention_works() {
  const float query[] = {1, 2};
  const float keys[] = {3, 4, 3, 4};
  const float values[] = {0, 10, 1, 20};
  qkv::Tensor out(qkv::DType::f32, {1, 1, 1, 2});
  qkv::attention_forward(qkv::TensorView::of(query, {1, 1, 1, 2}),
                         qkv::TensorView::of(keys, {1, 1, 2, 2}),
                         qkv::TensorView::of(values, {1, 1, 2, 2}), out);
  return std::fabs(out.as<float>()[0] - 0.5F) < 1e-6F &&
         std::fabs(out.as<float>()[1] - 15.0F) < 1e-5F;
}

// The type of the error is the same on both sides of the library's edge.
bool error_is_caught() {
  const float x[] = {1, 2};
  qkv::Tensor out(qkv::DType::f32, {1, 1, 1, 2});
  try {
    qkv::attention_forward(qkv::TensorView::of(x, {1, 1, 1, 2}),
                           qkv::TensorView::of(x, {1, 1, 2, 1}),
                           qkv::TensorView::of(x, {1, 1, 1, 2}), out);
  } catch (const qkv::Error& error) {
    return std::strlen(error.what()) > 0;
  }
  return false;
}

}  // namespace

int main() {
  if (std::strcmp(qkv::version(), QKV_VERSION_STRING) != 0) {
    std::fprintf(stderr, "headers are %s, library is %s\n", QKV_VERSION_STRING, qkv::version());
    return 1;
  }
  if (!attention_works() || !error_is_caught()) {
    std::fprintf(stderr, "the library does not do its work\n");
    return 1;
  }
  std::printf("qkv %s\n", qkv::version());
  return 0;
}
