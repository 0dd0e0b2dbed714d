#pragma once

// Every sentence that explanations, worksheets and checks say, in every language.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

enum class Language : unsigned char { en, vi, ko, zh };
inline constexpr Language kLanguages[] = {Language::en, Language::vi, Language::ko, Language::zh};

std::string_view code_of(Language language) noexcept;                 // "en", "vi", "ko", "zh"
std::optional<Language> language_of(std::string_view code) noexcept;  // also "vi_VN.UTF-8"

// One message. Placeholders {} are filled in order and stand in every language equally often.
struct Message {
  std::string_view key;
  std::string_view en, vi, ko, zh;
};
std::string_view text_of(const Message& message, Language language) noexcept;

// The message of a key in a language. A key that is not there is a defect of the program; the key
// itself is returned, so that it is seen.
std::string_view message(Language language, std::string_view key) noexcept;

// The same with its placeholders filled.
std::string message(Language language, std::string_view key,
                    const std::vector<std::string>& arguments);

// All messages, for the tests that compare the languages. Each topic is a file of its own:
// catalogue_<topic>.cc defines one of these lists.
std::vector<std::span<const Message>> all_messages();
std::span<const Message> step_messages() noexcept;       // steps and blocks
std::span<const Message> example_messages() noexcept;    // the worked examples
std::span<const Message> writer_messages() noexcept;     // headings and small words of the writers
std::span<const Message> check_messages() noexcept;      // reports of `qkv check`
std::span<const Message> worksheet_messages() noexcept;  // worksheets

}  // namespace qkv
