#include "explain/worksheet/worksheet.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "explain/explain.h"
#include "explain/worksheet/test_sheets.h"
#include "explain/worksheet/words.h"
#include "qkv/error.h"

namespace qkv::worksheet {
namespace {

using testing::HasSubstr;

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t n = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) {
    ++n;
  }
  return n;
}

// Every new example is either a worksheet or refused as too large: neither by accident.
TEST(Worksheet, KnowsWhichExamplesAreSmall) {
  std::set<std::string> known(worksheet_examples().begin(), worksheet_examples().end());
  for (const char* large : {"scaling", "vit", "transformer"}) {
    known.insert(large);
    try {
      example_worksheet(large, 4);
      FAIL() << large;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("too large to do by hand"));
      EXPECT_THAT(error.what(), HasSubstr("one of dot, pixels"));
    }
  }
  EXPECT_EQ(known, std::set<std::string>(example_names().begin(), example_names().end()));
  EXPECT_THROW(example_worksheet("nonsense", 4), Error);
  EXPECT_THROW(example_worksheet("dot", 0), Error);
  EXPECT_THROW(example_worksheet("dot", 9), Error);
}

TEST(Worksheet, AsksForWhatIsComputedAndGivesTheRest) {
  const Worksheet sheet = example_worksheet("pixels", 4);
  std::vector<std::string> given, asked;
  for (const Part& part : sheet.parts) (part.given ? given : asked).push_back(part.name);
  EXPECT_THAT(given, testing::ElementsAre("input", "w_query", "w_key", "w_value"));
  EXPECT_THAT(asked, testing::ElementsAre("tokens", "query", "key", "value", "scores", "scaled",
                                          "weights", "heads"));
  EXPECT_EQ(sheet.find("query")->blanks(), 8u);
  EXPECT_EQ(sheet.blanks(), 16u + 3 * 8 + 3 * 16 + 8);
}

TEST(Worksheet, HasABlankForEveryComputedEntry) {
  for (const NamedWorksheet& named : test_sheets()) {
    SCOPED_TRACE(named.name);
    for (const Part& part : named.sheet.parts) {
      const Step* step = named.explanation.find(part.name);
      ASSERT_NE(step, nullptr) << part.name;
      // Of the table of sizes three are given.
      const auto size = static_cast<std::size_t>(step->value->size());
      const std::size_t asked = part.given ? 0 : part.name == "dims" ? size - 3 : size;
      EXPECT_EQ(part.blanks(), asked) << part.name;
    }
  }
}

// Values are the engine's, and each expression gives its value from values alone.
TEST(Worksheet, AnswersAreTheEnginesNumbers) {
  for (const NamedWorksheet& named : test_sheets()) {
    SCOPED_TRACE(named.name);
    for (const Part& part : named.sheet.parts) {
      const Step* step = named.explanation.find(part.name);
      if (step == nullptr) continue;
      std::vector<double> shown, engine;
      for (const Grid& grid : part.grids) {
        for (const Entry& entry : grid.entries) shown.push_back(entry.value);
      }
      const Tensor dense = Tensor::copy_of(*step->value, DType::f64);
      engine.assign(dense.as<double>().begin(), dense.as<double>().end());
      std::sort(shown.begin(), shown.end());
      std::sort(engine.begin(), engine.end());
      EXPECT_EQ(shown, engine) << part.name;
    }
  }
  const Worksheet pixels = example_worksheet("pixels", 6);
  EXPECT_EQ(number(pixels.find("weights")->grids[0].at(2, 3), *pixels.find("weights")), "0.759537");
  EXPECT_EQ(number(pixels.find("heads")->grids[0].at(0, 1), *pixels.find("heads")), "0.804430");
}

// What a step is made from are the very numbers that the explanation expands it into.
TEST(Worksheet, ExpressionsAgreeWithTheExplanation) {
  const Explanation e = explain_example("heads");
  const Worksheet sheet = make_worksheet(e, 4);
  const Part& query = *sheet.find("query");
  const Expansion expansion = e.find("query")->expand({0, 1, 2, 0});
  const Expression& how = query.grids[1].at(2, 0).how;
  ASSERT_EQ(how.operands.size(), expansion.terms.size());
  for (std::size_t n = 0; n < expansion.terms.size(); ++n) {
    EXPECT_EQ(how.operands[n].operands[0].number, expansion.terms[n].first);
    EXPECT_EQ(how.operands[n].operands[1].number, expansion.terms[n].second);
  }
}

// A learner who rounds every step to the decimals that it asks for, and goes on with the rounded
// numbers, is always within the tolerance of the marks.
TEST(Worksheet, ToleratesWhoRoundsEveryStep) {
  for (const int digits : {2, 4, 6}) {
    for (const NamedWorksheet& named : test_sheets(digits)) {
      SCOPED_TRACE(fmt::format("{}, {} digits", named.name, digits));
      Worksheet learner = named.sheet;
      for (Part& part : learner.parts) {
        const double unit = std::pow(10.0, part.decimals);
        for (Grid& grid : part.grids) {
          for (Entry& entry : grid.entries) {
            if (entry.kind != Entry::Kind::made) continue;
            const double truth = entry.value;
            const auto written = [&](const Place& p) {
              return Approximate{learner.at(p).value, 0};
            };
            entry.value = std::round(evaluate(entry.how, written).value * unit) / unit;
            EXPECT_LE(std::abs(entry.value - truth), part.tolerance) << part.name;
            if (part.exact) {
              EXPECT_NEAR(entry.value, truth, 1e-9) << part.name;
            }
          }
        }
      }
    }
  }
}

// The tolerance is not so wide that a wrong digit passes: it grows with the numbers, not freely.
TEST(Worksheet, TolerancesStaySmall) {
  for (const NamedWorksheet& named : test_sheets(4)) {
    for (const Part& part : named.sheet.parts) {
      EXPECT_LE(part.tolerance, 0.01) << named.name << " " << part.name;
      if (!part.given && part.exact) {
        EXPECT_EQ(part.tolerance, 1e-6) << part.name;
      }
    }
  }
}

TEST(Worksheet, HintWritesOneEntryOut) {
  const Words words(Language::en);
  const Worksheet pixels = example_worksheet("pixels", 4);
  EXPECT_EQ(hint_of(pixels, *pixels.find("query"), words), "q[p0, 0] = 1·1 + 0·0 + 1·0 + 2·0 = 1");
  EXPECT_EQ(hint_of(pixels, *pixels.find("scaled"), words), "scaled[p0, p3] = 5/√2 ≈ 3.5355");
  const Worksheet channels = example_worksheet("channels", 4);
  EXPECT_EQ(hint_of(channels, *channels.find("dims"), words), "head_dim = ⌊4/2⌋ = 2");
  const Worksheet heads = example_worksheet("heads", 4);
  EXPECT_EQ(hint_of(heads, *heads.find("concat"), words).substr(0, 34),
            "C[Your, 2] = O[head 1][Your, 0] = ");
}

TEST(Worksheet, HidesWhatTheMaskHides) {
  const Worksheet sheet = example_worksheet("causal", 4);
  const Grid& masked = sheet.find("masked")->grids[0];
  const Grid& weights = sheet.find("weights")->grids[0];
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(masked.at(i, j).kind == Entry::Kind::hidden, j > i);
      if (j > i) {
        EXPECT_EQ(weights.at(i, j).value, 0);
      }
    }
  }
  EXPECT_THAT(write_markdown(sheet, {}), HasSubstr("| −inf |"));
}

// --- exercises ------------------------------------------------------------------------------

TEST(WorksheetExercise, IsTheSameForTheSameSeed) {
  const auto page = [](std::uint64_t seed) {
    return write_markdown(exercise_worksheet({.seed = seed}, 4), {});
  };
  EXPECT_EQ(page(7), page(7));
  EXPECT_NE(page(7), page(8));
  EXPECT_THAT(page(7), HasSubstr("Exercise 7."));
  EXPECT_THAT(page(std::numeric_limits<std::int64_t>::max()), HasSubstr("9223372036854775807"));
}

TEST(WorksheetExercise, RefusesSizesThatNobodyFillsInByHand) {
  EXPECT_THROW(make_exercise({.tokens = 1}), Error);
  EXPECT_THROW(make_exercise({.tokens = 7}), Error);
  EXPECT_THROW(make_exercise({.width = 1}), Error);
  EXPECT_THROW(make_exercise({.head_width = 0}), Error);
  EXPECT_THROW(make_exercise({.head_width = 5}), Error);
  EXPECT_THROW(make_exercise({.heads = 4}), Error);
  EXPECT_THROW(make_exercise({.seed = std::uint64_t{1} << 63}), Error);
}

// Small integers until softmax, and weights that four decimals show.
TEST(WorksheetExercise, IsPleasant) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Worksheet sheet = exercise_worksheet({.seed = seed}, 4);
    for (const char* name : {"query", "key", "value"}) {
      const Part& part = *sheet.find(name);
      EXPECT_TRUE(part.exact && part.decimals == 0);
      for (const Entry& entry : part.grids[0].entries) EXPECT_LE(std::abs(entry.value), 6) << seed;
    }
    for (const Entry& entry : sheet.find("weights")->grids[0].entries) {
      EXPECT_GT(entry.value, 0.0005) << seed;
    }
  }
}

TEST(WorksheetExercise, HasEverySizeItOffers) {
  for (std::int64_t tokens : {2, 6}) {
    for (std::int64_t width : {2, 6}) {
      for (std::int64_t heads : {1, 3}) {
        for (const bool causal : {false, true}) {
          const Worksheet sheet = exercise_worksheet(
              {.seed = 1, .tokens = tokens, .width = width, .heads = heads, .causal = causal}, 4);
          EXPECT_EQ(sheet.find("masked") != nullptr, causal);
          EXPECT_EQ(sheet.find("output") != nullptr, heads > 1);
          EXPECT_EQ(sheet.find("scores")->blanks(),
                    static_cast<std::size_t>(heads * tokens * tokens));
        }
      }
    }
  }
}

// --- Markdown and HTML ----------------------------------------------------------------------

TEST(WorksheetText, EveryFormatInEveryLanguage) {
  for (const NamedWorksheet& named : test_sheets()) {
    for (const Language language : kLanguages) {
      SCOPED_TRACE(fmt::format("{} {}", named.name, code_of(language)));
      const std::string markdown = write_markdown(named.sheet, {.language = language});
      const std::string html = write_html(named.sheet, {.language = language});
      EXPECT_EQ(count(markdown, " ____ |"), named.sheet.blanks());
      EXPECT_EQ(count(html, "<td class=\"blank\"></td>"), named.sheet.blanks());
      EXPECT_EQ(count(html, "<td class=\"answer\">"), named.sheet.blanks());
      EXPECT_THAT(html, HasSubstr(fmt::format("<html lang=\"{}\">", code_of(language))));
      for (const std::string& page : {markdown, html}) {
        // A key of the catalogue in place of its message, or a placeholder that nothing filled.
        EXPECT_EQ(count(page, "worksheet."), 0u);
        EXPECT_EQ(count(page, "step."), 0u);
        EXPECT_EQ(count(page, "{}"), 0u);
      }
    }
  }
}

TEST(WorksheetText, KeyAtTheEndAloneOrNotAtAll) {
  const Worksheet sheet = example_worksheet("journey", 4);
  for (const auto& write : {write_markdown, write_html}) {
    const std::string none = write(sheet, {.key = Key::none, .hints = false});
    const std::string only = write(sheet, {.key = Key::only});
    EXPECT_EQ(count(none, "0.3277"), 0u);  // an answer
    EXPECT_EQ(count(none, "Answer key"), 0u);
    EXPECT_GT(count(only, "0.3277"), 0u);
    EXPECT_EQ(count(only, "____") + count(only, "class=\"blank\""), 0u);
    EXPECT_GT(count(write(sheet, {}), "0.3277"), 0u);
  }
}

// Tags open and close in order; everything else is escaped.
std::string fault_of_markup(std::string_view page) {
  std::vector<std::string> open;
  for (auto at = page.find('<'); at != std::string_view::npos; at = page.find('<', at + 1)) {
    const auto end = page.find('>', at);
    if (end == std::string_view::npos) return "a tag is not closed";
    const std::string_view tag = page.substr(at + 1, end - at - 1);
    if (tag.starts_with('!') || tag.starts_with('?') || tag.starts_with("meta") ||
        tag.ends_with('/')) {
      continue;
    }
    if (!tag.starts_with('/')) {
      open.emplace_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return fmt::format("<{}> closes nothing", tag);
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : fmt::format("<{}> is never closed", open.back());
}

TEST(WorksheetText, HtmlIsWellFormedAndSelfContained) {
  for (const NamedWorksheet& named : test_sheets()) {
    const std::string page = write_html(named.sheet, {.language = Language::vi});
    EXPECT_EQ(fault_of_markup(page), "") << named.name;
    for (const char* elsewhere : {"http", "src=", "url(", "@import", "<script"}) {
      EXPECT_EQ(count(page, elsewhere), 0u) << elsewhere;
    }
  }
}

TEST(WorksheetText, LabelsCannotBreakOut) {
  Explanation e = explain_example("journey");
  for (Step& step : e.steps) {
    if (!step.rows.empty()) step.rows[0] = "<b>&\"|*\n`";
  }
  const Worksheet sheet = make_worksheet(e, 4);
  const std::string html = write_html(sheet, {});
  EXPECT_EQ(fault_of_markup(html), "");
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;&amp;&quot;|*"));
  EXPECT_EQ(count(html, "<b>"), 0u);
  EXPECT_THAT(write_markdown(sheet, {}), HasSubstr("| **\\<b\\>\\&\"\\|\\* \\`** |"));
}

TEST(WorksheetText, NumbersAsTheyAreRead) {
  EXPECT_EQ(number(-0.00001, 4), "0.0000");
  EXPECT_EQ(number(-2, 0), "−2");
  EXPECT_EQ(number(0.12345, 4), "0.1235");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity(), 4), "−inf");
  EXPECT_EQ(bound(0.00013), "0.00013");
  EXPECT_EQ(bound(0.0005), "0.0005");
  EXPECT_EQ(bound(0.000001), "0.000001");
  EXPECT_EQ(bound(12), "12");
}

}  // namespace
}  // namespace qkv::worksheet
