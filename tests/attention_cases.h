#pragma once

// Random attention calls for tests: shapes that hunt edges, every layout, every option, poison in
// whatever must not be read, and guard bytes around whatever must not be written.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "qkv/attention.h"
#include "qkv/tensor.h"

namespace qkv::testing {

using Random = std::mt19937_64;

// Memory for one view, in a layout of its own: elements lie inside a larger buffer, at an odd
// address unless asked otherwise, with gaps. Bytes that the view does not reach hold a pattern.
class Strided {
 public:
  enum class Layout { bhtd, bthd, bhdt, gaps, reversed };

  Strided(DType dtype, const Dims& shape, Layout layout, bool aligned = false);

  MutableTensorView view() const { return view_; }
  // Whether the bytes outside of the view still hold the pattern.
  bool guards_intact() const;
  // Every element becomes something that no computation gives by chance.
  void poison() const;
  bool still_poisoned() const;

 private:
  std::vector<std::byte> bytes_;
  std::vector<bool> reached_;
  MutableTensorView view_;
};

void fill_normal(const MutableTensorView& view, Random& random, double deviation = 1);
// f32; nearly normal, but quicker, for caches of many tokens.
Tensor normal(const Dims& shape, Random& random, double deviation = 1);

// One call: arguments and options. Options point into the members.
struct AttentionCase {
  explicit AttentionCase(std::uint64_t seed);

  std::string description;
  std::int64_t B, Hq, Hkv, Tq, Tk, D, Dv;
  DType dtype;
  std::unique_ptr<Strided> query, key, value, out;
  Tensor mask, bias, alibi, sinks;
  Tensor offsets, prefix, key_lengths, query_starts, key_starts;
  AttentionOptions options;

 private:
  void choose_shape(Random& random);
  void choose_structure(Random& random);
  void choose_data(Random& random);
};

}  // namespace qkv::testing
