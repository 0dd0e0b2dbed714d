// JSON and CSV: for machines, so every digit, and the tensor's own order of axes.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "explain/writers/writer.h"

namespace qkv {
namespace {

using Json = nlohmann::ordered_json;

// f32 values with the digits of an f32: 0.1f is 0.1 and not 0.10000000149011612.
std::string shortest(double value, DType dtype) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return dtype == DType::f64 ? fmt::format("{}", value)
                             : fmt::format("{}", static_cast<float>(value));
}

Json number(double value, DType dtype) {
  if (!std::isfinite(value)) return shortest(value, dtype);
  return Json::parse(shortest(value, dtype));
}

Json nested(const Step& step, const std::vector<Range>& slice, std::vector<std::int64_t>& index) {
  if (index.size() == slice.size()) {
    return number(step.value->view().at(std::span<const std::int64_t>(index)), step.value->dtype());
  }
  const Range range = slice[index.size()];
  Json list = Json::array();
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    index.push_back(i);
    list.push_back(nested(step, slice, index));
    index.pop_back();
  }
  return list;
}

Json expansion(const Step& step, const Dims& index) {
  const Expansion e = step.expand(index);
  static constexpr const char* kKinds[] = {"given", "copied", "products", "softmax", "hidden",
                                           "sum",   "silu",   "softcap",  "norm"};
  Json json{{"index", std::vector<std::int64_t>(index.begin(), index.end())},
            {"kind", kKinds[static_cast<int>(e.kind)]},
            {"value", number(e.value, DType::f64)}};
  Json terms = Json::array();
  for (const auto& [a, b] : e.terms)
    terms.push_back({number(a, DType::f64), number(b, DType::f64)});
  if (!terms.empty()) json["terms"] = std::move(terms);
  if (e.has_addend) json["addend"] = number(e.addend, DType::f64);
  if (e.kind == Expansion::Kind::norm) {
    json["mean"] = number(e.mean, DType::f64);
    json["variance"] = number(e.variance, DType::f64);
    json["eps"] = e.eps;
  }
  if (e.kind == Expansion::Kind::softmax) {
    json["scores"] = e.scores;
    json["chosen"] = e.chosen;
    json["largest"] = number(e.largest, DType::f64);
  }
  if (e.kind == Expansion::Kind::copied) {
    json["source"] = e.source;
    json["source_index"] = std::vector<std::int64_t>(e.source_index.begin(), e.source_index.end());
  }
  return json;
}

Json step_json(const Explanation& explanation, const Step& step, const WriteOptions& options) {
  const std::vector<Range> slice = select_part(step, options.selection);
  Json ranges = Json::array();
  for (const Range& r : slice) ranges.push_back({r.begin, r.end});
  std::vector<std::int64_t> index;
  const Dims& shape = step.value->shape();
  Json json{{"name", step.name},
            {"title", title_of(step, options.language)},
            {"formula", step.formula},
            {"meaning", meaning_of(step, options.language)},
            {"axes", step.axes},
            {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
            {"slice", std::move(ranges)},
            {"values", nested(step, slice, index)}};
  Json expansions = Json::array();
  for (const Dims& entry : entries_of(explanation, step, options)) {
    expansions.push_back(expansion(step, entry));
  }
  if (!expansions.empty()) json["expansions"] = std::move(expansions);
  return json;
}

std::string csv_field(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + '"';
}

}  // namespace

std::string write_json(const Explanation& explanation, const WriteOptions& options) {
  check_selection(explanation, options.selection);
  const Language language = options.language;
  Json json{{"block", explanation.block},
            {"title", message(language, explanation.text + ".title")},
            {"intro", message(language, explanation.text + ".intro")},
            {"language", code_of(language)},
            {"steps", Json::array()},
            {"remarks", Json::array()}};
  for (const Step& step : explanation.steps) {
    json["steps"].push_back(step_json(explanation, step, options));
  }
  for (const Remark& r : explanation.remarks) {
    json["remarks"].push_back({{"step", r.step}, {"text", message(language, r.text, r.arguments)}});
  }
  return json.dump(1) + "\n";
}

std::string write_csv(const Explanation& explanation, const WriteOptions& options) {
  check_selection(explanation, options.selection);
  std::string out = "step,title,formula,shape,index,value\r\n";
  for (const Step& step : explanation.steps) {
    const std::string head = fmt::format(
        "{},{},{},{}", csv_field(step.name), csv_field(title_of(step, options.language)),
        csv_field(step.formula), csv_field(to_string(step.value->shape())));
    const std::vector<Range> slice = select_part(step, options.selection);
    Dims index;
    for (const Range& r : slice) {
      if (r.size() <= 0) break;
      index.push_back(r.begin);
    }
    if (index.rank() != static_cast<int>(slice.size())) continue;  // nothing to show
    for (bool more = true; more;) {
      out += fmt::format("{},{},{}\r\n", head, csv_field(to_string(index)),
                         shortest(step.value->view().at(index), step.value->dtype()));
      more = false;
      for (int i = index.rank() - 1; i >= 0 && !more; --i) {
        more = ++index[i] < slice[static_cast<std::size_t>(i)].end;
        if (!more) index[i] = slice[static_cast<std::size_t>(i)].begin;
      }
    }
  }
  return out;
}

}  // namespace qkv
