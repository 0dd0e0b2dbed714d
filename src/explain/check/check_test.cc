// Whole notes through the check: right ones raise no alarm, and a changed digit does.

#include "explain/check/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "explain/check/test_notes.h"
#include "explain/explain.h"
#include "explain/writers/writer.h"
#include "qkv/error.h"
#include "tests/effort.h"

namespace qkv {
namespace {

using check::test_notes;
using check::unmark;
using testing::HasSubstr;
using testing::Not;

std::string report_of(const std::string& text, Language language = Language::en) {
  return check_report_text(check_note(text), "note.md", language, false);
}

const CheckFinding* find(const CheckReport& report, std::string_view subject, Verdict verdict) {
  for (const CheckFinding& finding : report.findings) {
    if (finding.subject == subject && finding.verdict == verdict) return &finding;
  }
  return nullptr;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(CheckNote, CorrectNotesRaiseNoAlarm) {
  for (const auto& note : test_notes()) {
    const std::string text = unmark(note.text).text;
    const CheckReport report = check_note(text);
    EXPECT_EQ(report.count(Verdict::differs), 0) << note.name << '\n' << report_of(text);
    EXPECT_EQ(report.count(Verdict::not_checkable), 0) << note.name << '\n' << report_of(text);
    EXPECT_GE(report.count(Verdict::agrees), 4) << note.name;
  }
}

// Every digit of every note, except those marked as not checkable, changed in two ways.
TEST(CheckNote, EveryChangedDigitIsFound) {
  for (const auto& note : test_notes()) {
    const auto [text, checkable] = unmark(note.text);
    int digits = 0;
    for (std::size_t i = 0; i < text.size(); i += kStride) {
      if (!checkable[i] || text[i] < '0' || text[i] > '9') continue;
      for (int step : {1, 6}) {
        ++digits;
        std::string changed = text;
        changed[i] = static_cast<char>('0' + (text[i] - '0' + step) % 10);
        if (check_note(changed).count(Verdict::differs) > 0) continue;
        const std::size_t begin = text.rfind('\n', i) + 1;
        std::string line = changed.substr(begin, changed.find('\n', i) - begin);
        line.insert(i - begin + 1, "<<");
        ADD_FAILURE() << note.name << ": unnoticed: " << line;
      }
    }
    EXPECT_GT(digits, share_of(30)) << note.name;
  }
}

// The misprint that started this: Z's first row, and the others cut off.
TEST(CheckNote, FlagsTheFirstRowOfZ) {
  std::string text = unmark(check::kJourneyNote).text;
  text = replaced(text, "[0.4655 0.5588 0.6689]", "[0.4656 0.5592 0.6688]");
  text = replaced(text, "[0.4766 0.6359 0.6469]", "[0.4765 0.6358 0.6468]");
  const CheckReport report = check_note(text);
  EXPECT_EQ(report.count(Verdict::differs), 1) << report_of(text);
  const CheckFinding* z = find(report, "Z", Verdict::differs);
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->formula, "softmax(X·Xᵀ)·X");
  ASSERT_EQ(z->differences.size(), 2U);
  EXPECT_EQ(z->differences[0].row, 1);
  EXPECT_EQ(z->differences[0].count, 3);
  EXPECT_EQ(z->differences[0].miss, Miss::wrong);
  EXPECT_EQ(z->differences[0].expected, "[0.4655 0.5588 0.6689]");
  EXPECT_EQ(z->differences[0].found, "[0.4656 0.5592 0.6688]");
  EXPECT_EQ(z->differences[1].miss, Miss::cut_off);
  EXPECT_EQ(z->differences[1].row, 2);
  EXPECT_EQ(z->differences[1].line, z->differences[0].line + 1);
}

TEST(CheckNote, FlagsWrongFactorsWhoseSumIsRight) {
  const std::string text =
      replaced(unmark(check::kPixelsNote).text, "1*0+0*1+1*0+2*0", "1*0+0*0+0*1+2*0");
  const CheckReport report = check_note(text);
  EXPECT_EQ(report.count(Verdict::differs), 1) << report_of(text);
  const CheckFinding* k = find(report, "K(p0)", Verdict::differs);
  ASSERT_NE(k, nullptr);
  ASSERT_EQ(k->differences.size(), 1U);
  EXPECT_EQ(k->differences[0].miss, Miss::factors);
  EXPECT_EQ(k->differences[0].expected, "1*0 + 0*1 + 1*0 + 2*0");
}

// Recomputed from X, not from the scores: one error is one finding.
TEST(CheckNote, AnErrorDoesNotSpread) {
  const std::string text = replaced(unmark(check::kJourneyNote).text, "[0.81 0.76", "[0.91 0.76");
  const CheckReport report = check_note(text);
  EXPECT_EQ(report.count(Verdict::differs), 1) << report_of(text);
}

// Weights that follow from wrong scores are not blamed for them.
TEST(CheckNote, AResultOfPrintedNumbersIsNotBlamed) {
  const CheckReport report = check_note(
      "X = [[1, 0], [0, 1]]\n\nscores = [[1, 1], [0, 1]]\n\n"
      "weights = [[0.5, 0.5], [0.2689, 0.7311]]\n");
  EXPECT_EQ(report.count(Verdict::differs), 1);
  const CheckFinding* weights = find(report, "weights", Verdict::agrees);
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->reason, "check.remark.from_printed");
}

TEST(CheckNote, TellsCarriedRoundingFromErrors) {
  // 0.27·10 + 0.73·20 from weights rounded to two places, instead of 17.3106.
  const CheckReport report =
      check_note("scores = [[1, 2]]\nweights = [[0.27, 0.73]]\nV = [[10], [20]]\nZ = [[17.30]]\n");
  const CheckFinding* z = find(report, "Z", Verdict::differs);
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->differences.at(0).miss, Miss::carried);
  EXPECT_EQ(z->differences.at(0).expected, "[17.31]");
}

// Q, K and V are printed with four places and no source: their rounding limits what can be said.
TEST(CheckNote, AllowsForTheRoundingOfItsInputs) {
  const CheckReport report =
      check_note("Q = [[12.3457, 7.6543]]\nK = [[11.1111, 3.3333]]\nscores = [[162.6889]]\n");
  EXPECT_EQ(report.count(Verdict::differs), 0);
  const CheckFinding* scores = find(report, "scores", Verdict::agrees);
  ASSERT_NE(scores, nullptr);
  EXPECT_EQ(scores->reason, "check.remark.bounded");
  EXPECT_EQ(check_note("Q = [[12.3457, 7.6543]]\nK = [[11.1111, 3.3333]]\nscores = [[162.70]]\n")
                .count(Verdict::differs),
            1);
}

// Names in a series say which row or column it is, not which matrix.
TEST(CheckNote, LabelsOfRowsAndColumnsAreNoNames) {
  const std::string pixels =
      "X:\n\n| pixel | c0 | c1 |\n|---|---|---|\n| p0 | 1 | 2 |\n| p1 | 3 | 4 |\n\n"
      "Wq = [[1, 0], [0, 2]]\n\nQ:\n\n|  | 0 | 1 |\n|---|---|---|\n| 0 | 1 | 4 |\n| 1 | 3 | 8 |\n\n"
      "K = [[1, 0], [0, 1]]\n\nscores:\n\n"
      "|  | p0 | p1 |\n|---|---|---|\n| p0 | 1 | 4 |\n| p1 | 3 | 8 |\n";
  const CheckReport right = check_note(pixels);
  EXPECT_EQ(right.count(Verdict::agrees), 2) << report_of(pixels);
  EXPECT_EQ(right.count(Verdict::differs), 0) << report_of(pixels);
  const std::string wrong = replaced(pixels, "| p1 | 3 | 8 |", "| p1 | 3 | 9 |");
  EXPECT_NE(find(check_note(wrong), "scores", Verdict::differs), nullptr) << report_of(wrong);
  const std::string z =
      "X = [[1, 0], [0, 1]]\nweights = [[0.7311, 0.2689], [0.2689, 0.7311]]\nZ:\n\n"
      "| token | z1 | z2 |\n|---|---|---|\n| a | 0.7311 | 0.2689 |\n| b | 0.2689 | 0.7411 |\n";
  EXPECT_NE(find(check_note(z), "Z", Verdict::differs), nullptr) << report_of(z);
}

// What the program explains, it also finds right.
TEST(CheckNote, AgreesWithWhatIsExplained) {
  for (const char* name : {"dot", "pixels", "causal"}) {
    for (const Language language : kLanguages) {
      WriteOptions options;
      options.language = language;
      const CheckReport report = check_note(write_markdown(explain_example(name), options));
      EXPECT_EQ(report.count(Verdict::differs), 0)
          << name << " " << code_of(language) << "\n"
          << check_report_text(report, name, Language::en, false);
      EXPECT_GT(report.count(Verdict::agrees), 0) << name;
    }
  }
}

TEST(CheckNote, SaysWhatIsMissing) {
  const CheckReport report =
      check_note("X = [[1, 2]]\nWq = [[1], [1]]\nQ = [[3]]\nK = [[3]]\nscores = [[9]]\nQ·P = 7\n");
  EXPECT_NE(find(report, "Q", Verdict::agrees), nullptr);
  const CheckFinding* k = find(report, "K", Verdict::not_checkable);
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->reason, "check.reason.missing");
  EXPECT_EQ(k->arguments, std::vector<std::string>{"Wk"});
  const CheckFinding* product = find(report, "Q·P", Verdict::not_checkable);
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->arguments, std::vector<std::string>{"P"});
}

TEST(CheckNote, WeightsWithoutScoresAddUpToOne) {
  EXPECT_EQ(check_note("weights = [[0.25, 0.75], [0.40, 0.60]]").count(Verdict::agrees), 1);
  EXPECT_EQ(check_note("weights = [[0.25, 0.75], [0.40, 0.70]]").count(Verdict::differs), 1);
  EXPECT_EQ(check_note("weights = [[2.5, -7.5], [4.0, 6.0]]").count(Verdict::not_checkable), 1);
}

TEST(CheckNote, FindsWhichScaleAndLayoutFit) {
  const auto formula = [](std::string_view text, std::string_view subject) {
    const CheckReport report = check_note(text);
    const CheckFinding* finding = find(report, subject, Verdict::agrees);
    return finding == nullptr ? std::string("none") : finding->formula;
  };
  const std::string inputs = "Q = [[1, 2, 3, 4]]\nK = [[1, 1, 1, 1], [2, 0, 0, 0]]\n";
  EXPECT_EQ(formula(inputs + "scores = [[10, 2]]", "scores"), "Q·Kᵀ");
  EXPECT_EQ(formula(inputs + "scores = [[5, 1]]", "scores"), "Q·Kᵀ/√4");
  EXPECT_EQ(formula("X = [[1, 2]]\nWq = [[3, 4], [5, 6]]\nQ = [[11, 17]]", "Q"), "X·Wqᵀ");
  EXPECT_EQ(formula("X = [[1, 2], [3, 4], [5, 6]]\nWq = [[1], [1]]\nQ = [[3, 7, 11]]", "Q"),
            "(X·Wq)ᵀ");
  EXPECT_EQ(formula("X = [[1, 2]]\nWq = [[1], [1]]\nbq = [10]\nQ = [[13]]", "Q"), "X·Wq + bq");
}

TEST(CheckNote, ReadsEquations) {
  const auto differs = [](std::string_view text) {
    return check_note(text).count(Verdict::differs) > 0;
  };
  EXPECT_FALSE(differs("softmax([4, 14]) = [0.0000454, 0.99995]"));
  EXPECT_TRUE(differs("softmax([4, 14]) = [0.0000455, 0.99995]"));
  EXPECT_FALSE(differs("d_k = 64, so √d_k = 8 and 1/√d_k = 0.125."));
  EXPECT_TRUE(differs("d_k = 64, so √d_k = 8 and 1/√d_k = 0.126."));
  EXPECT_TRUE(differs("$$\\frac{512}{8} = 65$$"));
  EXPECT_FALSE(differs("$$\\frac{512}{8} = 64$$ and $\\sqrt{64} = 8$, 2^3 = 8, e^2 ≈ 7.389"));
  EXPECT_FALSE(differs("score\n= 1*2 + 2*1\n= 4"));
  EXPECT_TRUE(differs("score\n= 1*2 + 2*1\n= 5"));
  EXPECT_FALSE(differs("f(x) = 2x + 3, f(1) = 2(1) + 3 = 2 + 3 = 5; y = -2(0.5) + 1 = 0"));
  EXPECT_FALSE(differs("例如B = 32，2B = 64；Q는 [1, 2]이다"));
  EXPECT_FALSE(differs("`q1 . k1 = [1, 0, 0] . [1, 1, 0] = 1*1 + 0*1 + 0*0 = 1`"));
  EXPECT_TRUE(differs("`q1 . k1 = [1, 0, 0] . [1, 1, 0] = 1*1 + 0*1 + 0*0 = 2`"));
  EXPECT_FALSE(differs("### Softmax\n\n`softmax([0.577, 0.577, 0])` of a packed `[T, 4, D]`"));
  EXPECT_FALSE(differs("In 2024 = year, page 3 = last; x = y = z, a -> b, 10:30"));
}

TEST(CheckNote, FollowsShapes) {
  const auto differs = [](std::string_view text) {
    return check_note(text).count(Verdict::differs) > 0;
  };
  const std::string x = "x.shape → [2, 10, 48]\nheads = 4\n";
  EXPECT_FALSE(differs(x + "qkv.shape → [2, 10, 144]\nq.shape → [2, 4, 10, 12]"));
  EXPECT_TRUE(differs(x + "qkv.shape → [2, 10, 143]"));
  EXPECT_TRUE(differs(x + "q.shape → [2, 4, 10, 11]"));
  EXPECT_TRUE(differs(x + "weights.shape → [2, 4, 10, 12]"));
  EXPECT_TRUE(differs(x + "x.reshape(2, 10, 4, 13) → [2, 10, 4, 13]"));
  EXPECT_FALSE(differs(x + "x.view(2, 10, 4, -1).transpose(1, 2) → [2, 4, 10, 12]"));
  EXPECT_TRUE(differs(x + "x.view(2, 10, 4, 12).permute(0, 2, 1, 3) → [2, 10, 4, 12]"));
}

TEST(CheckNote, ReadsOtherWaysOfWriting) {
  const auto agrees = [](std::string_view text, std::string_view subject) {
    const CheckReport report = check_note(text);
    EXPECT_EQ(report.count(Verdict::differs), 0) << report_of(std::string(text));
    return find(report, subject, Verdict::agrees) != nullptr;
  };
  EXPECT_TRUE(agrees("Q = [1 2]\nK = [3 4]\nscores = 1*3 + 2*4 = 11\n", "scores"));
  EXPECT_TRUE(agrees("X = [1 2; 3 4]\nscores = [5 11; 11 25]\n", "scores"));
  EXPECT_TRUE(agrees("scores = [[1, 2]]\n\nweights = [[26.9%, 73.1%]]\n", "weights"));
  EXPECT_TRUE(agrees("scores = [[−1, 2]]\n\nweights = [0,047 0,953]\n", "weights"));
  EXPECT_TRUE(
      agrees("| | Q | K |\n|---|---|---|\n| a | [1 2] | [2 1] |\n| b | [0 1] | [1 1] |\n\n"
             "S = [[4, 3], [1, 1]]\n",
             "S"));
  EXPECT_TRUE(agrees("X = [[1, 0], [0, 2]]\n\nattn_scores_2 = [0, 4]\n", "attn_scores_2"));
  EXPECT_TRUE(agrees("X = ⎡1 0⎤\n    ⎣0 2⎦\n\nscores = [[1, 0], [0, 4]]\n", "scores"));
}

// Notes about other things use the same letters.
TEST(CheckNote, LeavesOtherNotesAlone) {
  for (std::string_view text : {
           "a = [1, 2]\nb = [3, 4]\na + b = [4, 6]\n",
           "z = [-2.5, 0.0, 3.0]\n\nx = [-10, 0, 10]\n",
           "At (x, y) = (1, 2) it is 5, at (x, y) = (5, -1) it is 4.\n",
           "Test different top-k values (1, 3) and longer sequences (256, 512), dim = 8.\n",
           "x = [[1, 2], [3, 4]]\n\nweights = [-0.5, 1.0]\n",
           "scores = [85, 92, 78]\nprint(scores[0]) # 85\n",
           "See [1] and [2], pp. 3-4, at 10:30. A = (d, e, f). version = 1.2.3, 2024-01-01\n",
           "| model | dim | heads |\n|---|---|---|\n| small | 384 | 6 |\n| base | 768 | 12 |\n",
       }) {
    EXPECT_EQ(check_note(text).count(Verdict::differs), 0) << report_of(std::string(text));
  }
}

TEST(CheckNote, RefusesWhatIsNoText) {
  EXPECT_THROW(check_note(std::string_view("a\0b", 3)), Error);
  EXPECT_THROW(check_note("\xFF\xFE"), Error);
  EXPECT_THROW(check_note(std::string(kMaxNoteSize + 1, ' ')), Error);
  EXPECT_TRUE(check_note("").findings.empty());
  EXPECT_EQ(check_note("\xEF\xBB\xBFX = [[1, 2]]").count(Verdict::given), 1);
}

// Whatever is cut off, doubled or overwritten, the check ends with a report.
TEST(CheckNote, SurvivesMutilatedNotes) {
  std::mt19937 random(1);
  constexpr std::string_view pieces[] = {"[",         "]",
                                         "[[",        "(",
                                         ")",         "|",
                                         "|---|",     "=",
                                         "→",         "\n",
                                         "`",         "```\n",
                                         "-inf",      "√",
                                         "1e999",     "\\begin{bmatrix}",
                                         "&",         "\\\\",
                                         "*",         "softmax(",
                                         "//0",       "^",
                                         ".reshape(", ",",
                                         "0",         "999999999999999999999",
                                         "ᵀ",         "%",
                                         "...",       "Wq",
                                         "shape"};
  for (const auto& note : test_notes()) {
    const std::string text = unmark(note.text).text;
    const auto survive = [&](std::string changed) {
      while (!changed.empty() && (changed.back() & 0x80) != 0) changed.pop_back();
      try {
        check_report_json(check_note(changed), "n", Language::vi);
      } catch (const Error&) {  // cut inside of a character
      }
    };
    for (std::size_t size = 0; size < text.size(); size += 7 * kStride)
      survive(text.substr(0, size));
    for (std::size_t size = 0; size < text.size(); size += 31 * kStride) survive(text.substr(size));
    for (int i = 0; i < share_of(300); ++i) {
      std::string changed = text;
      for (int k = 0; k < 1 + i % 8; ++k) {
        const std::size_t at = random() % (changed.size() + 1);
        changed.insert(at, pieces[random() % std::size(pieces)]);
      }
      survive(changed);
    }
  }
}

// Deep nesting, long lines and many matrices end soon, too.
TEST(CheckNote, SurvivesHostileNotes) {
  const auto repeated = [](std::string_view piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += piece;
    return text;
  };
  for (std::string_view piece : {"[",       "(",           "[[1 2] ",   "1+",
                                 "1*1+",    "-",           "√",         "x.y",
                                 "a=",      "f(",          "^2",        "|",
                                 "|-|\n",   "Q = [1 2]\n", "Q·K = 1\n", "X = [[1, 2], [3, 4]]\n",
                                 "[1 2]\n", "    1 2\n",   "\\frac{",   "Z = [1 2]   "}) {
    check_note("x = " + repeated(piece, share_of(5000)));
  }
}

TEST(CheckReportText, SpeaksFourLanguages) {
  const std::string text =
      replaced(unmark(check::kJourneyNote).text, "[0.4655 0.5588", "[0.4656 0.5588");
  EXPECT_THAT(report_of(text), HasSubstr("note.md:40: Z = softmax(X·Xᵀ)·X: differs"));
  EXPECT_THAT(report_of(text), HasSubstr("expected [0.4655 0.5588 0.6689]"));
  EXPECT_THAT(report_of(text, Language::vi), HasSubstr("hàng 1 của ma trận: đúng là [0.4655"));
  EXPECT_THAT(report_of(text, Language::ko), HasSubstr("불일치"));
  EXPECT_THAT(report_of(text, Language::zh), HasSubstr("应为 [0.4655"));
  EXPECT_THAT(report_of(text), Not(HasSubstr("check.")));
  EXPECT_THAT(report_of("nothing"), HasSubstr("no numbers of attention found"));
}

TEST(CheckReportText, ShowsNoControlCharacters) {
  const std::string report = report_of("\x1b[31mQ\x1b[0m·K = [[1, 2], [3, 4]]\n");
  EXPECT_EQ(report.find('\x1b'), std::string::npos);
  EXPECT_THAT(check_report_text(check_note("weights = [0.5, 0.5]"), "n", Language::en, true),
              HasSubstr("\x1b[32m"));
}

TEST(CheckReportJson, HasVerdictsAndDifferences) {
  const std::string json = check_report_json(check_note("1 + 1 = 3"), "note.md", Language::en);
  EXPECT_THAT(json, HasSubstr("\"verdict\": \"differs\""));
  EXPECT_THAT(json, HasSubstr("\"expected\": \"2\""));
  EXPECT_THAT(json, HasSubstr("\"found\": \"3\""));
}

TEST(CheckMessages, FillEqualPlaceholdersInEveryLanguage) {
  const auto placeholders = [](std::string_view text) {
    int count = 0;
    for (std::size_t at = text.find("{}"); at != std::string_view::npos;
         at = text.find("{}", at + 1)) {
      ++count;
    }
    return count;
  };
  for (const Message& m : check_messages()) {
    for (std::string_view text : {m.vi, m.ko, m.zh}) {
      EXPECT_EQ(placeholders(text), placeholders(m.en)) << m.key;
      EXPECT_FALSE(text.empty()) << m.key;
    }
  }
}

}  // namespace
}  // namespace qkv
