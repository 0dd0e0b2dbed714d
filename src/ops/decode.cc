#include "ops/decode.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "base/cpu.h"
#include "base/element.h"
#include "base/parallel.h"

namespace qkv {
namespace {

constexpr double kLog2e = 1.44269504088896340735992468100189214;
constexpr std::int64_t kLine = 64;

// Hands out pieces of the workspace; with no memory it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* take(std::int64_t count) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
    return reinterpret_cast<T*>(at);
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::int64_t used_ = 0;
};

// How the chunks of a batch entry are numbered.
struct Chunks {
  std::int64_t length = 0;  // keys of one
  std::int64_t count = 0;   // of a key head
  std::int64_t first = 0;   // unit of the entry: its key heads one after the other, chunk by chunk
};

Chunks chunks_of(const AttentionProblem& p, std::int64_t b) {
  const std::int64_t keys = p.sequence(b).key_length;
  const std::int64_t length = decode_chunk(keys);
  return {length, std::max<std::int64_t>(1, (keys + length - 1) / length), 0};
}

bool takes_integers(const AttentionProblem& p) {
  return std::max(p.D, p.Dv) <= kDecodeIntegersMost;
}

struct Buffers {
  float* query;                     // [B, Hkv, rows, padded D]
  float* partial;                   // [units, rows, decode_partial]
  KeyRange* visible;                // [B, rows]
  std::int64_t* positions;          // [B, rows]
  float* slopes;                    // [Hkv, rows]
  Chunks* chunks;                   // [B]
  std::atomic<std::int32_t>* left;  // [B, Hkv]: chunks that are not done
  // One each worker:
  float* scores;
  std::byte* integers;
  float* out;
  KeyRange* clipped;
  DecodeRun* runs;

  Buffers(const AttentionProblem& p, const DecodeSplit& s, std::int64_t workers, Carver& carve)
      : query(carve.take<float>(p.B * p.Hkv * s.rows * decode_padded(p.D))),
        partial(carve.take<float>(s.units * s.rows * decode_partial(p.Dv))),
        visible(carve.take<KeyRange>(p.B * s.rows)),
        positions(carve.take<std::int64_t>(p.B * s.rows)),
        slopes(carve.take<float>(p.Hkv * s.rows)),
        chunks(carve.take<Chunks>(p.B)),
        left(carve.take<std::atomic<std::int32_t>>(p.B * p.Hkv)),
        scores(carve.take<float>(workers * decode_scratch(s.rows, s.chunk))),
        integers(carve.take<std::byte>(
            takes_integers(p) ? workers * decode_integers(s.rows, p.D, p.Dv) : 0)),
        out(carve.take<float>(workers * decode_padded(p.Dv))),
        clipped(carve.take<KeyRange>(workers * s.rows)),
        runs(carve.take<DecodeRun>(workers * s.max_runs)) {}
};

class Run {
 public:
  Run(const AttentionProblem& p, const DecodeKeys& keys, const DecodeKernel& kernel,
      const DecodeSplit& split, const Buffers& buffers)
      : p_(p),
        keys_(keys),
        kernel_(kernel),
        s_(split),
        b_(buffers),
        integers_(keys.storage == KVStorage::int8 && takes_integers(p) &&
                  kernel.target == SimdTarget::avx512 && cpu_has("avx512vnni")) {}

  // Row g·Tq + t of a key head is query t of the g-th query head that shares it.
  void prepare() {
    std::int64_t first = 0;
    for (std::int64_t b = 0; b < p_.B; ++b) {
      const Sequence sequence = p_.sequence(b);
      Chunks& chunks = *new (b_.chunks + b) Chunks(chunks_of(p_, b));
      chunks.first = first;
      first += chunks.count * p_.Hkv;
      for (std::int64_t h = 0; h < p_.Hkv; ++h) {
        new (b_.left + b * p_.Hkv + h)
            std::atomic<std::int32_t>(static_cast<std::int32_t>(chunks.count));
      }
      for (std::int64_t row = 0; row < s_.rows; ++row) {
        const std::int64_t t = row % p_.Tq;
        b_.visible[b * s_.rows + row] = p_.visible_keys(sequence, t).band;
        b_.positions[b * s_.rows + row] = t + sequence.offset;
      }
    }
    for (std::int64_t h = 0; h < p_.Hq && p_.alibi.has_value(); ++h) {
      const auto slope =
          static_cast<float>(load_real<double>(p_.alibi, h * p_.alibi.stride(0)) * kLog2e);
      std::fill_n(b_.slopes + h * p_.Tq, p_.Tq, slope);
    }
    // Into the queries go scale and the change to units of ln 2, or the division by the softcap.
    const double factor = p_.softcap > 0 ? p_.scale / softcap() : p_.scale * kLog2e;
    for (std::int64_t n = 0; n < p_.B * p_.Hq * p_.Tq; ++n) {
      scale_query(n, static_cast<float>(factor));
    }
  }

  // Queries are divided by it, in f32: within these limits none becomes an infinity or loses digits
  // that count, and beyond them scores are 0 to 2^-30, or are not capped.
  double softcap() const { return std::clamp(p_.softcap, 0x1p-30, 0x1p110); }

  void unit(std::int64_t item, int worker) const {
    std::int64_t b = 0;
    while (b + 1 < p_.B && b_.chunks[b + 1].first <= item) ++b;
    const Chunks& chunks = b_.chunks[b];
    const std::int64_t chunk = (item - chunks.first) % chunks.count;
    const std::int64_t head = b * p_.Hkv + (item - chunks.first) / chunks.count;
    DecodeUnit u;
    u.storage = keys_.storage;
    u.D = p_.D;
    u.Dv = p_.Dv;
    u.key_stride = keys_.key_stride;
    u.value_stride = keys_.value_stride;
    u.rows = s_.rows;
    u.query = b_.query + head * s_.rows * decode_padded(p_.D);
    if (p_.alibi.has_value()) {
      u.slopes = b_.slopes + head % p_.Hkv * s_.rows;
      u.positions = b_.positions + b * s_.rows;
    }
    u.softcap = p_.softcap > 0 ? static_cast<float>(softcap() * kLog2e) : 0;
    u.begin = chunk * chunks.length;
    u.length = chunks.length;
    u.scores = b_.scores + worker * decode_scratch(s_.rows, s_.chunk);
    if (integers_) {
      u.integers = b_.integers + worker * decode_integers(s_.rows, p_.D, p_.Dv);
    }
    u.partial = b_.partial + item * s_.rows * decode_partial(p_.Dv);
    KeyRange* clipped = b_.clipped + worker * s_.rows;
    u.visible = clipped;
    DecodeRun* runs = b_.runs + worker * s_.max_runs;
    const KeyRange all = clip(b, {u.begin, u.begin + u.length}, clipped);
    if (all.begin < all.end) {
      const std::int64_t count = keys_.runs(b, head % p_.Hkv, all, runs);
      u.runs = {runs, static_cast<std::size_t>(count)};
    }
    kernel_.run(u);
    // Whoever is last merges: in the order of the chunks, not of their ends.
    if (b_.left[head].fetch_sub(1, std::memory_order_acq_rel) == 1) merge(head, worker);
  }

 private:
  void scale_query(std::int64_t n, float factor) const {
    const std::int64_t t = n % p_.Tq, h = n / p_.Tq % p_.Hq, b = n / p_.Tq / p_.Hq;
    const TensorView& q = p_.query;
    const std::int64_t at = b * q.stride(0) + h * q.stride(1) + t * q.stride(2);
    float* to = b_.query + n * decode_padded(p_.D);  // rows are in the order of heads and queries
    visit_float(q.dtype(), [&](auto tag) {
      using T = decltype(tag);
      for (std::int64_t d = 0; d < p_.D; ++d) {
        to[d] = static_cast<float>(load<T>(q.data(), at + d * q.stride(3))) * factor;
      }
    });
    std::fill(to + p_.D, to + decode_padded(p_.D), 0.0f);
  }

  // The rows' keys within a chunk; returns the range that has all of them.
  KeyRange clip(std::int64_t b, KeyRange chunk, KeyRange* clipped) const {
    KeyRange all{chunk.end, chunk.begin};
    for (std::int64_t row = 0; row < s_.rows; ++row) {
      const KeyRange keys = b_.visible[b * s_.rows + row];
      clipped[row] = {std::max(keys.begin, chunk.begin), std::min(keys.end, chunk.end)};
      if (clipped[row].begin >= clipped[row].end) continue;
      all.begin = std::min(all.begin, clipped[row].begin);
      all.end = std::max(all.end, clipped[row].end);
    }
    return all;
  }

  void merge(std::int64_t head, int worker) const {
    const std::int64_t b = head / p_.Hkv, stride = s_.rows * decode_partial(p_.Dv);
    const Chunks& chunks = b_.chunks[b];
    const float* parts = b_.partial + (chunks.first + head % p_.Hkv * chunks.count) * stride;
    float* row_out = b_.out + worker * decode_padded(p_.Dv);
    for (std::int64_t row = 0; row < s_.rows; ++row) {
      const std::int64_t h = head % p_.Hkv * (p_.Hq / p_.Hkv) + row / p_.Tq, t = row % p_.Tq;
      const float sink = p_.sinks.has_value() ? load_real<float>(p_.sinks, h * p_.sinks.stride(0))
                                              : -std::numeric_limits<float>::infinity();
      const float lse = decode_merge(parts + row * decode_partial(p_.Dv), stride, chunks.count,
                                     p_.Dv, sink, row_out);
      const MutableTensorView& out = p_.out;
      const std::int64_t at = b * out.stride(0) + h * out.stride(1) + t * out.stride(2);
      visit_float(out.dtype(), [&](auto tag) {
        using T = decltype(tag);
        for (std::int64_t c = 0; c < p_.Dv; ++c) {
          store(out.data(), at + c * out.stride(3), static_cast<T>(row_out[c]));
        }
      });
      const MutableTensorView& to = p_.stages.lse;
      if (to.has_value()) {
        store_real(to, b * to.stride(0) + h * to.stride(1) + t * to.stride(2), lse);
      }
    }
  }

  const AttentionProblem& p_;
  const DecodeKeys& keys_;
  const DecodeKernel& kernel_;
  const DecodeSplit& s_;
  const Buffers& b_;
  const bool integers_;
};

}  // namespace

bool decode_can(const AttentionProblem& p) noexcept {
  return !p.accumulate_f64 && !p.prefix.has_value() && !p.mask.has_value() && !p.bias.has_value();
}

DecodeChoice choose_decode(const AttentionProblem& p) noexcept {
  // More queries fill the lanes of the fused kernel; of fewer keys it makes as quick work.
  constexpr std::int64_t kQueries = 8, kKeys = 256;
  if (!decode_can(p)) return DecodeChoice::none;
  bool some = false, all = true;
  for (std::int64_t s = 0; s < p.sequence_count(); ++s) {
    const Sequence sequence = p.sequence(s);
    const bool fits = sequence.query_count <= kQueries && sequence.key_length >= kKeys;
    some = some || fits;
    all = all && fits;
  }
  return !some ? DecodeChoice::none : all ? DecodeChoice::all : DecodeChoice::some;
}

std::int64_t decode_chunk(std::int64_t key_length) noexcept {
  // Short ones so that few heads keep all threads busy; long ones since each begins unprepared.
  return key_length <= 2048 ? 512 : key_length <= 8192 ? 1024 : kDecodeChunkMost;
}

DecodeSplit split_decode(const AttentionProblem& p, std::int64_t page_tokens, int threads) {
  DecodeSplit split;
  split.rows = p.Hkv == 0 ? 0 : p.Hq / p.Hkv * p.Tq;
  for (std::int64_t b = 0; b < p.B; ++b) {
    const Chunks chunks = chunks_of(p, b);
    split.chunk = std::max(split.chunk, chunks.length);
    split.units += chunks.count * p.Hkv;
  }
  split.max_runs = split.chunk / page_tokens + 2;
  Carver count(nullptr);
  const Buffers buffers(p, split, worker_count(split.units, threads), count);
  split.workspace = count.used();
  return split;
}

void run_decode(const AttentionProblem& p, const DecodeKeys& keys, const DecodeKernel& kernel,
                const DecodeSplit& split, int threads, std::byte* workspace) {
  if (split.rows == 0 || p.B == 0) return;
  Carver carve(workspace);
  const Buffers buffers(p, split, worker_count(split.units, threads), carve);
  Run run(p, keys, kernel, split, buffers);
  run.prepare();
  parallel_ranges(split.units, 0, threads,
                  [&](std::int64_t item, int worker) { run.unit(item, worker); });
}

PlainKeys::PlainKeys(const AttentionProblem& p) : key_(p.key), value_(p.value) {
  storage = p.key.dtype() == DType::f16    ? KVStorage::f16
            : p.key.dtype() == DType::bf16 ? KVStorage::bf16
                                           : KVStorage::f32;
  const auto odd = [](const TensorView& x) {
    return x.stride(3) != 1 || reinterpret_cast<std::uintptr_t>(x.data()) % size_of(x.dtype()) != 0;
  };
  if (odd(key_)) key_ = key_copy_ = Tensor::copy_of(key_);
  if (odd(value_)) value_ = value_copy_ = Tensor::copy_of(value_);
  key_stride = key_.stride(2);
  value_stride = value_.stride(2);
}

std::int64_t PlainKeys::runs(std::int64_t b, std::int64_t h, KeyRange keys,
                             DecodeRun* to) const noexcept {
  const auto at = [&](const TensorView& x) {
    return static_cast<const std::byte*>(x.data()) +
           (b * x.stride(0) + h * x.stride(1) + keys.begin * x.stride(2)) *
               static_cast<std::int64_t>(size_of(x.dtype()));
  };
  *to = {at(key_), at(value_), nullptr, nullptr, keys.begin, keys.end};
  return 1;
}

}  // namespace qkv
