#include "tests/attention_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention/fused.h"

namespace qkv::testing {
namespace {

constexpr std::byte kGuard{0xa5};

std::int64_t pick(Random& random, std::initializer_list<std::int64_t> values) {
  return values.begin()[random() % values.size()];
}

bool chance(Random& random, int percent) { return static_cast<int>(random() % 100) < percent; }

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

// Order of dimensions in memory, outermost first.
std::vector<int> memory_order(int rank, Strided::Layout layout) {
  if (rank == 4 && layout == Strided::Layout::bthd) return {0, 2, 1, 3};
  if (rank == 4 && layout == Strided::Layout::bhdt) return {0, 1, 3, 2};
  std::vector<int> order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  return order;
}

}  // namespace

Strided::Strided(DType dtype, const Dims& shape, Layout layout, bool aligned) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  Dims strides = shape;
  std::int64_t step = layout == Layout::gaps ? 3 : 1;
  const std::vector<int> order = memory_order(shape.rank(), layout);
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = step;
    step *= std::max<std::int64_t>(shape[*d], 1);
    if (layout == Layout::gaps) step += 5;
  }
  // 64 guard bytes on both sides; `first` is an address that no element type is aligned to, or one
  // that all are.
  const std::int64_t lead = aligned ? 64 : 64 + 1;
  bytes_.assign(static_cast<std::size_t>(lead + step * size + 64), kGuard);
  std::byte* first = bytes_.data() + lead;
  if (layout == Layout::reversed && shape.rank() > 0 && shape[-2] > 0) {
    const int d = shape.rank() - 2;  // tokens run backwards
    first += (shape[d] - 1) * strides[d] * size;
    strides[d] = -strides[d];
  }
  view_ = MutableTensorView(first, dtype, shape, strides);
  reached_.assign(bytes_.size(), false);
  const Dims rows = shape;
  for (std::int64_t n = 0; n < element_count(rows); ++n) {
    std::int64_t rest = n, offset = first - bytes_.data();
    for (int d = rows.rank() - 1; d >= 0; --d) {
      offset += rest % rows[d] * strides[d] * size;
      rest /= rows[d];
    }
    for (std::int64_t b = 0; b < size; ++b) reached_[static_cast<std::size_t>(offset + b)] = true;
  }
}

bool Strided::guards_intact() const {
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (!reached_[i] && bytes_[i] != kGuard) return false;
  }
  return true;
}

void Strided::poison() const {
  auto* bytes = const_cast<std::byte*>(bytes_.data());
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (reached_[i]) bytes[i] = std::byte{0x7b};
  }
}

bool Strided::still_poisoned() const {
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (reached_[i] && bytes_[i] != std::byte{0x7b}) return false;
  }
  return true;
}

void fill_normal(const MutableTensorView& view, Random& random, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  Tensor dense(DType::f64, view.shape());
  for (double& x : dense.as<double>()) x = normal(random);
  copy(dense.view(), view);
}

Tensor normal(const Dims& shape, Random& random, double deviation) {
  Tensor x(DType::f32, shape);
  // Each is the sum of four 16-bit numbers.
  for (float& value : x.as<float>()) {
    std::uint64_t bits = random();
    double sum = 0;
    for (int i = 0; i < 4; ++i, bits >>= 16) sum += static_cast<double>(bits & 0xffff) - 32767.5;
    value = static_cast<float>(sum * deviation / 37837);
  }
  return x;
}

AttentionCase::AttentionCase(std::uint64_t seed) {
  Random random(seed);
  choose_shape(random);
  choose_structure(random);
  choose_data(random);
  description = fmt::format("seed {}: {} B{} Hq{} Hkv{} Tq{} Tk{} D{} Dv{} {}", seed,
                            name_of(dtype), B, Hq, Hkv, Tq, Tk, D, Dv, description);
}

void AttentionCase::choose_shape(Random& random) {
  const auto token = [&] {
    return pick(random,
                {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 20, 31, 33, 40, 59, 63, 64, 65, 111, 129});
  };
  const auto width = [&] {
    return pick(random, {1, 2, 3, 7, 8, 9, 15, 17, 31, 32, 33, 40, 64, 65});
  };
  B = pick(random, {1, 1, 2, 3});
  Hkv = pick(random, {1, 1, 2, 3});
  Hq = Hkv * pick(random, {1, 1, 2, 4});
  Tq = token();
  Tk = chance(random, 40) ? Tq : token();
  // One block of the fused kernel's keys and its rest, and more blocks than one.
  const std::int64_t block = kFusedKeyBlock, rest = kFusedKeyRest;
  if (chance(random, 40)) {
    Tk = pick(random, {block, block + 1, block + rest, block + rest + 1, 2 * block - 1,
                       2 * block + rest, 2 * block + rest + 1, 5 * block + 7});
  }
  D = width();
  Dv = chance(random, 50) ? D : width();
  dtype = static_cast<DType>(pick(random, {0, 0, 0, 1, 2, 3}));
  const auto make = [&](std::int64_t heads, std::int64_t tokens, std::int64_t w) {
    const auto layout = static_cast<Strided::Layout>(between(random, 0, 4));
    auto result =
        std::make_unique<Strided>(dtype, Dims{B, heads, tokens, w}, layout, chance(random, 70));
    fill_normal(result->view(), random, chance(random, 10) ? 8 : 1);
    return result;
  };
  // A packed batch has one entry.
  if (chance(random, 20)) {
    B = 1;
    const std::int64_t n = between(random, 1, 5);
    const auto starts = [&](std::int64_t total) {
      Tensor result(DType::i64, {n + 1});
      std::vector<std::int64_t> cuts{0, total};
      for (std::int64_t i = 1; i < n; ++i) cuts.push_back(between(random, 0, total));
      std::sort(cuts.begin(), cuts.end());
      std::copy(cuts.begin(), cuts.end(), result.as<std::int64_t>().begin());
      return result;
    };
    query_starts = starts(Tq);
    key_starts = chance(random, 50) && Tq == Tk ? query_starts.clone() : starts(Tk);
    options.query_starts = query_starts;
    options.key_starts = key_starts;
    description += "packed ";
  }
  query = make(Hq, Tq, D);
  key = make(Hkv, Tk, D);
  value = make(Hkv, Tk, Dv);
  out = make(Hq, Tq, Dv);
}

void AttentionCase::choose_structure(Random& random) {
  const bool packed = query_starts.size() > 0;
  const std::int64_t n = packed ? query_starts.dim(0) - 1 : B;
  const auto keys_of = [&](std::int64_t s) {
    const auto starts = packed ? key_starts.as<std::int64_t>() : std::span<std::int64_t>();
    return packed ? starts[static_cast<std::size_t>(s + 1)] - starts[static_cast<std::size_t>(s)]
                  : Tk;
  };
  const auto per_sequence = [&](auto&& value_of) {
    const DType integer = chance(random, 50) ? DType::i32 : DType::i64;
    Tensor result(integer, {n});
    for (std::int64_t s = 0; s < n; ++s) {
      result.view().set({s}, static_cast<double>(value_of(s)));
    }
    return result;
  };
  const int causal = static_cast<int>(between(random, 0, 5));
  if (causal == 1) options.causal = Causal::top_left;
  if (causal == 2) options.causal = Causal::bottom_right;
  if (causal >= 3) {
    if (causal >= 4) options.causal = Causal::aligned;
    if (chance(random, 50)) {
      options.offset = between(random, -3, Tk + 2);
    } else {
      offsets = per_sequence([&](std::int64_t) { return between(random, -3, Tk + 2); });
      options.offsets = offsets;
    }
  }
  if (causal) description += fmt::format("causal{} ", causal);
  if (chance(random, 30)) {
    options.window = {between(random, -1, Tk), between(random, -1, Tk)};
    description += fmt::format("window({},{}) ", options.window.left, options.window.right);
  }
  if (chance(random, 20)) {
    prefix = per_sequence([&](std::int64_t) { return between(random, 0, Tk + 1); });
    options.prefix = prefix;
    description += "prefix ";
  }
  if (chance(random, 30)) {
    key_lengths = per_sequence([&](std::int64_t s) { return between(random, 0, keys_of(s)); });
    options.key_lengths = key_lengths;
    description += "lengths ";
  }
}

void AttentionCase::choose_data(Random& random) {
  const auto broadcast_shape = [&] {
    Dims shape;
    const Dims full{B, Hq, Tq, Tk};
    for (int d = static_cast<int>(between(random, 0, 3)); d < 4; ++d) {
      shape.push_back(chance(random, 30) ? 1 : full[d]);
    }
    return shape;
  };
  if (chance(random, 30)) {
    mask = Tensor(DType::boolean, broadcast_shape());
    const int open = static_cast<int>(pick(random, {10, 50, 90}));
    for (bool& x : mask.as<bool>()) x = chance(random, open);
    if (chance(random, 40)) {
      // Padding, as masks often are: whole tiles that all queries see, or none does.
      const std::int64_t width = mask.dim(-1), end = between(random, 0, width);
      for (std::int64_t n = 0; n < mask.size(); ++n) {
        mask.as<bool>()[static_cast<std::size_t>(n)] = n % width < end;
      }
    }
    options.mask = mask;
    description += "mask ";
  }
  if (chance(random, 30)) {
    bias = Tensor(chance(random, 50) ? dtype : DType::f32, broadcast_shape());
    fill_normal(bias.view(), random);
    Tensor hidden(DType::f64, bias.shape());
    copy(bias.view(), hidden.view());
    for (double& x : hidden.as<double>()) {
      if (chance(random, 15)) x = -std::numeric_limits<double>::infinity();
    }
    copy(hidden.view(), bias.view());
    options.bias = bias;
    description += "bias ";
  }
  if (chance(random, 20)) {
    alibi = Tensor(DType::f32, {Hq});
    for (float& x : alibi.as<float>()) x = static_cast<float>(between(random, 1, 64)) / 128.0f;
    options.alibi = alibi;
    description += "alibi ";
  }
  if (chance(random, 20)) {
    sinks = Tensor(DType::f32, {Hq});
    fill_normal(sinks.view(), random);
    if (chance(random, 30)) sinks.as<float>()[0] = -std::numeric_limits<float>::infinity();
    options.sinks = sinks;
    description += "sinks ";
  }
  if (chance(random, 20)) options.softcap = static_cast<double>(between(random, 1, 30));
  if (chance(random, 30)) {
    options.scale =
        static_cast<double>(between(random, -8, 8)) / 16 / std::sqrt(static_cast<double>(D)) * 4;
    description += fmt::format("scale {} ", *options.scale);
  }
  if (options.softcap) description += fmt::format("softcap {} ", *options.softcap);
}

}  // namespace qkv::testing
