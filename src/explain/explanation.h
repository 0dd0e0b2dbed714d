#pragma once

// An explanation as data: the steps of a computation, each with its name, formula, shape and
// numbers. Writers (text, Markdown, JSON, CSV) and languages come after; nothing here is prose,
// only keys of the catalogue (catalogue.h).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

// How one entry of a step came about.
struct Expansion {
  enum class Kind : std::uint8_t {
    given,     // not computed: an input or a weight
    copied,    // the entry source[source_index], moved but not changed
    products,  // Σ a·b + addend
    softmax,   // exp(scores[chosen] - largest) / Σ exp(score - largest)
    hidden,    // the mask hides it: -inf as a score, 0 as a weight
    sum,       // Σ a (b is 1)
    silu,      // s/(1 + exp(-s)), s = Σ a·b + addend
    softcap,   // b·tanh(a/b), of the one term
    norm,      // (a - mean)/√(variance + eps)·b + addend, of the one term
  };
  Kind kind = Kind::given;
  double value = 0;                              // the entry itself, as the engine computed it
  std::vector<std::pair<double, double>> terms;  // a, b
  double addend = 0;                             // a bias
  bool has_addend = false;
  std::int64_t root = 0;  // products: if not 0, the one b is 1/√root, and is better said so
  double mean = 0, variance = 0, eps = 0;  // norm
  std::vector<double> scores;              // softmax: of the visible keys
  std::int64_t chosen = 0;                 // softmax: which of them
  double largest = 0;                      // softmax
  std::string source;                      // copied: a step's name
  Dims source_index;                       // copied
};

// One step. Its title and meaning stand in the catalogue as "<text>.title" and "<text>.meaning".
struct Step {
  std::string name;     // an identifier, the same in every language: "query"
  std::string text;     // key in the catalogue: "step.query"
  std::string formula;  // "Q = X·Wq"; mathematics, the same in every language
  std::shared_ptr<const Tensor> value;
  std::vector<std::string> axes;  // what each dimension of value counts: {"B", "heads", "T", "d_k"}
  std::vector<std::string> rows, cols;  // labels of the last two dimensions; empty: indices
  bool shares = false;                  // rows are shares of 1: worth a heat map
  bool table = false;                   // each column is a quantity of its own
  // Dimensions are (…, width, token): people read a token a row, so text is printed transposed.
  bool tokens_last = false;
  bool planes = false;                // an image that is shown a channel at a time, as it lies
  std::vector<std::string> channels;  // labels of any other image's channels; empty: c0, c1, …
  std::function<Expansion(const Dims& index)> expand;  // index of an entry of value; may be empty
};

// A sentence about a step (or, with no step, about the whole), with numbers put into it: a message
// of the catalogue with {} for each argument. Where an author's print differs from the true
// arithmetic, the remark says so.
struct Remark {
  std::string step;  // name of the step that it follows, or empty: at the end
  std::string text;  // key in the catalogue
  std::vector<std::string> arguments;
};

struct Explanation {
  std::string block;  // identifier: "pixels", "vit", "attention"
  std::string text;   // key: "<text>.title", "<text>.intro"
  std::vector<Step> steps;
  std::vector<Remark> remarks;
  std::vector<std::pair<std::string, Dims>>
      expanded;  // entries to write out unless others are asked for

  const Step* find(std::string_view name) const;
};

}  // namespace qkv
