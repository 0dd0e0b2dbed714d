#include "cli/model_argument.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/progress.h"
#include "cli/text.h"

namespace qkv::cli {

GptModel load_model(const std::string& folder, Context& context) {
  const Progress progress(context, fmt::format("loading {}", folder));
  return GptModel::load(folder);
}

void add_prompt_options(Command& command, std::string& prompt, std::vector<std::int64_t>& tokens) {
  command.option("--prompt", prompt, "the text to begin with");
  command.option("--tokens", tokens, "the same as ids: 0,2,1").delimiter(',');
}

std::vector<std::int32_t> prompt_tokens(const GptModel& model, const std::string& prompt,
                                        const std::vector<std::int64_t>& tokens) {
  if (prompt.empty() == tokens.empty()) throw UsageError("give one of --prompt and --tokens");
  std::vector<std::int32_t> ids;
  if (!prompt.empty()) {
    if (!model.tokenizer()) {
      throw UsageError("--prompt: the model has no tokenizer; use --tokens");
    }
    return model.tokenizer()->encode(prompt);
  }
  for (const std::int64_t id : tokens) {
    if (id < 0 || id >= model.decoder().vocabulary()) {
      throw UsageError(fmt::format("--tokens: expected ids in [0, {}), found {}",
                                   model.decoder().vocabulary(), id));
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

std::vector<std::string> token_labels(const GptModel& model,
                                      const std::vector<std::int32_t>& tokens) {
  std::vector<std::string> labels;
  for (const std::int32_t id : tokens) {
    if (!model.tokenizer() || !model.tokenizer()->contains(id)) {
      labels.push_back(fmt::format("{}", id));
      continue;
    }
    const std::string_view bytes = model.tokenizer()->bytes(id);
    const std::size_t spaces = std::min(bytes.find_first_not_of(' '), bytes.size());
    std::string label;
    for (std::size_t i = 0; i < spaces; ++i) label += "·";
    labels.push_back(label + printable(std::string(bytes.substr(spaces))));
  }
  return labels;
}

}  // namespace qkv::cli
