#pragma once

// The ways to compute attention that every property and every published case is checked on.

#include <string>
#include <vector>

#include "qkv/attention.h"

namespace qkv::testing {

struct Engine {
  std::string name;
  AttentionKernel kernel;
  SimdTarget target;
};

// The reference, and the fused kernel for each SIMD target that this CPU can run.
inline std::vector<Engine> engines() {
  std::vector<Engine> all{{"reference", AttentionKernel::reference, SimdTarget::automatic}};
  for (const SimdTarget target : simd_targets()) {
    all.push_back({"fused_" + std::string(name_of(target)), AttentionKernel::fused, target});
  }
  // What decode cannot do it leaves to fused, so one target will do; all of them are tested where
  // everything is decode's (cached_attention_test.cc).
  all.push_back({"decode", AttentionKernel::decode, SimdTarget::automatic});
  return all;
}

}  // namespace qkv::testing
