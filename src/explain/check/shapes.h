#pragma once

// Shapes that a note states: (1, 6, 2, 2), B × T × d_model, qkv.shape → [1, 197, 2304].

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "explain/check/evaluate.h"

namespace qkv::check {

// One extent: a number, or a name without one.
struct Extent {
  std::optional<std::int64_t> value{};
  std::string symbol{};
  bool is_keyword = false;  // C=4: a name with its value
};
using Extents = std::vector<Extent>;

std::string to_string(const Extents& shape);

// What a note has said of its sizes so far, in canonical letters: B batch, T tokens, d width, h
// heads, k width of a head's key, v width of a head's value, H and W of an image. What was said
// last holds.
class Sizes {
 public:
  explicit Sizes(const Evaluator& evaluator) : evaluator_(&evaluator) {}

  std::optional<std::int64_t> operator[](char letter) const;
  void imply(char letter, std::int64_t value, std::size_t at) { implied_[letter] = {value, at}; }
  // Another example begins: nothing that was said before holds any more.
  void forget_before(std::size_t at) { epoch_ = at; }
  // Was everything that is known of a letter said before a place?
  bool is_older(char letter, std::size_t at) const;

  // The width by another of its names (C, dim, d_model, embed_dim), if what was said of that since
  // `from` is something else.
  std::optional<std::int64_t> contradiction(std::string_view name, std::size_t from) const;

  // The letter that a name of a size stands for, or 0.
  char letter_of(std::string_view name) const;

 private:
  struct Said {
    std::int64_t value = 0;
    std::size_t at = 0;
  };
  std::optional<Said> said(char letter) const;
  std::optional<std::int64_t> stated(char letter) const;

  const Evaluator* evaluator_;
  std::map<char, Said> implied_;
  std::size_t epoch_ = 0;
};

// Whether a shape can be that of a role, in one of the layouts that are in use.
struct ShapeJudgement {
  Verdict verdict = Verdict::not_checkable;
  std::string layout{};  // "B×h×T×d_k"
  Extents expected{};
};
// What it says of sizes that were unknown is taken into `sizes`, as said at `at`. An input may
// begin another example, if what it contradicts was said before `section`.
ShapeJudgement judge_shape(Role role, const Extents& shape, Sizes& sizes, std::size_t at,
                           std::size_t section);

// Reads shapes out of expressions, and follows reshape, permute and transpose.
class ShapeReader {
 public:
  ShapeReader(Evaluator& evaluator, const std::vector<Literal>& literals)
      : evaluator_(evaluator), literals_(literals) {}

  // `context`: a shape is expected here, so that a plain list of whole numbers is one.
  std::optional<Extents> read(const Node& node, bool context);

  void remember(const std::string& name, const Extents& shape) { known_[name] = shape; }

  // A reshape whose result has another number of elements than its operand.
  struct Reshape {
    Extents from, to;
  };
  std::optional<Reshape> bad_reshape() { return std::exchange(bad_reshape_, std::nullopt); }

  // Defines the names that shapes gave values since the last call: (B=1, C=4).
  void define_keywords();

 private:
  std::optional<Extents> read_items(const std::vector<Node>& items, std::size_t first);
  std::optional<Extents> read_product(const Node& node);
  std::optional<Extents> read_method(const Node& node);
  std::optional<Extents> reshaped(const Extents& from, Extents to);

  Evaluator& evaluator_;
  const std::vector<Literal>& literals_;
  std::map<std::string, Extents> known_;
  std::optional<Reshape> bad_reshape_;
  struct Keyword {
    std::string name;
    std::int64_t value = 0;
    std::size_t at = 0;
  };
  std::vector<Keyword> keywords_;
};

// Whether an expression asks for a shape: x.shape, x.reshape(…), x.view(…).
bool is_shape_question(const Node& node);

}  // namespace qkv::check
