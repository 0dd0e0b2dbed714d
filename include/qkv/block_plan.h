#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/export.h"

namespace qkv {

// How a prepared block computes inputs of one shape.
struct BlockPlan {
  struct Step {
    std::string name;        // "qkv", "attention", "mlp.expand", …
    std::string how;         // the kernel, and its sizes
    std::int64_t flops = 0;  // of products: 2 for each multiplication and addition
  };
  std::vector<Step> steps;
  int threads = 1;
  // Sequences or images that one thread takes through the whole block, so that what it computes
  // stays in its cache; 0: all of them at once, on all threads.
  std::int64_t together = 0;
  std::int64_t flops = 0;
  std::int64_t weights = 0;    // bytes that the block holds
  std::int64_t workspace = 0;  // bytes that a call needs beyond weights, input and output
  // Of which the threads' own, kept by them from call to call: the attention's, and the products'.
  std::int64_t kernel_workspace = 0, product_workspace = 0;
};

// The plan in words, a line each.
QKV_API std::string to_string(const BlockPlan& plan);

// Where the time of a prepared block's calls went, added up over calls. Steps that several threads
// do side by side count with their share of the time.
struct BlockProfile {
  struct Step {
    std::string name;
    double seconds = 0;
  };
  std::vector<Step> steps;  // in the order in which they came first

  QKV_API void add(std::string_view name, double seconds);
};

}  // namespace qkv
