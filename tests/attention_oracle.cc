#include "tests/attention_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace qkv::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double at(const TensorView& view, std::initializer_list<std::int64_t> index) {
  return view.at(index);
}

class Oracle {
 public:
  Oracle(const TensorView& query, const TensorView& key, const TensorView& value,
         const AttentionOptions& options)
      : o_(options),
        q_(Tensor::copy_of(query, DType::f64)),
        k_(Tensor::copy_of(key, DType::f64)),
        v_(Tensor::copy_of(value, DType::f64)),
        B_(query.dim(0)),
        Hq_(query.dim(1)),
        Tq_(query.dim(2)),
        Tk_(key.dim(2)),
        D_(query.dim(3)),
        Dv_(value.dim(3)),
        group_(key.dim(1) ? Hq_ / key.dim(1) : 1) {}

  AttentionOracle run() {
    for (std::int64_t b = 0; b < B_; ++b) {
      for (std::int64_t h = 0; h < Hq_; ++h) {
        for (std::int64_t i = 0; i < Tq_; ++i) row(b, h, i);
      }
    }
    return std::move(result_);
  }

 private:
  // Which sequence of a packed batch a token of an axis is in.
  static std::int64_t packed_sequence(const TensorView& starts, std::int64_t token) {
    std::int64_t s = 0;
    while (at(starts, {s + 1}) <= static_cast<double>(token)) ++s;
    return s;
  }

  struct Place {  // a query and a key, each counted from its sequence's first token
    std::int64_t sequence, i, j, tq, tk;
  };

  // None: the two are of different sequences.
  std::optional<Place> place(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (!o_.query_starts.has_value()) return Place{b, i, j, Tq_, Tk_};
    const auto start = [](const TensorView& v, std::int64_t s) {
      return static_cast<std::int64_t>(at(v, {s}));
    };
    const std::int64_t s = packed_sequence(o_.query_starts, i);
    if (packed_sequence(o_.key_starts, j) != s) return std::nullopt;
    return Place{s, i - start(o_.query_starts, s), j - start(o_.key_starts, s),
                 start(o_.query_starts, s + 1) - start(o_.query_starts, s),
                 start(o_.key_starts, s + 1) - start(o_.key_starts, s)};
  }

  double position(const Place& p) const {
    if (o_.causal == Causal::bottom_right) return static_cast<double>(p.i + p.tk - p.tq);
    if (o_.offset) return static_cast<double>(p.i + *o_.offset);
    if (o_.offsets.has_value()) return static_cast<double>(p.i) + at(o_.offsets, {p.sequence});
    return static_cast<double>(p.i);
  }

  bool exists(const Place& p) const {
    return !o_.key_lengths.has_value() ||
           static_cast<double>(p.j) < at(o_.key_lengths, {p.sequence});
  }

  bool structure_shows(const Place& p) const {
    const double j = static_cast<double>(p.j);
    if (o_.prefix.has_value() && j < at(o_.prefix, {p.sequence})) return true;
    const double at_position = position(p);
    if (o_.causal != Causal::none && j > at_position) return false;
    if (o_.window.left >= 0 && j < at_position - static_cast<double>(o_.window.left)) return false;
    if (o_.window.right >= 0 && j > at_position + static_cast<double>(o_.window.right)) {
      return false;
    }
    return true;
  }

  // Element of a mask or bias that is broadcast right-aligned.
  double broadcast_at(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t i,
                      std::int64_t j) const {
    const std::int64_t full[4] = {b, h, i, j};
    std::vector<std::int64_t> index;
    for (int d = 0; d < view.rank(); ++d) {
      index.push_back(view.dim(d) == 1 ? 0 : full[4 - view.rank() + d]);
    }
    return view.at(index);
  }

  void row(std::int64_t b, std::int64_t h, std::int64_t i) {
    std::vector<double> s(static_cast<std::size_t>(Tk_), -kInfinity);
    std::vector<bool> seen(static_cast<std::size_t>(Tk_), false);
    double size = 0;  // the largest Σ|terms| of a visible score: what rounding works on
    const double* q = q_data_ + ((b * Hq_ + h) * Tq_ + i) * D_;
    const std::int64_t kv_row = (b * (Hq_ / group_) + h / group_) * Tk_;
    const double scale = o_.scale.value_or(1 / std::sqrt(static_cast<double>(D_)));
    for (std::int64_t j = 0; j < Tk_; ++j) {
      const auto p = place(b, i, j);
      if (!p || !exists(*p)) {
        result_.scores.push_back(-kInfinity);
        result_.softcapped.push_back(-kInfinity);
        continue;
      }
      const double* k = k_data_ + (kv_row + j) * D_;
      double dot = 0, dot_size = 0;
      for (std::int64_t d = 0; d < D_; ++d) {
        dot += q[d] * k[d];
        dot_size += std::abs(q[d] * k[d]);
      }
      double score = scale * dot;
      result_.scores.push_back(score);
      if (o_.softcap) score = *o_.softcap * std::tanh(score / *o_.softcap);
      result_.softcapped.push_back(score);
      if (!structure_shows(*p)) continue;
      if (o_.mask.has_value() && broadcast_at(o_.mask, b, h, i, j) == 0) continue;
      const double bias = o_.bias.has_value() ? broadcast_at(o_.bias, b, h, i, j) : 0;
      if (bias == -kInfinity) continue;
      const double distance = std::abs(position(*p) - static_cast<double>(p->j));
      const double alibi = o_.alibi.has_value() ? at(o_.alibi, {h}) * distance : 0;
      s[static_cast<std::size_t>(j)] = score + bias - alibi;
      seen[static_cast<std::size_t>(j)] = true;
      size = std::max(size, std::abs(scale) * dot_size + std::abs(bias) + std::abs(alibi));
    }
    softmax(h, s, seen, size);
    weigh(kv_row, seen);
  }

  void softmax(std::int64_t h, const std::vector<double>& s, const std::vector<bool>& seen,
               double size) {
    const double sink = o_.sinks.has_value() ? at(o_.sinks, {h}) : -kInfinity;
    double largest = sink;
    bool any = false;
    for (std::size_t j = 0; j < s.size(); ++j) {
      if (!seen[j]) continue;
      any = true;
      largest = std::max(largest, s[j]);
    }
    double sum = sink == -kInfinity ? 0 : std::exp(sink - largest);
    for (std::size_t j = 0; j < s.size(); ++j) {
      if (seen[j]) sum += std::exp(s[j] - largest);
    }
    for (std::size_t j = 0; j < s.size(); ++j) {
      result_.masked.push_back(s[j]);
      result_.weights.push_back(seen[j] ? std::exp(s[j] - largest) / sum : 0.0);
    }
    result_.lse.push_back(any ? largest + std::log(sum) : sink);
    // A score is a sum of D products, a scale, a cap (tanh is a contraction; 4 more roundings), a
    // bias and a slope: D + 8 roundings on terms of total size `size`. A weight is exp of a
    // difference of two scores over a sum of Tk such: relative error twice that, plus the
    // difference's own rounding (≤ 2·size), plus Tk + 8. Out adds a sum of Tk terms of size ≤ |V|.
    const double length = static_cast<double>(Tk_);
    const double score_slack = (static_cast<double>(D_) + 8) * size;
    result_.score_slack.push_back(score_slack);
    result_.weight_slack.push_back(2 * score_slack + 2 * size + length + 8);
  }

  void weigh(std::int64_t kv_row, const std::vector<bool>& seen) {
    const double* w =
        result_.weights.data() + result_.weights.size() - static_cast<std::size_t>(Tk_);
    double largest = 0;
    for (std::int64_t d = 0; d < Dv_; ++d) {
      double sum = 0;
      for (std::int64_t j = 0; j < Tk_; ++j) {
        if (!seen[static_cast<std::size_t>(j)]) continue;
        const double v = v_data_[(kv_row + j) * Dv_ + d];
        sum += w[j] * v;
        largest = std::max(largest, std::abs(v));
      }
      result_.out.push_back(sum);
    }
    result_.out_slack.push_back((result_.weight_slack.back() + static_cast<double>(Tk_) + 1) *
                                largest);
  }

  const AttentionOptions& o_;
  const Tensor q_, k_, v_;
  const double *const q_data_ = q_.as<double>().data(), *const k_data_ = k_.as<double>().data(),
                      *const v_data_ = v_.as<double>().data();
  const std::int64_t B_, Hq_, Tq_, Tk_, D_, Dv_, group_;
  AttentionOracle result_;
};

}  // namespace

AttentionOracle attention_oracle(const TensorView& query, const TensorView& key,
                                 const TensorView& value, const AttentionOptions& options) {
  return Oracle(query, key, value, options).run();
}

}  // namespace qkv::testing
