#pragma once

// Products of an image, pixel by pixel: a pixel's result depends on nothing but that pixel, so that
// a thread can take some pixels through several of them without waiting for the others.

#include <array>
#include <cstdint>
#include <string_view>

#include "blocks/prepared/pixel_image.h"
#include "blocks/prepared/scope.h"
#include "ops/linear.h"

namespace qkv {

// A 1×1 convolution of images.
struct PixelStep {
  const PreparedLinear* linear = nullptr;
  PixelImage x;
  MutablePixelImage out;
  Activation activation = Activation::none;
  PixelImage residual;  // as in LinearOptions
  std::string_view name;
};

// Steps that wait to be run, in their order. No pixel of a step's results may lie where a step
// before it still reads another one.
class PixelSteps {
 public:
  // `scope` says how many threads there are: not 0, which is the default.
  explicit PixelSteps(const Scope& scope) : scope_(scope) {}
  PixelSteps(const PixelSteps&) = delete;
  PixelSteps& operator=(const PixelSteps&) = delete;

  // There is room for as many as stand between two attentions.
  void add(const PixelStep& step);
  // Where images are large enough and lie so that they can, a thread takes pieces of pixels through
  // all steps, and has a share in the products of the shared piece; else each step is on all
  // threads.
  void run();

 private:
  void run_together(const PixelPieces& pieces);
  void run_piece(std::int64_t b, PixelRange piece, int worker, Laps::Clock& clock) const;

  const Scope& scope_;
  std::array<PixelStep, 8> steps_;
  int count_ = 0;
};

}  // namespace qkv
