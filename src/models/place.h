#pragma once

// Finding a block's weights among the names of a checkpoint, and reading them there.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/weight_file.h"
#include "qkv/tensor.h"

namespace qkv {

// One library's names of a block's weights, relative to the block's place. The first one is what
// the place is found by, so no other block should have it.
struct NameScheme {
  std::string_view origin;  // "timm"
  std::vector<std::string> required;
};

struct FoundPlace {
  std::string prefix;  // "transformer.h.0.attn", or empty
  std::size_t scheme;  // of those that were looked for
};

// The one place in the file, at or under `prefix`, that has all the names of some scheme. A place
// that is `prefix` itself goes before those under it. Refuses none (saying what was looked for and
// what is there) and several (naming them). `block` is for messages: "gpt".
FoundPlace find_place(const WeightFile& file, std::string_view prefix, std::string_view block,
                      std::span<const NameScheme> schemes);

// Reads tensors at a place, and keeps what owns them.
class PlaceReader {
 public:
  PlaceReader(const WeightFile& file, std::string prefix)
      : file_(file), prefix_(std::move(prefix)) {}

  // The place's own name for a tensor, as it stands in the file.
  std::string full(std::string_view name) const;
  bool has(std::string_view name) const { return file_.contains(full(name)); }

  // A float tensor of that shape, where -1 is any extent.
  TensorView read(std::string_view name, const Dims& shape);
  TensorView read_if_there(std::string_view name, const Dims& shape);

  // Throws an Error about a tensor of this place.
  [[noreturn]] void refuse(std::string_view name, std::string_view expected,
                           std::string_view found) const;

  // Refuses if a tensor is there that changes the block into one that qkv does not compute.
  void refuse_if_there(std::span<const std::string_view> names, std::string_view block) const;

  void keep(std::shared_ptr<const void> owner) { owners_.push_back(std::move(owner)); }
  const WeightFile& file() const noexcept { return file_; }
  const std::string& prefix() const noexcept { return prefix_; }
  std::vector<std::shared_ptr<const void>>& owners() noexcept { return owners_; }

 private:
  const WeightFile& file_;
  std::string prefix_;
  std::vector<std::shared_ptr<const void>> owners_;
};

// "a, b, c and 12 more": names for a message.
std::string short_list(std::span<const std::string> names);

}  // namespace qkv
