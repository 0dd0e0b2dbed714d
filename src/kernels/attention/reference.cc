// Attention by its definition, one query at a time:
//
//   s_j = cap(scale · Σ_d q_d·k_jd) + bias_j - slope·|p - j|      for every visible key j
//   w_j = exp(s_j - max s) / (Σ_j exp(s_j - max s) [+ exp(sink - max s)])
//   o_d = Σ_j w_j·v_jd
//
// The maximum is subtracted because exp of a large score is no number; it cancels in w.

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/element.h"
#include "kernels/attention/attention.h"

namespace qkv {
namespace {

// Writes element j of a wanted row.
template <typename Real>
void put(const MutableTensorView& row, std::int64_t j, Real value) noexcept {
  if (row.has_value()) store_real(row, j * row.stride(0), value);
}

// T is the dtype of the inputs, Real what is computed in.
template <typename T, typename Real>
class Row {
 public:
  Row(const AttentionProblem& problem, const Sequence& sequence, std::int64_t h, std::int64_t i,
      const AttentionRow& row, void* scratch) noexcept
      : p_(problem),
        sequence_(sequence),
        row_(row),
        h_(h),
        h_kv_(h / (problem.Hq / problem.Hkv)),
        i_(i),
        visible_(problem.visible_keys(sequence, i)),
        weights_(static_cast<Real*>(scratch)),
        attended_(reinterpret_cast<bool*>(weights_ + problem.Tk)) {}

  void compute() noexcept {
    hide_keys_that_do_not_exist();
    bool any = false;
    for (std::int64_t j = 0; j < sequence_.key_length; ++j) any = score(j) || any;
    softmax(any);
    weigh_values();
  }

 private:
  static constexpr Real kMinusInfinity = -std::numeric_limits<Real>::infinity();

  std::int64_t query_axis() const noexcept { return sequence_.query_begin + i_; }
  std::int64_t key_axis(std::int64_t j) const noexcept { return sequence_.key_begin + j; }

  Real element(const TensorView& view, std::int64_t h, std::int64_t t,
               std::int64_t d) const noexcept {
    return static_cast<Real>(load<T>(view.data(), sequence_.batch * view.stride(0) +
                                                      h * view.stride(1) + t * view.stride(2) +
                                                      d * view.stride(3)));
  }

  // Index of (b, h, i, j) in a mask or bias.
  std::int64_t index(const TensorView& view, std::int64_t j) const noexcept {
    return sequence_.batch * view.stride(0) + h_ * view.stride(1) + query_axis() * view.stride(2) +
           key_axis(j) * view.stride(3);
  }

  void hide_keys_that_do_not_exist() noexcept {
    const KeyRange exist{sequence_.key_begin, sequence_.key_begin + sequence_.key_length};
    for (std::int64_t j = 0; j < p_.Tk; ++j) {
      if (exist.contains(j)) continue;
      put(row_.scores, j, kMinusInfinity);
      put(row_.softcapped, j, kMinusInfinity);
      put(row_.masked, j, kMinusInfinity);
      put(row_.weights, j, Real{0});
    }
  }

  // Leaves the score of key j in weights_[j]; false if it is hidden.
  bool score(std::int64_t j) noexcept {
    const Real bias = p_.bias.has_value() ? load_real<Real>(p_.bias, index(p_.bias, j)) : Real{0};
    const bool masked = p_.mask.has_value() && !load<bool>(p_.mask.data(), index(p_.mask, j));
    attended_[j] = visible_.contains(j) && !masked && bias != kMinusInfinity;
    weights_[j] = kMinusInfinity;
    // A hidden key is not read, unless its raw score was asked for.
    if (attended_[j] || row_.scores.has_value() || row_.softcapped.has_value()) {
      const Real raw = scaled_product(j);
      const Real capped = cap(raw);
      put(row_.scores, key_axis(j), raw);
      put(row_.softcapped, key_axis(j), capped);
      if (attended_[j]) weights_[j] = capped + bias - alibi(j);
    }
    put(row_.masked, key_axis(j), weights_[j]);
    return attended_[j];
  }

  Real scaled_product(std::int64_t j) const noexcept {
    Real sum = 0;
    for (std::int64_t d = 0; d < p_.D; ++d) {
      sum += element(p_.query, h_, query_axis(), d) * element(p_.key, h_kv_, key_axis(j), d);
    }
    return static_cast<Real>(p_.scale) * sum;
  }

  Real cap(Real s) const noexcept {
    if (p_.softcap == 0) return s;
    const Real limit = static_cast<Real>(p_.softcap);
    return limit * std::tanh(s / limit);
  }

  Real alibi(std::int64_t j) const noexcept {
    if (!p_.alibi.has_value()) return 0;
    const Real slope = load_real<Real>(p_.alibi, h_ * p_.alibi.stride(0));
    return slope * static_cast<Real>(std::abs(i_ + sequence_.offset - j));
  }

  // Scores to weights. `any`: some key is attended. That is decided by the mask and not by the
  // scores: a row of scores -1e30 is a row like any other.
  void softmax(bool any) noexcept {
    const Real sink =
        p_.sinks.has_value() ? load_real<Real>(p_.sinks, h_ * p_.sinks.stride(0)) : kMinusInfinity;
    if (any) {
      Real largest = sink;
      for (std::int64_t j = 0; j < sequence_.key_length; ++j) {
        if (attended_[j] && weights_[j] > largest) largest = weights_[j];
      }
      Real sum = sink == kMinusInfinity ? Real{0} : std::exp(sink - largest);
      for (std::int64_t j = 0; j < sequence_.key_length; ++j) {
        weights_[j] = attended_[j] ? std::exp(weights_[j] - largest) : Real{0};
        sum += weights_[j];
      }
      for (std::int64_t j = 0; j < sequence_.key_length; ++j) {
        if (attended_[j]) weights_[j] /= sum;
      }
      if (row_.lse.has_value()) store_real(row_.lse, 0, largest + std::log(sum));
    } else {
      for (std::int64_t j = 0; j < sequence_.key_length; ++j) weights_[j] = 0;
      if (row_.lse.has_value()) store_real(row_.lse, 0, sink);
    }
    for (std::int64_t j = 0; j < sequence_.key_length; ++j) {
      put(row_.weights, key_axis(j), weights_[j]);
    }
  }

  void weigh_values() noexcept {
    if (!row_.out.has_value()) return;
    for (std::int64_t d = 0; d < p_.Dv; ++d) {
      Real sum = 0;
      for (std::int64_t j = 0; j < sequence_.key_length; ++j) {
        // 0·NaN is NaN: a hidden value is skipped, not multiplied by 0.
        if (attended_[j]) sum += weights_[j] * element(p_.value, h_kv_, key_axis(j), d);
      }
      put(row_.out, d, sum);
    }
  }

  const AttentionProblem& p_;
  const Sequence& sequence_;
  const AttentionRow& row_;
  const std::int64_t h_, h_kv_, i_;
  const VisibleKeys visible_;
  Real* const weights_;   // scores first, then weights; [key_length]
  bool* const attended_;  // [key_length]
};

}  // namespace

std::int64_t attention_reference_scratch(const AttentionProblem& problem) noexcept {
  return problem.Tk * static_cast<std::int64_t>(sizeof(double) + sizeof(bool));
}

void attention_reference_row(const AttentionProblem& problem, const Sequence& sequence,
                             std::int64_t h, std::int64_t i, const AttentionRow& row,
                             void* scratch) noexcept {
  visit_float(problem.query.dtype(), [&](auto tag) {
    using T = decltype(tag);
    if constexpr (!std::is_same_v<T, double>) {
      if (!problem.accumulate_f64) {
        Row<T, float>(problem, sequence, h, i, row, scratch).compute();
        return;
      }
    }
    Row<T, double>(problem, sequence, h, i, row, scratch).compute();
  });
}

}  // namespace qkv
