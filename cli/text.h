#pragma once

#include <string>
#include <string_view>

namespace qkv::cli {

// Text from a file or a path, fit for a terminal: control characters are escaped, so that a name
// cannot move the cursor or set colours, and so are bytes that are no UTF-8.
std::string printable(std::string_view text);

// "1.5 MiB"
std::string human_bytes(double bytes);

}  // namespace qkv::cli
