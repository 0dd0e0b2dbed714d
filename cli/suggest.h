#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv::cli {

// ": did you mean 'block'?", or nothing where no candidate is near. Near is a Levenshtein distance
// of up to a third of the word, or being the beginning of the candidate.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace qkv::cli
