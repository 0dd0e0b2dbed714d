#pragma once

// The matrices of a note: which one follows from which, and whether it does.
//
//   Q = X·Wq   K = X·Wk   V = X·Wv        also X·Wqᵀ, and transposed: channels first
//   scores  = Q·Kᵀ or X·Xᵀ, times 1 or 1/√d, later keys hidden or not
//   weights = softmax(scores)
//   Z       = weights·V or weights·X, and that times Wo
//
// Where a note does not say which one it means, each is tried and the one that fits is named.

#include <vector>

#include "explain/check/compare.h"

namespace qkv::check {

struct Derived {
  Matrix printed{};
  Matrix truth{};  // recomputed from what is most original; the print where nothing precedes it
  CheckFinding finding{};
};

// One a grid, in order.
std::vector<Derived> derive(const Source& source, const std::vector<Grid>& grids);

}  // namespace qkv::check
