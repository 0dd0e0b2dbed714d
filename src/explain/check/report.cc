// Reports of a check, for people and for programs.

#include <fmt/format.h>

#include "base/json.h"
#include "explain/check/check.h"

namespace qkv {
namespace {

// Differences of one finding that are written out for people; programs get all.
constexpr std::size_t kMaxShown = 8;
// A row of a wide matrix, or an equation, is cut after this many bytes.
constexpr std::size_t kMaxText = 160;

constexpr std::string_view kRed = "\x1b[31m", kGreen = "\x1b[32m", kYellow = "\x1b[33m",
                           kPlain = "\x1b[0m";

std::string_view identifier_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::agrees: return "agrees";
    case Verdict::differs: return "differs";
    case Verdict::given: return "given";
    case Verdict::not_checkable: break;
  }
  return "not_checkable";
}

std::string_view identifier_of(Miss miss) noexcept {
  switch (miss) {
    case Miss::cut_off: return "cut_off";
    case Miss::carried: return "carried";
    case Miss::factors: return "factors";
    case Miss::wrong: break;
  }
  return "wrong";
}

std::string_view color_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::agrees: return kGreen;
    case Verdict::differs: return kRed;
    case Verdict::not_checkable: return kYellow;
    case Verdict::given: break;
  }
  return "";
}

// What a note says is shown as it is, except for what would break the line or move the cursor.
std::string shown(std::string_view text) {
  std::string result;
  bool blank = false;
  for (char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    if (control || c == ' ') {
      blank = !result.empty();
      continue;
    }
    if (blank) result += ' ';
    blank = false;
    result += c;
  }
  if (result.size() <= kMaxText) return result;
  std::size_t end = kMaxText;
  while (end > 0 && (static_cast<unsigned char>(result[end]) & 0xC0) == 0x80) --end;
  return result.substr(0, end) + "…";
}

std::string reason_of(const CheckFinding& finding, Language language) {
  if (finding.reason.empty()) return {};
  std::vector<std::string> arguments;
  for (const std::string& argument : finding.arguments) arguments.push_back(shown(argument));
  return message(language, finding.reason, arguments);
}

std::string verdict_text(const CheckFinding& finding, Language language) {
  const std::string key = "check.verdict." + std::string(identifier_of(finding.verdict));
  if (finding.verdict == Verdict::agrees) {
    return message(language, key, {std::to_string(finding.numbers)});
  }
  return std::string(message(language, key));
}

std::string difference_text(const CheckDifference& difference, Language language) {
  const std::string expected = shown(difference.expected), found = shown(difference.found);
  std::string text = difference.row > 0
                         ? message(language, "check.difference.row",
                                   {std::to_string(difference.line), std::to_string(difference.row),
                                    expected, found})
                         : message(language, "check.difference.line",
                                   {std::to_string(difference.line), expected, found});
  if (difference.miss != Miss::wrong) {
    const std::string key = "check.miss." + std::string(identifier_of(difference.miss));
    text += fmt::format(" ({})", message(language, key));
  }
  return text;
}

std::string subject_text(const CheckFinding& finding) {
  const std::string subject = shown(finding.subject), formula = shown(finding.formula);
  if (formula.empty() || formula == subject) return subject;
  return subject.empty() ? formula : subject + " = " + formula;
}

}  // namespace

std::string check_report_text(const CheckReport& report, std::string_view name, Language language,
                              bool color) {
  std::string text;
  for (const CheckFinding& finding : report.findings) {
    const std::string_view paint = color ? color_of(finding.verdict) : std::string_view{};
    text += fmt::format("{}:{}: {}: {}{}{}", name, finding.line, subject_text(finding), paint,
                        verdict_text(finding, language), paint.empty() ? "" : kPlain);
    if (const std::string reason = reason_of(finding, language); !reason.empty()) {
      text += ": " + reason;
    }
    text += '\n';
    for (std::size_t i = 0; i < finding.differences.size(); ++i) {
      if (i == kMaxShown) {
        text += "    " +
                message(language, "check.difference.more",
                        {std::to_string(finding.differences.size() - kMaxShown)}) +
                '\n';
        break;
      }
      text += "    " + difference_text(finding.differences[i], language) + '\n';
    }
  }
  if (report.findings.empty())
    return message(language, "check.nothing", {std::string(name)}) + '\n';
  return text +
         message(language, "check.summary",
                 {std::to_string(report.count(Verdict::agrees)),
                  std::to_string(report.count(Verdict::differs)),
                  std::to_string(report.count(Verdict::not_checkable)),
                  std::to_string(report.count(Verdict::given))}) +
         '\n';
}

std::string check_report_json(const CheckReport& report, std::string_view name, Language language) {
  JsonWriter json(2);
  const auto write_difference = [&](const CheckDifference& difference) {
    json.member("kind", identifier_of(difference.miss));
    json.member("line", difference.line);
    if (difference.row > 0) json.member("row", difference.row);
    if (difference.column > 0) json.member("column", difference.column);
    json.member("count", difference.count);
    json.member("expected", difference.expected);
    json.member("found", difference.found);
  };
  const auto write_finding = [&](const CheckFinding& finding) {
    json.member("verdict", identifier_of(finding.verdict));
    json.member("line", finding.line);
    json.member("subject", finding.subject);
    json.member("formula", finding.formula);
    json.member("message", reason_of(finding, language));
    json.member("numbers", finding.numbers);
    json.key("differences").array([&] {
      for (const CheckDifference& difference : finding.differences) {
        json.object([&] { write_difference(difference); });
      }
    });
  };
  json.object([&] {
    json.member("note", name);
    json.key("findings").array([&] {
      for (const CheckFinding& finding : report.findings) {
        json.object([&] { write_finding(finding); });
      }
    });
    json.key("summary").object([&] {
      for (const Verdict verdict :
           {Verdict::agrees, Verdict::differs, Verdict::not_checkable, Verdict::given}) {
        json.member(identifier_of(verdict), report.count(verdict));
      }
    });
  });
  return json.text() + '\n';
}

}  // namespace qkv
