#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/decoder.h"
#include "qkv/export.h"
#include "qkv/gpt_model.h"
#include "qkv/sampler.h"
#include "qkv/tokenizer.h"

namespace qkv {

struct GenerateOptions {
  SamplerOptions sampler{};
  std::int64_t max_tokens = 128;
  std::vector<std::string> stop{};  // texts that end the generation; they are not given out
  bool stop_at_end = true;          // at the model's own end tokens; they are not given out
};

// Why a generation is over.
enum class GenerateEnd : std::uint8_t { not_yet, end_token, stop_text, max_tokens, context };
QKV_API std::string_view name_of(GenerateEnd end) noexcept;  // "end_token", …

struct GeneratedToken {
  std::int32_t id = 0;
  std::string text;  // what can be shown by now: whole characters that begin no stop text
};

// Text token by token:
//
//   Generator generator(model, session, model.tokenizer()->encode("Once"), {.max_tokens = 20});
//   while (const auto token = generator.next()) std::cout << token->text << std::flush;
//   std::cout << generator.rest();
class QKV_API Generator {
 public:
  // Appends the prompt to what the session has. Model and session have to outlive it.
  Generator(const GptModel& model, DecoderSession& session, std::span<const std::int32_t> prompt,
            const GenerateOptions& options = {});

  std::optional<GeneratedToken> next();  // none when it is over
  std::string rest();                    // what was held back, once it is over
  GenerateEnd end() const noexcept { return end_; }

 private:
  std::string filtered(std::string text);

  const GptModel& model_;
  DecoderSession& session_;
  GenerateOptions options_;
  Sampler sampler_;
  std::optional<TokenStream> stream_;
  TensorView logits_;
  std::int32_t waiting_ = -1;  // chosen, and not yet appended
  std::int64_t count_ = 0;
  std::string held_;
  GenerateEnd end_ = GenerateEnd::not_yet;
};

}  // namespace qkv
