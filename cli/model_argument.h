#pragma once

// What the commands that run a whole model share.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "qkv/gpt_model.h"

namespace qkv::cli {

// Loads it, with a line on stderr while that takes long.
GptModel load_model(const std::string& folder, Context& context);

// The fields of words like 0,2,1, as --tokens has them. Refuses an empty one.
std::vector<std::string> token_fields(const std::vector<std::string>& words);

// What a model begins with, a text or ids. Refuses, when it is made, both, none, and ids that are
// no numbers: before a large model is loaded.
class Prompt {
 public:
  Prompt(std::optional<std::string> text, const std::vector<std::string>& token_words);

  // Refuses a text without a tokenizer, an empty text in front of which the tokenizer puts nothing,
  // and ids that the model does not have.
  std::vector<std::int32_t> tokens(const GptModel& model) const;

 private:
  std::optional<std::string> text_;
  std::vector<std::string> ids_;  // as they were typed
};

// Each token as a person may read it in a table: its text, with · for a space; its id without a
// tokenizer.
std::vector<std::string> token_labels(const GptModel& model,
                                      const std::vector<std::int32_t>& tokens);

}  // namespace qkv::cli
