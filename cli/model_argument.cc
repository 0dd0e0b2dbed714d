#include "cli/model_argument.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cli/progress.h"
#include "cli/text.h"

namespace qkv::cli {

GptModel load_model(const std::string& folder, Context& context) {
  const Progress progress(context, fmt::format("loading {}", folder));
  return GptModel::load(folder);
}

std::vector<std::string> token_fields(const std::vector<std::string>& words) {
  std::vector<std::string> fields;
  for (const std::string& word : words) {
    for (std::size_t begin = 0; begin <= word.size();) {
      const std::size_t end = std::min(word.find(',', begin), word.size());
      if (end == begin) {
        throw UsageError(
            fmt::format("--tokens: expected no empty field, found one in '{}' (field {})",
                        printable(word), fields.size() + 1));
      }
      fields.push_back(word.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return fields;
}

Prompt::Prompt(std::optional<std::string> text, const std::vector<std::string>& token_words)
    : text_(std::move(text)), ids_(token_fields(token_words)) {
  if (text_.has_value() == !ids_.empty()) throw UsageError("give one of --prompt and --tokens");
  for (const std::string& id : ids_) {
    const std::size_t sign = id.front() == '-' ? 1 : 0;
    if (id.size() > sign && id.find_first_not_of("0123456789", sign) == id.npos) continue;
    throw UsageError(fmt::format("--tokens: expected ids, found '{}'", printable(id)));
  }
}

std::vector<std::int32_t> Prompt::tokens(const GptModel& model) const {
  std::vector<std::int32_t> ids;
  if (text_) {
    if (!model.tokenizer()) {
      throw UsageError("--prompt: the model has no tokenizer; use --tokens");
    }
    ids = model.tokenizer()->encode(*text_);
    if (ids.empty()) {
      throw UsageError(
          "--prompt: expected a text, found an empty one, and the model's tokenizer puts no token "
          "in front of it");
    }
    return ids;
  }
  for (const std::string& typed : ids_) {
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(typed.data(), typed.data() + typed.size(), id);
    if (error != std::errc() || id < 0 || id >= model.decoder().vocabulary()) {
      throw UsageError(fmt::format("--tokens: expected ids in [0, {}), found {}",
                                   model.decoder().vocabulary(), typed));
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
