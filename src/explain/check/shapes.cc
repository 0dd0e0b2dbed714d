#include "explain/check/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace qkv::check {
namespace {

struct Alias {
  char letter;
  std::string_view name;
  bool second = false;  // counts only where no other name does
};

constexpr Alias kAliases[] = {
    {'B', "B"},
    {'B', "batch"},
    {'B', "batch_size"},
    {'T', "T"},
    {'T', "N"},
    {'T', "seq_len"},
    {'T', "L"},
    {'T', "n_tokens"},
    {'d', "d_model"},
    {'d', "dim"},
    {'d', "embed_dim"},
    {'d', "C"},
    {'d', "hidden_size"},
    {'d', "d"},
    {'h', "num_heads"},
    {'h', "heads"},
    {'h', "n_heads"},
    {'h', "n_head"},
    {'h', "h"},
    {'k', "key_dim"},
    {'k', "d_k"},
    {'k', "head_dim", true},
    {'k', "d_head", true},
    {'v', "d_v"},
    {'v', "head_dim", true},
    {'v', "d_head", true},
    {'H', "H"},
    {'W', "W"},
};

// Layouts by role, one letter an extent. 3: three of something; m: 3·d or h·(2k + v) channels;
// o: h·v; b: Q, K and V of one head together.
struct Layouts {
  Role role;
  std::array<std::string_view, 8> layouts;
};
constexpr Layouts kLayouts[] = {
    {Role::input, {"BTd", "Td", "BdHW"}},
    {Role::query, {"BhTk", "BhkT", "BTd", "BThk", "hTk", "BTk", "Td", "Tk"}},
    {Role::key, {"BhTk", "BhkT", "BTd", "BThk", "hTk", "BTk", "Td", "Tk"}},
    {Role::value, {"BhTv", "BhvT", "BTd", "BThv", "hTv", "BTv", "Td", "Tv"}},
    {Role::qkv, {"BTm", "BmHW", "BT3hk", "3BhTk", "BhbT", "Tm"}},
    {Role::scores, {"BhTT", "hTT", "BTT", "TT"}},
    {Role::weights, {"BhTT", "hTT", "BTT", "TT"}},
    {Role::output, {"BhTv", "BTd", "BdHW", "BThv", "BTo", "hTv", "Td", "Tv"}},
    {Role::w_query, {"dd", "dk", "kd"}},
    {Role::w_key, {"dd", "dk", "kd"}},
    {Role::w_value, {"dd", "dv", "vd"}},
    {Role::w_output, {"dd", "od", "do"}},
};

std::string_view shown(char letter) {
  switch (letter) {
    case 'B': return "B";
    case 'T': return "T";
    case 'd': return "d_model";
    case 'h': return "h";
    case 'k': return "d_k";
    case 'v': return "d_v";
    case 'H': return "H";
    case 'W': return "W";
    case '3': return "3";
    case 'm': return "d_qkv";
    case 'o': return "h·d_v";
    default: return "2·d_k+d_v";
  }
}

std::string layout_text(std::string_view layout) {
  std::string text;
  for (char letter : layout) {
    if (!text.empty()) text += "×";
    text += shown(letter);
  }
  return text;
}

// A stated extent against a letter of a layout: 1 equal, 0 unknown, -1 different.
int match_extent(const Extent& extent, char letter, const Sizes& sizes) {
  const auto expected = sizes[letter];
  const char stated = extent.symbol.empty() ? char{0} : sizes.letter_of(extent.symbol);
  if (stated == letter && !extent.is_keyword) return 1;
  if (extent.value && expected) return *extent.value == *expected ? 1 : -1;
  if (stated == letter) return 1;
  // d_k and d_v, or d and h·d_v, are two names of one size as far as a note may say.
  if (stated != 0 && extent.value == std::nullopt && expected == std::nullopt) {
    const auto wide = [](char c) { return c == 'd' || c == 'o'; };
    const auto narrow = [](char c) { return c == 'k' || c == 'v'; };
    return (wide(stated) && wide(letter)) || (narrow(stated) && narrow(letter)) ? 1 : -1;
  }
  return 0;
}

struct LayoutFit {
  std::string_view layout{};
  int equal = 0, different = 0, unknown = 0;
  std::optional<std::int64_t> pixels{};  // H·W should be this
};

LayoutFit fit_layout(std::string_view layout, const Extents& shape, Sizes& sizes, std::size_t at) {
  LayoutFit fit{layout};
  const auto tokens = sizes['T'];
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const char letter = layout[i];
    int match = match_extent(shape[i], letter, sizes);
    // Later letters are checked against what earlier ones just said (T×T, h and d_k).
    if (match == 0 && shape[i].value && letter != 'm' && letter != 'b' && letter != 'o') {
      sizes.imply(letter, *shape[i].value, at);
    }
    (match > 0 ? fit.equal : match < 0 ? fit.different : fit.unknown)++;
  }
  // The pixels of an image are its tokens.
  if (const auto height = sizes['H'], width = sizes['W'];
      layout.ends_with("HW") && height && width && tokens && *height * *width != *tokens) {
    fit.different++;
    fit.pixels = tokens;
  }
  return fit;
}

std::optional<std::int64_t> element_count_of(const Extents& shape) {
  double count = 1;
  for (const Extent& extent : shape) {
    if (!extent.value) return std::nullopt;
    count *= static_cast<double>(*extent.value);
  }
  if (count > 1e15) return std::nullopt;
  return static_cast<std::int64_t>(count);
}

}  // namespace

std::string to_string(const Extents& shape) {
  std::string text = "(";
  for (const Extent& extent : shape) {
    if (text.size() > 1) text += ", ";
    text += extent.value ? std::to_string(*extent.value) : extent.symbol;
  }
  return text + ")";
}

std::optional<Sizes::Said> Sizes::said(char letter) const {
  std::optional<Said> last;
  bool second = false;
  for (const Alias& alias : kAliases) {
    if (alias.letter != letter || (alias.second && last && !second)) continue;
    const Evaluator::Definition* found = evaluator_->defined(std::string(alias.name));
    if (found == nullptr || found->at < epoch_ || (last && last->at >= found->at)) continue;
    // A detector's h = dim + nh_kd * 2 is a number of channels.
    if (alias.name == "h" && found->computed) continue;
    const double value = found->value;
    if (value < 0 || value > 1e12 || value != std::floor(value)) continue;
    last = Said{static_cast<std::int64_t>(value), found->at};
    second = alias.second;
  }
  const auto implied = implied_.find(letter);
  if (implied != implied_.end() && implied->second.at >= epoch_ &&
      (!last || last->at < implied->second.at)) {
    last = implied->second;
  }
  return last;
}

std::optional<std::int64_t> Sizes::stated(char letter) const {
  if (letter == '3') return 3;
  const auto last = said(letter);
  return last ? std::optional(last->value) : std::nullopt;
}

bool Sizes::is_older(char letter, std::size_t at) const {
  const auto last = said(letter);
  return last && last->at < at;
}

std::optional<std::int64_t> Sizes::operator[](char letter) const {
  // An image that was said after the tokens has others.
  const bool image = letter == 'T' && said('T') && said('H') && said('W') &&
                     said('T')->at < std::min(said('H')->at, said('W')->at);
  if (const auto value = stated(letter); value && !image) return value;
  const auto d = stated('d'), h = stated('h'), k = stated('k'), v = stated('v');
  switch (letter) {
    case 'T':
      if (const auto height = stated('H'), width = stated('W'); height && width) {
        return *height * *width;
      }
      break;
    case 'd':
      if (h && (v || k)) return *h * (v ? *v : *k);
      break;
    case 'h':
      if (d && k && *k > 0 && *d % *k == 0) return *d / *k;
      break;
    case 'k':
    case 'v':
      if (v || k) return v ? v : k;
      if (d && h && *h > 0 && *d % *h == 0) return *d / *h;
      break;
    case 'o':
      if (h && (*this)['v']) return *h * *(*this)['v'];
      break;
    case 'm':
      if (h && k && v) return *h * (2 * *k + *v);
      if (d) return 3 * *d;
      break;
    case 'b':
      if (k && v) return 2 * *k + *v;
      break;
    default: break;
  }
  return std::nullopt;
}

std::optional<std::int64_t> Sizes::contradiction(std::string_view name, std::size_t from) const {
  if (name != "C" && name != "dim" && name != "d_model" && name != "embed_dim") return std::nullopt;
  const Evaluator::Definition* mine = evaluator_->defined(std::string(name));
  for (std::string_view other : {"C", "dim", "d_model", "embed_dim"}) {
    const Evaluator::Definition* theirs = evaluator_->defined(std::string(other));
    if (other == name || mine == nullptr || theirs == nullptr || theirs->at < from) continue;
    if (theirs->value != mine->value && theirs->value < 1e12) {
      return static_cast<std::int64_t>(theirs->value);
    }
  }
  return std::nullopt;
}

char Sizes::letter_of(std::string_view name) const {
  for (const Alias& alias : kAliases) {
    if (alias.name == name) return alias.letter;
  }
  return 0;
}

namespace {

struct BestLayout {
  LayoutFit fit;
  Sizes sizes;  // with what the shape itself says
};

std::optional<BestLayout> best_layout(Role role, const Extents& shape, const Sizes& sizes,
                                      std::size_t at) {
  std::optional<BestLayout> best;
  for (const Layouts& layouts : kLayouts) {
    if (layouts.role != role) continue;
    for (std::string_view layout : layouts.layouts) {
      if (layout.size() != shape.size() || layout.empty()) continue;
      Sizes trial = sizes;
      const LayoutFit fit = fit_layout(layout, shape, trial, at);
      const bool better = !best || fit.different < best->fit.different ||
                          (fit.different == best->fit.different && fit.equal > best->fit.equal);
      if (better) best = BestLayout{fit, trial};
    }
  }
  return best;
}

// The extents that contradict were all said before the section began.
bool begins_example(const BestLayout& best, const Extents& shape, const Sizes& sizes,
                    std::size_t section) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const char letter = best.fit.layout[i];
    if (match_extent(shape[i], letter, sizes) < 0 && !sizes.is_older(letter, section)) return false;
  }
  return true;
}

}  // namespace

ShapeJudgement judge_shape(Role role, const Extents& shape, Sizes& sizes, std::size_t at,
                           std::size_t section) {
  ShapeJudgement judgement;
  auto best = best_layout(role, shape, sizes, at);
  if (!best) return judgement;
  if (role == Role::input && best->fit.different > 0 &&
      begins_example(*best, shape, sizes, section)) {
    sizes.forget_before(section);
    best = best_layout(role, shape, sizes, at);
  }
  judgement.layout = layout_text(best->fit.layout);
  if (best->fit.different > 0) {
    judgement.verdict = Verdict::differs;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const char letter = best->fit.layout[i];
      const auto value = sizes[letter];
      judgement.expected.push_back(
          {value ? value : best->sizes[letter], std::string(shown(letter))});
    }
    if (best->fit.pixels) {
      judgement.expected.pop_back();
      judgement.expected.back() = {{}, "H·W = " + std::to_string(*best->fit.pixels)};
    }
    return judgement;
  }
  sizes = best->sizes;
  // An input that tells sizes for the first time is given; a result has to follow from something.
  if (best->fit.equal > 0 && (best->fit.unknown == 0 || role != Role::input)) {
    judgement.verdict = Verdict::agrees;
  } else if (role == Role::input) {
    judgement.verdict = Verdict::given;
  }
  return judgement;
}

bool is_shape_question(const Node& node) {
  if (node.kind == Node::Kind::call) return node.text == "shape" || node.text == "size";
  if (node.kind != Node::Kind::method) return false;
  for (std::string_view name : {"shape", "size", "reshape", "view", "permute", "transpose"}) {
    if (node.text == name) return true;
  }
  return false;
}

void ShapeReader::define_keywords() {
  for (const Keyword& keyword : keywords_) {
    evaluator_.define(keyword.name, {static_cast<double>(keyword.value), keyword.at, false});
  }
  keywords_.clear();
}

std::optional<Extents> ShapeReader::read(const Node& node, bool context) {
  using Kind = Node::Kind;
  switch (node.kind) {
    case Kind::tuple: return read_items(node.children, 0);
    case Kind::list: {
      const bool named = std::any_of(node.children.begin(), node.children.end(),
                                     [](const Node& child) { return child.kind == Kind::name; });
      if (!named && !context) return std::nullopt;
      return read_items(node.children, 0);
    }
    case Kind::literal: {
      const Literal& literal = literals_[node.literal];
      if (!context || !literal.is_vector) return std::nullopt;
      Extents shape;
      for (const Printed& cell : literal.cells) {
        if (cell.decimals > 0 || cell.value < 0 || cell.value > 1e12) return std::nullopt;
        shape.push_back({static_cast<std::int64_t>(cell.value), {}});
      }
      return shape;
    }
    case Kind::times: return read_product(node);
    case Kind::method: return read_method(node);
    case Kind::call:
      if (node.text == "Size" && node.children.size() == 1) return read(node.children[0], true);
      return std::nullopt;
    case Kind::power:  // R^{d_model × d_k}
      if (node.children[0].kind == Kind::name &&
          (node.children[0].text == "R" || node.children[0].text == "ℝ")) {
        return read_product(node.children[1]);
      }
      return std::nullopt;
    default: return std::nullopt;
  }
}

std::optional<Extents> ShapeReader::read_items(const std::vector<Node>& items, std::size_t first) {
  Extents shape;
  for (std::size_t i = first; i < items.size(); ++i) {
    const bool keyword = items[i].kind == Node::Kind::keyword;
    const Node& item = keyword ? items[i].children[0] : items[i];
    if (item.kind == Node::Kind::number && item.number.decimals > 0) return std::nullopt;
    Extent extent;
    extent.value = evaluator_.size(item);
    if (keyword && extent.value) {
      // Its own statement may not vouch for it: the name is defined after the shape is judged.
      keywords_.push_back({items[i].text, *extent.value, items[i].begin});
      extent.is_keyword = true;
    }
    if (item.kind == Node::Kind::name) extent.symbol = item.text;
    if (keyword) extent.symbol = items[i].text;
    if (item.kind == Node::Kind::negative) extent.symbol = "-1";
    if (!extent.value && extent.symbol.empty()) return std::nullopt;
    shape.push_back(std::move(extent));
  }
  if (shape.size() < 2 || shape.size() > 8) return std::nullopt;
  return shape;
}

// B × T × h·d_k: × stands between extents, other signs inside of one.
std::optional<Extents> ShapeReader::read_product(const Node& node) {
  std::vector<const Node*> operands;
  std::vector<std::string_view> signs;
  const Node* left = &node;
  while (left->kind == Node::Kind::times) {
    operands.push_back(&left->children[1]);
    signs.push_back(left->text);
    left = &left->children[0];
  }
  operands.push_back(left);
  std::reverse(operands.begin(), operands.end());
  std::reverse(signs.begin(), signs.end());
  Extents shape;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Extent extent;
    extent.value = evaluator_.size(*operands[i]);
    if (operands[i]->kind == Node::Kind::name) extent.symbol = operands[i]->text;
    if (!extent.value && extent.symbol.empty()) return std::nullopt;
    if (i == 0 || signs[i - 1] == "×") {
      shape.push_back(std::move(extent));
      continue;
    }
    if (signs[i - 1] == "/" || signs[i - 1] == "//") return std::nullopt;
    Extent& last = shape.back();
    if (last.value && extent.value) {
      last.value = *last.value * *extent.value;
      last.symbol.clear();
    } else {
      last.value.reset();
      last.symbol += "·" + extent.symbol;
    }
  }
  if (shape.size() < 2 || shape.size() > 8) return std::nullopt;
  return shape;
}

std::optional<Extents> ShapeReader::reshaped(const Extents& from, Extents to) {
  const auto count = element_count_of(from);
  Extents known;
  std::size_t open = to.size();
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].symbol == "-1" && !to[i].value) {
      open = i;
    } else {
      known.push_back(to[i]);
    }
  }
  const auto product = element_count_of(known);
  if (!count || !product) return to;
  if (open < to.size() && *product > 0 && *count % *product == 0) {
    to[open].value = *count / *product;
  } else if (open < to.size() || *product != *count) {
    bad_reshape_ = Reshape{from, to};
  }
  return to;
}

std::optional<Extents> ShapeReader::read_method(const Node& node) {
  const Node& object = node.children[0];
  std::optional<Extents> base;
  if (object.kind == Node::Kind::name) {
    const auto known = known_.find(object.text);
    if (known != known_.end()) base = known->second;
  } else if (object.kind == Node::Kind::method) {
    base = read_method(object);
  }
  if (node.text == "shape" || node.text == "size" || node.text == "contiguous") return base;
  if (node.text == "Size" && node.children.size() == 2) return read(node.children[1], true);
  if (node.text == "reshape" || node.text == "view") {
    auto to = read_items(node.children, 1);
    return to && base ? reshaped(*base, *to) : to;
  }
  if (!base) return std::nullopt;
  if (node.text == "permute" && node.children.size() == base->size() + 1) {
    Extents turned;
    for (std::size_t i = 1; i < node.children.size(); ++i) {
      const auto axis = evaluator_.size(node.children[i]);
      if (!axis || *axis >= static_cast<std::int64_t>(base->size())) return std::nullopt;
      turned.push_back((*base)[static_cast<std::size_t>(*axis)]);
    }
    return turned;
  }
  if (node.text == "transpose" && node.children.size() == 3) {
    const auto axis = [&](const Node& child) -> std::optional<std::size_t> {
      const auto v = evaluator_.scalar(child);
      const auto rank = static_cast<double>(base->size());
      if (!v || *v < -rank || *v >= rank || *v != std::floor(*v)) return std::nullopt;
      return static_cast<std::size_t>(*v < 0 ? *v + rank : *v);
    };
    const auto a = axis(node.children[1]), b = axis(node.children[2]);
    if (!a || !b) return std::nullopt;
    std::swap((*base)[*a], (*base)[*b]);
    return base;
  }
  return std::nullopt;
}

}  // namespace qkv::check
