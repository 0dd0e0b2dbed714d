#include "explain/catalogue.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "explain/explain.h"

namespace qkv {
namespace {

int placeholders(std::string_view text) {
  int count = 0;
  for (auto at = text.find("{}"); at != std::string_view::npos; at = text.find("{}", at + 2))
    ++count;
  return count;
}

bool has_script(std::string_view text, Language language) {
  // A byte of the script that the language is written in: Hangul, Han, or a Vietnamese letter.
  const auto lead = [&](unsigned low, unsigned high) {
    for (char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= low && byte <= high) return true;
    }
    return false;
  };
  if (language == Language::ko) return lead(0xea, 0xed);
  if (language == Language::zh) return lead(0xe3, 0xe9);
  return lead(0xc3, 0xc6) || lead(0xe1, 0xe1);
}

TEST(Catalogue, EveryMessageIsThereInEveryLanguage) {
  for (const auto& list : all_messages()) {
    EXPECT_FALSE(list.empty());
    for (const Message& m : list) {
      for (Language language : kLanguages) {
        EXPECT_FALSE(text_of(m, language).empty()) << m.key << " " << code_of(language);
        EXPECT_EQ(placeholders(text_of(m, language)), placeholders(m.en))
            << m.key << " " << code_of(language);
      }
    }
  }
}

// Words that textbooks of the language leave in English.
TEST(Catalogue, NothingIsLeftUntranslated) {
  const std::set<std::string_view> same_in_vietnamese = {
      "step.query.title",      "step.key.title",      "step.value.title",
      "step.query_conv.title", "step.key_conv.title", "step.value_conv.title"};
  const std::set<std::string_view> names = {"step.silu.title"};
  for (const auto& list : all_messages()) {
    for (const Message& m : list) {
      if (names.contains(m.key) ||
          m.en.find_first_not_of(" {}/;:.,()0123456789✓✗×=") == std::string_view::npos) {
        continue;
      }
      for (Language language : {Language::vi, Language::ko, Language::zh}) {
        if (language == Language::vi && same_in_vietnamese.contains(m.key)) continue;
        EXPECT_NE(text_of(m, language), m.en) << m.key << " " << code_of(language);
        EXPECT_TRUE(has_script(text_of(m, language), language))
            << m.key << " " << code_of(language) << ": " << text_of(m, language);
      }
    }
  }
}

TEST(Catalogue, KeysAreUnique) {
  std::set<std::string_view> seen;
  for (const auto& list : all_messages()) {
    for (const Message& m : list) EXPECT_TRUE(seen.insert(m.key).second) << m.key;
  }
}

TEST(Catalogue, FillsPlaceholdersInOrder) {
  EXPECT_EQ(message(Language::en, "example.channels.count", {"8", "2", "2", "4"}),
            "8 channels = 2 of Q + 2 of K + 4 of V.");
  EXPECT_EQ(message(Language::en, "no.such.key"), "no.such.key");
}

TEST(Catalogue, KnowsLanguagesByCodeAndByLocale) {
  EXPECT_EQ(language_of("vi"), Language::vi);
  EXPECT_EQ(language_of("ko_KR.UTF-8"), Language::ko);
  EXPECT_EQ(language_of("zh-Hans"), Language::zh);
  EXPECT_EQ(language_of("fr_FR.UTF-8"), std::nullopt);
  EXPECT_EQ(language_of("C"), std::nullopt);
}

// Every key that an example uses is there, and each message of the examples is used.
TEST(Catalogue, HasWhatTheExamplesSay) {
  std::set<std::string, std::less<>> used;
  for (const std::string& name : example_names()) {
    if (name == "vit" || name == "transformer") continue;  // the same keys, and slow
    const Explanation e = explain_example(name);
    used.insert(e.text + ".title");
    used.insert(e.text + ".intro");
    for (const Step& s : e.steps) {
      used.insert(s.text + ".title");
      used.insert(s.text + ".meaning");
    }
    for (const Remark& r : e.remarks) {
      used.insert(r.text);
      EXPECT_TRUE(r.step.empty() || e.find(r.step) != nullptr) << r.text;
      EXPECT_EQ(static_cast<int>(r.arguments.size()), placeholders(message(Language::en, r.text)));
    }
  }
  for (const std::string& key : used) {
    for (Language language : kLanguages) EXPECT_NE(message(language, key), key);
  }
  for (const Message& m : example_messages()) {
    if (m.key.starts_with("example.vit.") || m.key.starts_with("example.transformer.")) continue;
    EXPECT_TRUE(used.contains(m.key)) << m.key << " is said by no example";
  }
}

}  // namespace
}  // namespace qkv
