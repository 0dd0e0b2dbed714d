#include "qkv/generate.h"

#include <algorithm>

#include "ops/refuse.h"

namespace qkv {

std::string_view name_of(GenerateEnd end) noexcept {
  switch (end) {
    case GenerateEnd::end_token: return "end_token";
    case GenerateEnd::stop_text: return "stop_text";
    case GenerateEnd::max_tokens: return "max_tokens";
    case GenerateEnd::context: return "context";
    default: return "not_yet";
  }
}

Generator::Generator(const GptModel& model, DecoderSession& session,
                     std::span<const std::int32_t> prompt, const GenerateOptions& options)
    : model_(model), session_(session), options_(options), sampler_(options.sampler) {
  constexpr Refuse refuse("Generator");
  if (options.max_tokens < 0) {
    refuse.value("max_tokens", "0 or more", fmt::format("{}", options.max_tokens));
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty()) refuse.value("stop", "texts that are not empty", "an empty one");
    if (!model.tokenizer()) refuse.value("stop", "none, since the model has no tokenizer", "one");
  }
  logits_ = session_.append(prompt);
  if (model.tokenizer()) {
    // The text goes on after the prompt: its first space is the model's, and is kept.
    stream_.emplace(*model.tokenizer());
    for (const std::int32_t id : prompt) {
      if (model.tokenizer()->contains(id)) (void)stream_->push(id);
    }
  }
  if (options.max_tokens == 0) end_ = GenerateEnd::max_tokens;
}

// Gives out what cannot be part of a stop text any more.
std::string Generator::filtered(std::string text) {
  held_ += text;
  std::size_t stop_at = held_.npos;
  for (const std::string& stop : options_.stop) stop_at = std::min(stop_at, held_.find(stop));
  if (stop_at != held_.npos) {
    end_ = GenerateEnd::stop_text;
    std::string ready = held_.substr(0, stop_at);
    held_.clear();
    return ready;
  }
  std::size_t keep = 0;
  for (const std::string& stop : options_.stop) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string ready = held_.substr(0, held_.size() - keep);
  held_.erase(0, ready.size());
  return ready;
}

std::optional<GeneratedToken> Generator::next() {
  if (end_ != GenerateEnd::not_yet) return std::nullopt;
  if (waiting_ >= 0) {
    logits_ = session_.append(std::span(&waiting_, 1));
    waiting_ = -1;
  }
  GeneratedToken token;
  token.id = sampler_(logits_);
  const auto& ends = model_.end_tokens();
  if (options_.stop_at_end && std::find(ends.begin(), ends.end(), token.id) != ends.end()) {
    end_ = GenerateEnd::end_token;
    return std::nullopt;
  }
  // A vocabulary may be padded with ids that the tokenizer does not have: no text.
  if (stream_ && model_.tokenizer()->contains(token.id)) {
    token.text = filtered(stream_->push(token.id));
  }
  if (end_ != GenerateEnd::not_yet) return token;
  if (++count_ >= options_.max_tokens) {
    end_ = GenerateEnd::max_tokens;
  } else if (session_.length() == session_.capacity()) {
    end_ = GenerateEnd::context;
  } else {
    waiting_ = token.id;
  }
  return token;
}

std::string Generator::rest() {
  if (!stream_ || end_ == GenerateEnd::stop_text) return {};
  std::string text = filtered(stream_->finish());
  text += held_;
  held_.clear();
  return text;
}

}  // namespace qkv
