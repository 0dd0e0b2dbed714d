#pragma once

// A zip archive in memory, its members stored as they are. Enough for a workbook of a few dozen
// kilobytes, with no library and the same bytes every time: members are dated 1980-01-01.

#include <string>
#include <string_view>
#include <vector>

namespace qkv::worksheet {

struct ZipMember {
  std::string name;  // ASCII
  std::string content;
};

// Refuses archives of 4 GiB or more, and more than 65,535 members.
std::string zip(const std::vector<ZipMember>& members);

}  // namespace qkv::worksheet
