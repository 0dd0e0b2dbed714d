#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace qkv::cli {

// Text from a file or a path, fit for a terminal: control characters are escaped, so that a name
// cannot move the cursor or set colours.
std::string printable(std::string_view text);

// Indented JSON; bytes that are no UTF-8 become U+FFFD.
std::string to_json_text(const nlohmann::ordered_json& value);

// "1.5 MiB"
std::string human_bytes(double bytes);

}  // namespace qkv::cli
