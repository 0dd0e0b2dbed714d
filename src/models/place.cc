#include "models/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/report.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::size_t kLongestList = 8;

std::string join(std::string_view prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

bool at_or_under(std::string_view name, std::string_view prefix) {
  return prefix.empty() || name == prefix ||
         (name.starts_with(prefix) && name[prefix.size()] == '.');
}

std::string in_words(std::string_view prefix) {
  return prefix.empty() ? std::string("at the top") : fmt::format("at {}", io::in_quotes(prefix));
}

// A place that has a scheme's first name, and which of the others it has not.
struct Candidate {
  FoundPlace place;
  std::vector<std::string> missing;
};

std::vector<Candidate> candidates(const WeightFile& file, std::string_view prefix,
                                  std::span<const NameScheme> schemes) {
  std::vector<Candidate> found;
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    const std::string& anchor = schemes[i].required.front();
    for (const std::string& name : file.names()) {
      if (name != anchor && !name.ends_with("." + anchor)) continue;
      const std::size_t rest = name.size() - anchor.size();
      Candidate candidate{{name.substr(0, rest == 0 ? 0 : rest - 1), i}, {}};
      if (!at_or_under(candidate.place.prefix, prefix)) continue;
      for (const std::string& required : schemes[i].required) {
        if (!file.contains(join(candidate.place.prefix, required))) {
          candidate.missing.push_back(required);
        }
      }
      found.push_back(std::move(candidate));
    }
  }
  return found;
}

// Long ones by their ends: "q_proj.weight … out_proj.weight (Hugging Face)".
std::string in_words(std::span<const NameScheme> schemes) {
  std::string text;
  for (const NameScheme& scheme : schemes) {
    const std::vector<std::string>& names = scheme.required;
    const std::string shown = names.size() > 3 ? fmt::format("{} … {}", names.front(), names.back())
                                               : fmt::format("{}", fmt::join(names, ", "));
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; or ", shown, scheme.origin);
  }
  return text;
}

[[noreturn]] void refuse_none(const WeightFile& file, std::string_view prefix,
                              std::string_view block, std::span<const NameScheme> schemes,
                              const std::vector<Candidate>& partial) {
  const std::string subject = fmt::format("weights of a {} block", block);
  if (!partial.empty()) {
    const Candidate& nearest = *std::min_element(
        partial.begin(), partial.end(),
        [](const Candidate& a, const Candidate& b) { return a.missing.size() < b.missing.size(); });
    const NameScheme& scheme = schemes[nearest.place.scheme];
    throw Error(
        ErrorKind::value, file.name(), subject,
        fmt::format("{} ({}) {}", fmt::join(scheme.required, ", "), scheme.origin,
                    in_words(nearest.place.prefix)),
        fmt::format("{}, but no {}", scheme.required.front(), fmt::join(nearest.missing, ", ")));
  }
  std::vector<std::string> under;
  for (const std::string& name : file.names()) {
    if (at_or_under(name, prefix)) under.push_back(name);
  }
  const std::string where =
      prefix.empty() ? std::string() : fmt::format(" at or under {}", io::in_quotes(prefix));
  const std::string found =
      under.empty() && !prefix.empty()
          ? fmt::format("no name there; the file has {}", short_list(file.names()))
          : short_list(under);
  throw Error(ErrorKind::value, file.name(), subject, in_words(schemes) + where, found);
}

[[noreturn]] void refuse_several(const WeightFile& file, std::string_view block,
                                 const std::vector<Candidate>& several) {
  std::vector<std::string> places;
  for (const Candidate& candidate : several) places.push_back(candidate.place.prefix);
  throw Error(ErrorKind::value, file.name(), fmt::format("weights of a {} block", block),
              "one place (use --weights-prefix with one of those found)",
              fmt::format("{} places: {}", places.size(), short_list(places)));
}

bool fits(const Dims& shape, const Dims& expected) {
  return std::equal(shape.begin(), shape.end(), expected.begin(), expected.end(),
                    [](std::int64_t have, std::int64_t want) { return want < 0 || have == want; });
}

std::string shape_in_words(const Dims& expected) {
  std::vector<std::string> extents;
  for (const std::int64_t extent : expected) {
    extents.push_back(extent < 0 ? std::string("any") : fmt::format("{}", extent));
  }
  return fmt::format("shape [{}]", fmt::join(extents, ", "));
}

}  // namespace

FoundPlace find_place(const WeightFile& file, std::string_view prefix, std::string_view block,
                      std::span<const NameScheme> schemes) {
  while (prefix.ends_with('.')) prefix.remove_suffix(1);
  std::vector<Candidate> all = candidates(file, prefix, schemes);
  std::vector<Candidate> complete;
  for (const Candidate& candidate : all) {
    if (!candidate.missing.empty()) continue;
    // What stands at the prefix itself was meant.
    if (!prefix.empty() && candidate.place.prefix == prefix) return candidate.place;
    // Two schemes may agree on a place (aliases): the first one listed is taken.
    const bool known = std::any_of(complete.begin(), complete.end(), [&](const Candidate& other) {
      return other.place.prefix == candidate.place.prefix;
    });
    if (!known) complete.push_back(candidate);
  }
  if (complete.empty()) refuse_none(file, prefix, block, schemes, all);
  if (complete.size() > 1) refuse_several(file, block, complete);
  return complete.front().place;
}

std::string PlaceReader::full(std::string_view name) const { return join(prefix_, name); }

TensorView PlaceReader::read(std::string_view name, const Dims& shape) {
  if (!has(name)) refuse(name, shape_in_words(shape), "no such tensor");
  const FileTensor tensor = file_.read(full(name));
  if (!is_float(tensor.view.dtype())) {
    throw Error(ErrorKind::type, file_.name(), io::in_quotes(full(name)),
                "dtype f32, f64, f16 or bf16", name_of(tensor.view.dtype()));
  }
  if (!fits(tensor.view.shape(), shape)) {
    refuse(name, shape_in_words(shape), to_string(tensor.view.shape()));
  }
  keep(tensor.owner);
  return tensor.view;
}

TensorView PlaceReader::read_if_there(std::string_view name, const Dims& shape) {
  return has(name) ? read(name, shape) : TensorView();
}

void PlaceReader::refuse(std::string_view name, std::string_view expected,
                         std::string_view found) const {
  throw Error(ErrorKind::value, file_.name(), io::in_quotes(full(name)), expected, found);
}

void PlaceReader::refuse_if_there(std::span<const std::string_view> names,
                                  std::string_view block) const {
  for (const std::string_view name : names) {
    if (has(name)) {
      refuse(name, fmt::format("a {} block that qkv computes, without this part", block), "it");
    }
  }
}

std::string short_list(std::span<const std::string> names) {
  if (names.empty()) return "no tensors";
  std::string text;
  const std::size_t shown = std::min(names.size(), kLongestList);
  for (std::size_t i = 0; i < shown; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", io::in_quotes(names[i]));
  }
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace qkv
