#pragma once

#include <string>

#include "explain/catalogue.h"

namespace qkv::cli {

// What --lang says, or, where it is empty, what the environment asks for (LC_ALL, LC_MESSAGES,
// LANG); English if that is a language that is not there.
Language language_for(const std::string& flag);

}  // namespace qkv::cli
