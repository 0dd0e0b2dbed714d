// Workbooks are taken apart again: the archive by a reader of its own, the cells by a scan, and
// every formula is evaluated by a small interpreter and compared with what is cached.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "explain/worksheet/test_sheets.h"
#include "explain/worksheet/words.h"
#include "explain/worksheet/workbook.h"
#include "explain/worksheet/zip.h"

namespace qkv::worksheet {
namespace {

using testing::HasSubstr;

std::size_t little_endian(const std::string& bytes, std::size_t at, int size) {
  std::size_t value = 0;
  for (int n = size; n-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes.at(at + static_cast<std::size_t>(n)));
  }
  return value;
}

// Bit by bit, unlike the writer's table.
std::uint32_t plain_crc(const std::string& bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

// By the directory at the end, as programs read it; what it says is compared with local headers.
std::map<std::string, std::string> unzip(const std::string& archive) {
  std::map<std::string, std::string> members;
  const std::size_t end = archive.size() - 22;
  EXPECT_EQ(little_endian(archive, end, 4), 0x06054b50u);
  const std::size_t count = little_endian(archive, end + 10, 2);
  std::size_t at = little_endian(archive, end + 16, 4);
  EXPECT_EQ(at + little_endian(archive, end + 12, 4), end);
  for (std::size_t n = 0; n < count; ++n) {
    EXPECT_EQ(little_endian(archive, at, 4), 0x02014b50u);
    const std::size_t length = little_endian(archive, at + 28, 2);
    const std::size_t size = little_endian(archive, at + 24, 4);
    const std::size_t local = little_endian(archive, at + 42, 4);
    const std::string name = archive.substr(at + 46, length);
    EXPECT_EQ(little_endian(archive, local, 4), 0x04034b50u);
    EXPECT_EQ(archive.substr(local + 4, 26), archive.substr(at + 6, 26)) << name;
    EXPECT_EQ(archive.substr(local + 30, length), name);
    members[name] = archive.substr(local + 30 + length, size);
    EXPECT_EQ(little_endian(archive, at + 16, 4), plain_crc(members[name])) << name;
    at += 46 + length;
  }
  EXPECT_EQ(at, end);
  return members;
}

std::string unescape(std::string text) {
  const std::pair<const char*, const char*> entities[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&amp;", "&"}};
  for (const auto& [entity, sign] : entities) {
    for (auto at = text.find(entity); at != std::string::npos; at = text.find(entity, at + 1)) {
      text.replace(at, std::string(entity).size(), sign);
    }
  }
  return text;
}

struct CellContent {
  std::string formula, value, type;
};
using Cells = std::map<std::string, CellContent>;

std::string between(const std::string& text, std::string_view open, std::string_view close) {
  const auto begin = text.find(open);
  if (begin == std::string::npos) return "";
  const auto from = begin + open.size();
  return unescape(text.substr(from, text.find(close, from) - from));
}

Cells cells_of(const std::string& xml) {
  Cells cells;
  for (auto at = xml.find("<c r="); at != std::string::npos; at = xml.find("<c r=", at + 1)) {
    const auto next = std::min(xml.find("<c r=", at + 1), xml.find("</row>", at));
    const std::string cell = xml.substr(at, next - at);
    CellContent content{between(cell, "<f>", "</f>"), between(cell, "<v>", "</v>"),
                        between(cell, " t=\"", "\"")};
    if (content.type == "inlineStr") content.value = between(cell, "preserve\">", "</t>");
    cells[between(cell, "r=\"", "\"")] = content;
  }
  return cells;
}

// --- the interpreter ------------------------------------------------------------------------
//   sum := product {(+|-) product};  product := factor {(*|/) factor}
//   factor := number | cell | 'sheet'!cell | NAME(sum | cell:cell {, …}) | (sum)

class Interpreter {
 public:
  using Lookup = std::function<double(const std::string& sheet, const std::string& cell)>;
  Interpreter(std::string text, Lookup lookup)
      : text_(std::move(text)), lookup_(std::move(lookup)) {}

  double run() {
    const double value = sum();
    EXPECT_EQ(at_, text_.size()) << text_;
    return value;
  }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string take_while(const std::function<bool(char)>& allowed) {
    const std::size_t from = at_;
    while (at_ < text_.size() && allowed(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }
  double sum() {
    double value = product();
    for (;;) {
      if (take('+')) {
        value += product();
      } else if (take('-')) {
        value -= product();
      } else {
        return value;
      }
    }
  }
  double product() {
    double value = factor();
    for (;;) {
      if (take('*')) {
        value *= factor();
      } else if (take('/')) {
        value /= factor();
      } else {
        return value;
      }
    }
  }
  double factor() {
    if (take('(')) {
      const double value = sum();
      EXPECT_TRUE(take(')')) << text_;
      return value;
    }
    if (take('\'')) {
      const std::string sheet = take_while([](char c) { return c != '\''; });
      EXPECT_TRUE(take('\'') && take('!')) << text_;
      return lookup_(sheet, take_while([](char c) { return std::isalnum(c) != 0; }));
    }
    const std::string word = take_while([](char c) { return std::isalnum(c) != 0 || c == '.'; });
    if (word.empty()) ADD_FAILURE() << text_ << " at " << at_;
    if (std::isdigit(word[0]) != 0) return std::stod(word);
    return take('(') ? call(word) : lookup_("", word);
  }
  double call(const std::string& name) {
    std::vector<double> arguments;
    do {
      const std::size_t from = at_;
      const std::string first = take_while([](char c) { return std::isalnum(c) != 0; });
      if (take(':')) {
        const std::string last = take_while([](char c) { return std::isalnum(c) != 0; });
        EXPECT_EQ(first.substr(1), last.substr(1)) << "one row, columns A to Z";
        for (char col = first[0]; col <= last[0]; ++col) {
          arguments.push_back(lookup_("", col + first.substr(1)));
        }
      } else {
        at_ = from;
        arguments.push_back(sum());
      }
    } while (take(','));
    EXPECT_TRUE(take(')')) << text_;
    if (name == "MAX") return *std::max_element(arguments.begin(), arguments.end());
    if (name == "EXP") return std::exp(arguments.at(0));
    if (name == "SQRT") return std::sqrt(arguments.at(0));
    if (name == "INT") return std::floor(arguments.at(0));
    ADD_FAILURE() << name << " is unknown";
    return 0;
  }

  std::string text_;
  Lookup lookup_;
  std::size_t at_ = 0;
};

// Recomputes a key from given cells alone; cached values are not looked at.
class Recalculation {
 public:
  Recalculation(const Cells& exercise, const Cells& key) : exercise_(exercise), key_(key) {}

  double at(const std::string& cell) {
    const CellContent& content = key_.at(cell);
    if (content.formula.empty()) return std::stod(content.value);
    const auto [known, fresh] = values_.try_emplace(cell, 0);
    if (fresh) {
      known->second =
          Interpreter(content.formula, [this](const std::string& sheet, const std::string& name) {
            return sheet.empty() ? at(name) : std::stod(exercise_.at(name).value);
          }).run();
    }
    return known->second;
  }

 private:
  const Cells& exercise_;
  const Cells& key_;
  std::map<std::string, double> values_;
};

struct Book {
  std::map<std::string, std::string> members;
  Cells exercise, key;
};

Book open(const Worksheet& sheet, const WriteOptions& options = {}) {
  Book book{unzip(write_xlsx(sheet, options)), {}, {}};
  book.exercise = cells_of(book.members.at("xl/worksheets/sheet1.xml"));
  const auto second = book.members.find("xl/worksheets/sheet2.xml");
  if (second != book.members.end()) book.key = cells_of(second->second);
  return book;
}

TEST(WorksheetXlsx, LiveFormulasGiveTheEnginesNumbers) {
  for (const NamedWorksheet& named : test_sheets()) {
    SCOPED_TRACE(named.name);
    const Book book = open(named.sheet, {.language = Language::zh});
    Recalculation recalculation(book.exercise, book.key);
    std::size_t computed = 0, hidden = 0;
    for (const auto& [name, content] : book.key) {
      if (!content.formula.empty()) {
        const double cached = std::stod(content.value);
        EXPECT_NEAR(recalculation.at(name), cached, 1e-12 * std::max(1.0, std::abs(cached)))
            << name;
        computed += content.formula.find('!') == std::string::npos ? 1u : 0u;
      }
      hidden += content.value == kMinusInfinity ? 1u : 0u;
    }
    EXPECT_EQ(computed + hidden, named.sheet.blanks());
  }
}

// Another X makes another exercise, and the key follows.
TEST(WorksheetXlsx, KeyFollowsWhatIsGiven) {
  const Worksheet sheet = exercise_worksheet({.seed = 3}, 4);
  Book book = open(sheet);
  std::string first_given;
  for (const auto& [name, content] : book.key) {
    if (content.formula.find('!') != std::string::npos) first_given = name;
  }
  ASSERT_NE(first_given, "");
  book.exercise[first_given].value = "5";
  Recalculation recalculation(book.exercise, book.key);
  int changed = 0;
  for (const auto& [name, content] : book.key) {
    if (content.formula.empty()) continue;
    changed += std::abs(recalculation.at(name) - std::stod(content.value)) > 1e-9 ? 1 : 0;
  }
  EXPECT_GT(changed, 3);
}

TEST(WorksheetXlsx, EveryBlankHasAMarkThatLooksAtTheKey) {
  for (const NamedWorksheet& named : test_sheets()) {
    SCOPED_TRACE(named.name);
    const Book book = open(named.sheet);
    std::size_t marks = 0;
    for (const auto& [name, content] : book.exercise) {
      if (!content.formula.starts_with("IF(")) continue;
      ++marks;
      const std::string blank = between(content.formula, "IF(", "=");
      EXPECT_TRUE(book.exercise.at(blank).value.empty());
      const CellContent& answer = book.key.at(blank);
      if (answer.value == kMinusInfinity) {
        EXPECT_THAT(content.formula, HasSubstr("=\"−inf\""));
      } else {
        EXPECT_FALSE(answer.formula.empty());
        EXPECT_THAT(content.formula, HasSubstr(fmt::format("ABS({0}-'Answer key'!{0})<=", blank)));
      }
    }
    EXPECT_EQ(marks, named.sheet.blanks());
  }
}

// Elements close in order and no sign stands where XML has none.
void expect_xml(const std::string& name, const std::string& xml) {
  EXPECT_TRUE(xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"")) << name;
  std::vector<std::string> open;
  for (auto at = xml.find('<', 1); at != std::string::npos; at = xml.find('<', at + 1)) {
    const auto end = xml.find_first_of("<>", at + 1);
    ASSERT_TRUE(end != std::string::npos && xml[end] == '>') << name;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    if (tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
      continue;
    }
    ASSERT_FALSE(open.empty()) << name;
    EXPECT_EQ(open.back(), tag.substr(1)) << name;
    open.pop_back();
  }
  EXPECT_TRUE(open.empty()) << name;
  for (auto at = xml.find('&'); at != std::string::npos; at = xml.find('&', at + 1)) {
    const std::string entity = xml.substr(at, xml.find(';', at) - at + 1);
    EXPECT_TRUE(entity == "&lt;" || entity == "&gt;" || entity == "&amp;" || entity == "&quot;");
  }
}

TEST(WorksheetXlsx, PartsAreXmlInEveryLanguage) {
  for (const NamedWorksheet& named : test_sheets()) {
    for (const Language language : kLanguages) {
      for (const auto& [name, xml] : open(named.sheet, {.language = language}).members) {
        expect_xml(name, xml);
        EXPECT_EQ(xml.find("worksheet.xlsx"), std::string::npos) << name;
      }
    }
  }
}

TEST(WorksheetXlsx, LabelsCannotBreakOut) {
  Explanation e = explain_example("journey");
  for (Step& step : e.steps) {
    if (!step.rows.empty()) step.rows[0] = "<b>&\"\x01";
  }
  for (const auto& [name, xml] : open(make_worksheet(e, 4)).members) expect_xml(name, xml);
}

TEST(WorksheetXlsx, KeyAloneOrNotAtAll) {
  const Worksheet sheet = example_worksheet("pixels", 4);
  const Book none = open(sheet, {.key = Key::none}), only = open(sheet, {.key = Key::only});
  EXPECT_FALSE(none.members.contains("xl/worksheets/sheet2.xml"));
  EXPECT_EQ(none.members.at("xl/worksheets/sheet1.xml").find("<f>"), std::string::npos);
  EXPECT_FALSE(only.members.contains("xl/worksheets/sheet2.xml"));
  const Cells nothing;
  Recalculation recalculation(nothing, only.exercise);  // the first sheet is the key
  for (const auto& [name, content] : only.exercise) {
    if (content.formula.empty()) continue;
    EXPECT_NEAR(recalculation.at(name), std::stod(content.value), 1e-12) << name;
  }
}

TEST(WorksheetXlsx, SameSeedSameBytes) {
  const auto bytes = [](std::uint64_t seed) {
    return write_xlsx(exercise_worksheet({.seed = seed}, 4), {.language = Language::ko});
  };
  EXPECT_EQ(bytes(11), bytes(11));
  EXPECT_NE(bytes(11), bytes(12));
}

TEST(WorksheetXlsx, NamesOfCells) {
  EXPECT_EQ(cell_name({12, 1}), "A12");
  EXPECT_EQ(cell_name({1, 26}), "Z1");
  EXPECT_EQ(cell_name({1, 27}), "AA1");
  EXPECT_EQ(cell_name({3, 702}), "ZZ3");
  EXPECT_EQ(cell_name({3, 703}), "AAA3");
  EXPECT_EQ(range_name({1, 2}, {3, 4}), "B1:D3");
}

TEST(WorksheetZip, KeepsBytes) {
  std::string every_byte;
  for (int n = 0; n < 256; ++n) every_byte += static_cast<char>(n);
  const auto members = unzip(zip({{"empty", ""}, {"folder/all", every_byte}}));
  EXPECT_EQ(members.at("empty"), "");
  EXPECT_EQ(members.at("folder/all"), every_byte);
  EXPECT_TRUE(unzip(zip({})).empty());
}

TEST(WorksheetExpression, ParenthesesOnlyWhereNeeded) {
  using Kind = Expression::Kind;
  const auto number = [](double n) { return Expression::constant(n); };
  const auto of = [](Kind kind, std::vector<Expression> operands) {
    return Expression::of(kind, std::move(operands));
  };
  const auto text = [](const Expression& e) {
    return spreadsheet_formula(e, [](const Place&) { return std::string("A1"); });
  };
  const Expression sum = of(Kind::sum, {number(1), number(2)});
  const Expression quotient = of(Kind::quotient, {number(6), number(3)});
  EXPECT_EQ(text(of(Kind::product, {sum, number(3)})), "(1+2)*3");
  EXPECT_EQ(text(of(Kind::sum, {sum, quotient})), "1+2+6/3");
  EXPECT_EQ(text(of(Kind::difference, {sum, sum})), "1+2-(1+2)");
  EXPECT_EQ(text(of(Kind::quotient, {quotient, quotient})), "6/3/(6/3)");
  EXPECT_EQ(text(of(Kind::root, {sum})), "SQRT(1+2)");
  const auto none = [](const Place&) { return Approximate{}; };
  EXPECT_EQ(evaluate(of(Kind::quotient, {quotient, quotient}), none).value, 1);
  EXPECT_EQ(evaluate(of(Kind::difference, {sum, sum}), none).value, 0);
}

}  // namespace
}  // namespace qkv::worksheet
