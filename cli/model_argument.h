#pragma once

// What the commands that run a whole model share.

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "qkv/gpt_model.h"

namespace qkv::cli {

// Loads it, with a line on stderr while that takes long.
GptModel load_model(const std::string& folder, Context& context);

// --prompt and --tokens.
void add_prompt_options(Command& command, std::string& prompt, std::vector<std::int64_t>& tokens);

// The ids of one of the two; refuses both, none, and a prompt without a tokenizer.
std::vector<std::int32_t> prompt_tokens(const GptModel& model, const std::string& prompt,
                                        const std::vector<std::int64_t>& tokens);

// Each token as a person may read it in a table: its text, with · for a space; its id without a
// tokenizer.
std::vector<std::string> token_labels(const GptModel& model,
                                      const std::vector<std::int32_t>& tokens);

}  // namespace qkv::cli
