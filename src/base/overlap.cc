#include "base/overlap.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>

// Elements of two views start at a + Σ i_d·s_d and b + Σ j_e·t_e bytes. They share a byte when
// some difference of starts is smaller than an element. Each dimension is a "term" that moves
// that difference by a multiple of its stride; the search walks the terms from the widest stride
// to the narrowest, keeping only multiples from which the remaining terms can still reach 0. In
// layouts whose dimensions nest (all usual ones) that leaves a choice or two at each step.

namespace qkv {
namespace {

__extension__ typedef __int128 Wide;  // sums of two 63-bit reaches; no ISO type is wide enough

struct Term {
  Wide step;       // bytes, positive
  Wide low, high;  // allowed multiples, inclusive
};

struct Search {
  std::array<Term, 2 * kMaxRank> terms;
  int count = 0;
  Wide before = 0, after = 0;  // hit: -before < difference < after
  int budget = 20'000;         // nodes; an odd layout is refused rather than searched for ever

  void add(Wide step, Wide low, Wide high) {
    if (low == 0 && high == 0) return;
    if (step < 0) {
      step = -step;
      std::swap(low, high);
      low = -low;
      high = -high;
    }
    terms[static_cast<std::size_t>(count++)] = {step, low, high};
  }

  // Whether multiples of terms[depth..] can bring `difference` into the hit range.
  bool reaches(Wide difference, int depth) {
    if (--budget < 0) return true;
    if (depth == count) return -before < difference && difference < after;
    Wide below = 0, above = 0;  // what the later terms can subtract and add
    for (int i = depth + 1; i < count; ++i) {
      below += terms[static_cast<std::size_t>(i)].step * terms[static_cast<std::size_t>(i)].low;
      above += terms[static_cast<std::size_t>(i)].step * terms[static_cast<std::size_t>(i)].high;
    }
    const Term& term = terms[static_cast<std::size_t>(depth)];
    if (term.step == 0) return reaches(difference, depth + 1);
    const auto floor_div = [](Wide n, Wide d) { return n >= 0 ? n / d : -((-n + d - 1) / d); };
    const Wide first = std::max(term.low, floor_div(-before - above - difference, term.step));
    const Wide last = std::min(term.high, floor_div(after - below - difference, term.step) + 1);
    for (Wide m = first; m <= last; ++m) {
      if (reaches(difference + m * term.step, depth + 1)) return true;
    }
    return false;
  }

  void sort_widest_first() {
    std::sort(terms.begin(), terms.begin() + count,
              [](const Term& x, const Term& y) { return x.step > y.step; });
  }
};

Wide bytes(const TensorView& view, int dim) {
  return static_cast<Wide>(view.stride(dim)) * static_cast<Wide>(size_of(view.dtype()));
}

// Where the elements of a view lie: [first, past) as addresses. False where that is not to be had
// in 64 bits. Cheap, and enough for nearly every pair of views.
struct Range {
  std::int64_t first = 0, past = 0;
};

bool find_range(const TensorView& view, std::int64_t size, Range& range) {
  std::int64_t low = 0, high = 0;
  for (int i = 0; i < view.rank(); ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(view.dim(i) - 1, view.stride(i), &reach)) return false;
    std::int64_t& side = reach < 0 ? low : high;
    if (__builtin_add_overflow(side, reach, &side)) return false;
  }
  const auto start = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data()));
  return !__builtin_mul_overflow(low, size, &low) && !__builtin_mul_overflow(high, size, &high) &&
         !__builtin_add_overflow(start, low, &range.first) &&
         !__builtin_add_overflow(start, high, &range.past) &&
         !__builtin_add_overflow(range.past, size, &range.past);
}

// Whether each dimension steps over all that the later ones reach: then no two elements meet.
bool nests(const TensorView& view) {
  std::int64_t reach = 1;  // elements that the later dimensions cover
  for (int i = view.rank() - 1; i >= 0; --i) {
    if (view.dim(i) < 2) continue;
    if (view.stride(i) < reach) return false;
    std::int64_t more = 0;
    if (__builtin_mul_overflow(view.dim(i) - 1, view.stride(i), &more) ||
        __builtin_add_overflow(reach, more, &reach)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool views_overlap(const TensorView& a, const TensorView& b) noexcept {
  if (a.size() == 0 || b.size() == 0) return false;
  Range here, there;
  if (find_range(a, static_cast<std::int64_t>(size_of(a.dtype())), here) &&
      find_range(b, static_cast<std::int64_t>(size_of(b.dtype())), there) &&
      (here.past <= there.first || there.past <= here.first)) {
    return false;
  }
  Search search;
  // Difference of starts, b - a. An a-element covers [start, start + size_a).
  search.after = static_cast<Wide>(size_of(a.dtype()));
  search.before = static_cast<Wide>(size_of(b.dtype()));
  std::array<bool, kMaxRank> merged{};
  for (int i = 0; i < a.rank(); ++i) {
    Wide low = -(a.dim(i) - 1), high = 0;
    // A dimension of b with the same stride is folded in: fewer terms, and exact.
    for (int j = 0; j < b.rank(); ++j) {
      if (merged[static_cast<std::size_t>(j)] || bytes(a, i) != bytes(b, j)) continue;
      merged[static_cast<std::size_t>(j)] = true;
      high += b.dim(j) - 1;
      break;
    }
    search.add(bytes(a, i), low, high);
  }
  for (int j = 0; j < b.rank(); ++j) {
    if (!merged[static_cast<std::size_t>(j)]) search.add(bytes(b, j), 0, b.dim(j) - 1);
  }
  search.sort_widest_first();
  const auto at = [](const TensorView& v) {
    return static_cast<Wide>(reinterpret_cast<std::uintptr_t>(v.data()));
  };
  return search.reaches(at(b) - at(a), 0);
}

bool overlaps_itself(const TensorView& view) noexcept {
  if (view.size() == 0 || nests(view)) return false;
  const Wide size = static_cast<Wide>(size_of(view.dtype()));
  // Some pair of indices differs first (in the order of dimensions) in dimension d, by m ≥ 1, and
  // may differ anyhow in the later ones.
  for (int d = 0; d < view.rank(); ++d) {
    if (view.dim(d) < 2) continue;
    if (view.stride(d) == 0) return true;
    Search search;
    search.before = search.after = size;
    search.add(bytes(view, d), 1, view.dim(d) - 1);
    for (int later = d + 1; later < view.rank(); ++later) {
      search.add(bytes(view, later), -(view.dim(later) - 1), view.dim(later) - 1);
    }
    search.sort_widest_first();
    if (search.reaches(0, 0)) return true;
  }
  return false;
}

}  // namespace qkv
