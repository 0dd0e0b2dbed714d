#include "tests/gpt_oracle.h"

#include <cmath>

namespace qkv::testing {
namespace {

using Rows = std::vector<Numbers>;

double at(const Numbers& numbers, int i) { return numbers[static_cast<std::size_t>(i)]; }

Rows norm(const Rows& x, const Numbers& weight, const Numbers& bias, double eps, bool rms) {
  Rows y = x;
  for (Numbers& row : y) {
    double mean = 0, square = 0;
    const double n = static_cast<double>(row.size());
    for (const double v : row) mean += v / n;
    if (rms) mean = 0;
    for (const double v : row) square += (v - mean) * (v - mean) / n;
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = (row[i] - mean) / std::sqrt(square + eps) * weight[i];
      if (!bias.empty()) row[i] += bias[i];
    }
  }
  return y;
}

// (out, in), or (in, out) if conv1d.
Rows linear(const Rows& x, const Numbers& weight, const Numbers& bias, bool conv1d) {
  Rows y;
  const std::size_t in = x[0].size(), out = weight.size() / in;
  for (const Numbers& row : x) {
    Numbers result(out);
    for (std::size_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (std::size_t i = 0; i < in; ++i) {
        sum += row[i] * (conv1d ? weight[i * out + o] : weight[o * in + i]);
      }
      result[o] = sum;
    }
    y.push_back(result);
  }
  return y;
}

void add(Rows& x, const Rows& y) {
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
  }
}

double gelu(double x, bool exact) {
  if (exact) return x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Channels d and d + D/2 of a head are turned by t·base^(-2d/D).
void rope(Rows& x, int heads, int D, double base) {
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (int h = 0; h < heads; ++h) {
      for (int d = 0; d < D / 2; ++d) {
        const double angle = static_cast<double>(t) * std::pow(base, -2.0 * d / D);
        double& a = x[t][static_cast<std::size_t>(h * D + d)];
        double& b = x[t][static_cast<std::size_t>(h * D + d + D / 2)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
  }
}

Rows attention(const Rows& q, const Rows& k, const Rows& v, int heads, int kv_heads, int D) {
  Rows out(q.size(), Numbers(static_cast<std::size_t>(heads * D)));
  for (int h = 0; h < heads; ++h) {
    const int group = h / (heads / kv_heads);
    for (std::size_t i = 0; i < q.size(); ++i) {
      Numbers weights;
      double total = 0, largest = -HUGE_VAL;
      for (std::size_t j = 0; j <= i; ++j) {
        double s = 0;
        for (int d = 0; d < D; ++d) s += at(q[i], h * D + d) * at(k[j], group * D + d);
        weights.push_back(s / std::sqrt(static_cast<double>(D)));
        largest = std::max(largest, weights.back());
      }
      for (double& w : weights) total += w = std::exp(w - largest);
      for (std::size_t j = 0; j <= i; ++j) {
        for (int d = 0; d < D; ++d) {
          out[i][static_cast<std::size_t>(h * D + d)] +=
              weights[j] / total * at(v[j], group * D + d);
        }
      }
    }
  }
  return out;
}

Rows columns(const Rows& x, int begin, int end) {
  Rows y;
  for (const Numbers& row : x) y.emplace_back(row.begin() + begin, row.begin() + end);
  return y;
}

}  // namespace

std::vector<Numbers> OracleGpt::logits(const std::vector<int>& tokens) const {
  const Numbers wte = tensor(llama ? "embed_tokens.weight" : "wte.weight");
  const Numbers wpe = llama ? Numbers() : tensor("wpe.weight");
  Rows x;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    Numbers row;
    for (int i = 0; i < width; ++i) {
      row.push_back(at(wte, tokens[t] * width + i));
      if (!llama) row.back() += at(wpe, static_cast<int>(t) * width + i);
    }
    x.push_back(row);
  }
  for (int n = 0; n < layers; ++n) {
    const std::string at_layer = (llama ? "layers." : "h.") + std::to_string(n) + ".";
    const auto normed = [&](const char* name) {
      return norm(x, tensor(at_layer + name + ".weight"),
                  llama ? Numbers() : tensor(at_layer + name + ".bias"), eps, llama);
    };
    const auto map = [&](const Rows& in, const char* name) {
      return linear(in, tensor(at_layer + name + ".weight"), tensor(at_layer + name + ".bias"),
                    conv1d);
    };
    Rows q, k, v;
    if (llama) {
      const Rows a = normed("input_layernorm");
      q = map(a, "self_attn.q_proj");
      k = map(a, "self_attn.k_proj");
      v = map(a, "self_attn.v_proj");
      rope(q, heads, head_dim, rope_base);
      rope(k, kv_heads, head_dim, rope_base);
    } else {
      const Rows qkv = map(normed("ln_1"), "attn.c_attn");
      q = columns(qkv, 0, width);
      k = columns(qkv, width, 2 * width);
      v = columns(qkv, 2 * width, 3 * width);
    }
    const Rows y = attention(q, k, v, heads, kv_heads, head_dim);
    add(x, map(y, llama ? "self_attn.o_proj" : "attn.c_proj"));
    Rows h;
    if (llama) {
      const Rows a = normed("post_attention_layernorm");
      h = map(a, "mlp.gate_proj");
      const Rows up = map(a, "mlp.up_proj");
      for (std::size_t t = 0; t < h.size(); ++t) {
        for (std::size_t i = 0; i < h[t].size(); ++i) {
          h[t][i] *= up[t][i] / (1 + std::exp(-h[t][i]));
        }
      }
    } else {
      h = map(normed("ln_2"), "mlp.c_fc");
      for (Numbers& row : h) {
        for (double& value : row) value = gelu(value, exact_gelu);
      }
    }
    add(x, map(h, llama ? "mlp.down_proj" : "mlp.c_proj"));
  }
  x = norm(x, tensor(llama ? "norm.weight" : "ln_f.weight"),
           llama ? Numbers() : tensor("ln_f.bias"), eps, llama);
  Numbers head = tensor("lm_head.weight");
  return linear(x, head.empty() ? wte : head, {}, false);
}

}  // namespace qkv::testing
