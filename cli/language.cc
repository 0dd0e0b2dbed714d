#include "cli/language.h"

#include <cstdlib>

namespace qkv::cli {

Language language_for(const std::string& flag) {
  if (!flag.empty()) return language_of(flag).value_or(Language::en);
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
    if (value != nullptr && *value != '\0') return language_of(value).value_or(Language::en);
  }
  return Language::en;
}

}  // namespace qkv::cli
