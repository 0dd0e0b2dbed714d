#include "qkv/error.h"

#include <fmt/format.h>

namespace qkv {

Error::Error(ErrorKind kind, std::string_view where, std::string_view subject,
             std::string_view expected, std::string_view found)
    : std::runtime_error(
          fmt::format("[{}] {}: expected {}, found {}", where, subject, expected, found)),
      kind_(kind),
      where_(where),
      subject_(subject),
      expected_(expected),
      found_(found) {}

}  // namespace qkv
