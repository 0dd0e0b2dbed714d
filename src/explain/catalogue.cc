#include "explain/catalogue.h"

#include <array>

namespace qkv {
namespace {

std::array<std::span<const Message>, 5> lists() noexcept {
  return {step_messages(), example_messages(), writer_messages(), check_messages(),
          worksheet_messages()};
}

}  // namespace

std::string_view text_of(const Message& m, Language language) noexcept {
  switch (language) {
    case Language::vi: return m.vi;
    case Language::ko: return m.ko;
    case Language::zh: return m.zh;
    case Language::en: break;
  }
  return m.en;
}

std::string_view code_of(Language language) noexcept {
  switch (language) {
    case Language::vi: return "vi";
    case Language::ko: return "ko";
    case Language::zh: return "zh";
    case Language::en: break;
  }
  return "en";
}

std::optional<Language> language_of(std::string_view code) noexcept {
  const std::string_view letters = code.substr(0, code.find_first_of("_-."));
  for (Language language : kLanguages) {
    if (letters == code_of(language)) return language;
  }
  return std::nullopt;
}

std::vector<std::span<const Message>> all_messages() {
  const auto all = lists();
  return {all.begin(), all.end()};
}

std::string_view message(Language language, std::string_view key) noexcept {
  for (const auto& list : lists()) {
    for (const Message& m : list) {
      if (m.key == key) return text_of(m, language);
    }
  }
  return key;
}

std::string message(Language language, std::string_view key,
                    const std::vector<std::string>& arguments) {
  std::string_view rest = message(language, key);
  std::string result;
  for (const std::string& argument : arguments) {
    const auto place = rest.find("{}");
    if (place == std::string_view::npos) break;
    result += rest.substr(0, place);
    result += argument;
    rest.remove_prefix(place + 2);
  }
  result += rest;
  return result;
}

}  // namespace qkv
