#pragma once

// What the parts of a prepared block run in, and how sequences are dealt out to threads.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "base/parallel.h"
#include "blocks/block.h"
#include "qkv/block_plan.h"
#include "qkv/norm.h"
#include "qkv/plan.h"
#include "qkv/threads.h"

namespace qkv {

// Adds up where time goes, if someone wants to know.
class Laps {
 public:
  explicit Laps(BlockProfile* profile) : profile_(profile) {}

  // A thread's clock. `side_by_side` threads run theirs at once.
  class Clock {
   public:
    Clock(Laps& laps, int side_by_side) : laps_(laps), share_(1.0 / side_by_side) {
      if (laps_.profile_ != nullptr) last_ = std::chrono::steady_clock::now();
    }
    // One for a thread beside others, from now on.
    Clock beside(int others) const { return Clock(laps_, others); }
    // What was done since the last lap was clocked by others.
    void skip() {
      if (laps_.profile_ != nullptr) last_ = std::chrono::steady_clock::now();
    }
    // What was done since the last lap was this step.
    void lap(std::string_view step) {
      if (laps_.profile_ == nullptr) return;
      const auto now = std::chrono::steady_clock::now();
      laps_.add(step, std::chrono::duration<double>(now - last_).count() * share_);
      last_ = now;
    }

   private:
    Laps& laps_;
    double share_;
    std::chrono::steady_clock::time_point last_{};
  };

 private:
  void add(std::string_view step, double seconds) {
    const std::lock_guard lock(mutex_);
    profile_->add(step, seconds);
  }
  BlockProfile* profile_;
  std::mutex mutex_;
};

// Some sequences of a call, on some threads.
struct Scope {
  DType dtype;  // that is computed in
  int threads;
  AttentionOptions attention;  // of these sequences
  std::byte* memory;           // as much as the part's workspace says
  Laps::Clock* clock;

  // A copy with the memory behind the first `bytes` of it.
  Scope behind(std::int64_t bytes) const {
    Scope inner = *this;
    inner.memory += bytes;
    return inner;
  }
};

// Sequences that a thread takes through a block at once; 0: all at once, each step on all threads.
// Short sequences only: their products are too small to be split well, and what a thread computes
// stays in its cache. Enough pieces for all threads to have the same to do.
std::int64_t sequences_together(std::int64_t B, std::int64_t T, int threads) noexcept;

// The options of sequences [begin, end) of B.
AttentionOptions options_of(const AttentionOptions& options, std::int64_t begin, std::int64_t end);
// Of one sequence and one head, on one thread. Not of a packed batch.
AttentionOptions options_of_head(const AttentionOptions& options, std::int64_t b, std::int64_t h);

// A norm's weights, copied: f32, or f64 if they were.
class OwnNorm {
 public:
  OwnNorm() = default;
  explicit OwnNorm(const NormWeights& weights)
      : weight_(own(weights.weight)),
        bias_(own(weights.bias)),
        eps_(weights.eps),
        kind_(weights.kind) {}
  NormWeights view() const { return {weight_.view(), bias_.view(), eps_, kind_}; }
  std::int64_t bytes() const noexcept {
    return (weight_.size() + bias_.size()) * static_cast<std::int64_t>(sizeof(float));
  }

 private:
  static Tensor own(const TensorView& view) {
    return Tensor::copy_of(view, view.dtype() == DType::f64 ? DType::f64 : DType::f32);
  }
  Tensor weight_, bias_;
  double eps_ = 0;
  NormKind kind_ = NormKind::layer;
};

// The checks that all prepared blocks make of a call, apart from shapes.
void check_prepared_call(const Call& call, const TensorView& x, const MutableTensorView& out);

// Refuses options that do not fit attention of that shape, in the name of the block.
void check_inner_attention(const Call& call, const AttentionShape& shape,
                           const AttentionOptions& options);

// Attention takes a bias of its query's dtype, which is the block's and not the caller's: a 16-bit
// bias is widened into `wide`, which has to live as long as the options that are returned.
AttentionOptions inner_options(const Call& call, Tensor& wide);

}  // namespace qkv
