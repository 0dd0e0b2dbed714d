#include "explain/worksheet/recipes.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace qkv::worksheet {
namespace {

using Kind = Expression::Kind;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

Entry made(Expression how) {
  Entry entry;
  entry.kind = Entry::Kind::made;
  entry.how = std::move(how);
  return entry;
}

// Σ over n of a(n)·b(n).
template <typename A, typename B>
Entry sum_of_products(std::int64_t count, A&& a, B&& b) {
  std::vector<Expression> terms;
  for (std::int64_t n = 0; n < count; ++n) {
    terms.push_back(Expression::of(Kind::product, {a(n), b(n)}));
  }
  return made(terms.size() == 1 ? std::move(terms.front())
                                : Expression::of(Kind::sum, std::move(terms)));
}

bool is_image(const Step& step) { return step.value->shape().rank() == 4; }

// Makers of entries. `e` is the explanation, `i` the index of the entry in its step's tensor.
class Recipes {
 public:
  explicit Recipes(const Explanation& e) : e_(e) {}

  const Step* find(std::string_view name) const { return e_.find(name); }
  // The first of the names that there is.
  const Step& first(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      if (const Step* step = find(name)) return *step;
    }
    throw std::logic_error("worksheet: a step is missing that another one is made from");
  }

  // Channel c of token t, whether tokens are rows or pixels.
  Expression input(std::int64_t b, std::int64_t t, std::int64_t c, const EntryOf& at) const {
    if (const Step* tokens = find("tokens")) return at(*tokens, {t, c});
    const Step& x = first({"input"});
    if (!is_image(x)) return at(x, {b, t, c});
    const std::int64_t W = x.value->dim(3);
    return at(x, {b, c, t / W, t % W});
  }

  // Entry d of a token's query, key or value; where there is none, all three are the input.
  Expression role(std::string_view name, const Dims& token, std::int64_t d,
                  const EntryOf& at) const {
    const Step* step = find(name);
    if (step == nullptr) return at(first({"input"}), {token[2], d});
    return step->tokens_last ? at(*step, {token[0], token[1], d, token[2]})
                             : at(*step, {token[0], token[1], token[2], d});
  }

  Entry projection(const Step& step, const Dims& i, const EntryOf& at) const {
    const Step& weight = first({"w_" + step.name});
    const std::int64_t token = step.tokens_last ? i[3] : i[2], d = step.tokens_last ? i[2] : i[3];
    const std::int64_t width = step.value->dim(step.tokens_last ? 2 : 3);
    return sum_of_products(
        weight.value->dim(0), [&](std::int64_t c) { return input(i[0], token, c, at); },
        [&](std::int64_t c) {
          return at(weight, {c, i[1] * width + d});
        });
  }

  Entry score(const Dims& i, const EntryOf& at) const {
    const Step* query = find("query");
    const std::int64_t width = query == nullptr ? first({"input"}).value->dim(-1)
                                                : query->value->dim(query->tokens_last ? 2 : 3);
    return sum_of_products(
        width,
        [&](std::int64_t d) {
          return role("query", {i[0], i[1], i[2]}, d, at);
        },
        [&](std::int64_t d) {
          return role("key", {i[0], i[1], i[3]}, d, at);
        });
  }

  // S/√n where the scale is one over the root of a whole number, as it is by default.
  Entry scaled(const Step& step, const Dims& i, const EntryOf& at) const {
    const double scale = step.expand(i).terms.front().second, n = 1 / (scale * scale);
    Expression score = at(first({"scores"}), i);
    if (std::abs(n - std::round(n)) > 1e-9 * n) {
      return made(Expression::of(Kind::product, {score, Expression::constant(scale)}));
    }
    Expression root = Expression::of(Kind::root, {Expression::constant(std::round(n))});
    return made(Expression::of(Kind::quotient, {score, std::move(root)}));
  }

  Entry masked(const Step& step, const Dims& i, const EntryOf& at) const {
    if (step.value->view().at(i) != kMinusInfinity) return made(at(first({"scaled"}), i));
    Entry entry;
    entry.kind = Entry::Kind::hidden;
    return entry;
  }

  Entry weight(const Dims& i, const EntryOf& at) const {
    const Step& scores = first({"masked", "scaled", "scores"});
    if (scores.value->view().at(i) == kMinusInfinity) return made(Expression::constant(0));
    std::vector<Expression> visible;
    Dims key = i;
    for (key[3] = 0; key[3] < scores.value->dim(3); ++key[3]) {
      if (scores.value->view().at(key) != kMinusInfinity) visible.push_back(at(scores, key));
    }
    const Expression largest = Expression::of(Kind::largest, visible);
    const auto power = [&](const Expression& score) {
      return Expression::of(Kind::exponential,
                            {Expression::of(Kind::difference, {score, largest})});
    };
    std::vector<Expression> powers;
    for (const Expression& score : visible) powers.push_back(power(score));
    return made(
        Expression::of(Kind::quotient, {power(at(scores, i)), Expression::of(Kind::sum, powers)}));
  }

  // Σ_j P[i, j]·V[j], over the keys that are not hidden.
  Entry mixture(const Step& step, const Dims& i, const EntryOf& at) const {
    const std::int64_t token = step.tokens_last ? i[3] : i[2], d = step.tokens_last ? i[2] : i[3];
    const Step& weights = first({"weights"});
    const Step* mask = find("masked");
    std::vector<std::int64_t> keys;
    for (std::int64_t j = 0; j < weights.value->dim(3); ++j) {
      const Dims pair{i[0], i[1], token, j};
      if (!mask || mask->value->view().at(pair) != kMinusInfinity) keys.push_back(j);
    }
    const auto key = [&](std::int64_t n) { return keys[static_cast<std::size_t>(n)]; };
    return sum_of_products(
        static_cast<std::int64_t>(keys.size()),
        [&](std::int64_t n) {
          return at(weights, {i[0], i[1], token, key(n)});
        },
        [&](std::int64_t n) {
          return role("value", {i[0], i[1], key(n)}, d, at);
        });
  }

  Entry output(const Step& step, const Dims& i, const EntryOf& at) const {
    if (find("concat") == nullptr) {
      const Step* heads = find("heads");
      return heads == nullptr ? mixture(step, i, at) : pixel_of(*heads, step, i, at);
    }
    const Step& last = first({"sum", "concat"});
    const Step* weight = find("w_output");
    if (weight == nullptr) return made(at(last, i));
    const int channel = is_image(step) ? 1 : 2;
    return sum_of_products(
        weight->value->dim(0),
        [&](std::int64_t c) {
          Dims index = i;
          index[channel] = c;
          return at(last, index);
        },
        [&](std::int64_t c) {
          return at(*weight, {c, i[channel]});
        });
  }

  // The 3×3 neighbours that exist, times the channel's own nine weights.
  Entry neighbours(const Step& step, const Dims& i, const EntryOf& at) const {
    const std::int64_t H = step.value->dim(2), W = step.value->dim(3);
    const std::int64_t width = first({"value"}).value->dim(2);
    std::vector<std::int64_t> inside;
    for (std::int64_t n = 0; n < 9; ++n) {
      const std::int64_t y = i[2] + n / 3 - 1, x = i[3] + n % 3 - 1;
      if (y >= 0 && y < H && x >= 0 && x < W) inside.push_back(n);
    }
    const auto place = [&](std::int64_t n) { return inside[static_cast<std::size_t>(n)]; };
    return sum_of_products(
        static_cast<std::int64_t>(inside.size()),
        [&](std::int64_t n) {
          const std::int64_t y = i[2] + place(n) / 3 - 1, x = i[3] + place(n) % 3 - 1;
          return role("value", {i[0], i[1] / width, y * W + x}, i[1] % width, at);
        },
        [&](std::int64_t n) {
          return at(first({"w_pe"}), {i[1], place(n) / 3, place(n) % 3});
        });
  }

  // dim, heads, attn_ratio are given; head_dim, key_dim, nh_kd and h follow.
  static Entry size(const Step& step, const Dims& i, const EntryOf& at) {
    const auto column = [&](std::int64_t n) { return at(step, {0, n}); };
    const auto whole = [](Kind kind, Expression a, Expression b) {
      return Expression::of(Kind::floor, {Expression::of(kind, {std::move(a), std::move(b)})});
    };
    switch (i[1]) {
      case 3: return made(whole(Kind::quotient, column(0), column(1)));
      case 4: return made(whole(Kind::product, column(3), column(2)));
      case 5: return made(Expression::of(Kind::product, {column(4), column(1)}));
      case 6:
        return made(Expression::of(
            Kind::sum,
            {column(0), Expression::of(Kind::product, {Expression::constant(2), column(5)})}));
      default: return {};
    }
  }

  Entry position_added(const Dims& i, const EntryOf& at) const {
    return made(Expression::of(Kind::sum, {at(first({"concat"}), i), at(first({"pe"}), i)}));
  }

  // The image [B, heads·width, H, W] of what the heads [B, heads, width, N] found.
  static Entry pixel_of(const Step& heads, const Step& image, const Dims& i, const EntryOf& at) {
    const std::int64_t width = heads.value->dim(2), W = image.value->dim(3);
    return made(at(heads, {i[0], i[1] / width, i[1] % width, i[2] * W + i[3]}));
  }

  // Pixels of the image, one a row.
  Entry token(const Dims& i, const EntryOf& at) const {
    const Step& image = first({"input"});
    const std::int64_t W = image.value->dim(3);
    return made(at(image, {0, i[1], i[0] / W, i[0] % W}));
  }

  Entry copied(const Step& step, const Dims& i, const EntryOf& at) const {
    const Expansion e = step.expand(i);
    return made(at(first({e.source}), e.source_index));
  }

 private:
  const Explanation& e_;
};

// One line a step that is made from others.
struct Maker {
  std::string_view step;
  Entry (*make)(const Recipes&, const Step&, const Dims&, const EntryOf&);
};
using R = const Recipes&;
using S = const Step&;
using I = const Dims&;
using At = const EntryOf&;
constexpr Maker kMakers[] = {
    {"dims", [](R, S step, I i, At at) { return Recipes::size(step, i, at); }},
    {"tokens", [](R r, S, I i, At at) { return r.token(i, at); }},
    {"query", [](R r, S step, I i, At at) { return r.projection(step, i, at); }},
    {"key", [](R r, S step, I i, At at) { return r.projection(step, i, at); }},
    {"value", [](R r, S step, I i, At at) { return r.projection(step, i, at); }},
    {"scores", [](R r, S, I i, At at) { return r.score(i, at); }},
    {"scaled", [](R r, S step, I i, At at) { return r.scaled(step, i, at); }},
    {"masked", [](R r, S step, I i, At at) { return r.masked(step, i, at); }},
    {"weights", [](R r, S, I i, At at) { return r.weight(i, at); }},
    {"heads", [](R r, S step, I i, At at) { return r.mixture(step, i, at); }},
    {"concat", [](R r, S step, I i, At at) { return r.copied(step, i, at); }},
    {"pe", [](R r, S step, I i, At at) { return r.neighbours(step, i, at); }},
    {"sum", [](R r, S, I i, At at) { return r.position_added(i, at); }},
    {"output", [](R r, S step, I i, At at) { return r.output(step, i, at); }},
};

}  // namespace

Recipe recipe_of(const Explanation& explanation, const Step& step) {
  const bool role = step.name == "query" || step.name == "key" || step.name == "value";
  if (role && explanation.find("w_" + step.name) == nullptr) return {};
  for (const Maker& maker : kMakers) {
    if (maker.step != step.name) continue;
    return [r = Recipes(explanation), make = maker.make, &step](
               const Dims& i, const EntryOf& entry_of) { return make(r, step, i, entry_of); };
  }
  return {};
}

}  // namespace qkv::worksheet
