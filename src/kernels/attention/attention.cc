#include "kernels/attention/attention.h"

#include <algorithm>

#include "base/element.h"

namespace qkv {
namespace {

std::int64_t integer_at(const TensorView& view, std::int64_t i) noexcept {
  return load_integer(view, i * view.stride(0));
}

}  // namespace

std::int64_t AttentionProblem::sequence_count() const noexcept {
  return packed() ? query_starts.dim(0) - 1 : B;
}

Sequence AttentionProblem::sequence(std::int64_t s) const noexcept {
  Sequence result;
  if (packed()) {
    result.query_begin = integer_at(query_starts, s);
    result.query_count = integer_at(query_starts, s + 1) - result.query_begin;
    result.key_begin = integer_at(key_starts, s);
    result.key_count = integer_at(key_starts, s + 1) - result.key_begin;
  } else {
    result.batch = s;
    result.query_count = Tq;
    result.key_count = Tk;
  }
  result.key_length = key_lengths.has_value() ? integer_at(key_lengths, s) : result.key_count;
  result.prefix = prefix.has_value() ? integer_at(prefix, s) : 0;
  result.offset = bottom_right          ? result.key_count - result.query_count
                  : offsets.has_value() ? integer_at(offsets, s)
                                        : offset;
  return result;
}

Sequence AttentionProblem::sequence_of(std::int64_t b, std::int64_t t) const noexcept {
  if (!packed()) return sequence(b);
  // The last sequence that begins at or before t: ones that are empty begin there too, but earlier
  // in the list.
  std::int64_t low = 0, high = sequence_count();
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (integer_at(query_starts, middle) <= t ? low : high) = middle;
  }
  return sequence(low);
}

VisibleKeys AttentionProblem::visible_keys(const Sequence& sequence,
                                           std::int64_t i) const noexcept {
  const std::int64_t p = i + sequence.offset;
  KeyRange band{0, sequence.key_length};
  if (window.left >= 0) band.begin = std::max(band.begin, p - window.left);
  if (window.right >= 0) band.end = std::min(band.end, p + window.right + 1);
  if (causal) band.end = std::min(band.end, p + 1);
  return {{0, std::min(sequence.prefix, sequence.key_length)}, band};
}

}  // namespace qkv
