// JSON and CSV: for machines, so every digit, and the tensor's own order of axes.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>

#include "base/json.h"
#include "explain/writers/writer.h"

namespace qkv {
namespace {

// f32 values with the digits of an f32: 0.1f is 0.1 and not 0.10000000149011612.
std::string shortest(double value, DType dtype) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return dtype == DType::f64 ? fmt::format("{}", value)
                             : fmt::format("{}", static_cast<float>(value));
}

void write_number(JsonWriter& json, double value, DType dtype) {
  const std::string text = shortest(value, dtype);
  json.value_as_written(std::isfinite(value) ? text : json_string(text));
}

void write_nested(JsonWriter& json, const Step& step, const std::vector<Range>& slice,
                  std::vector<std::int64_t>& index) {
  if (index.size() == slice.size()) {
    const double value = step.value->view().at(std::span<const std::int64_t>(index));
    return write_number(json, value, step.value->dtype());
  }
  const Range range = slice[index.size()];
  json.array([&] {
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      index.push_back(i);
      write_nested(json, step, slice, index);
      index.pop_back();
    }
  });
}

void write_expansion(JsonWriter& json, const Step& step, const Dims& index) {
  const Expansion e = step.expand(index);
  static constexpr const char* kKinds[] = {"given", "copied", "products", "softmax", "hidden",
                                           "sum",   "silu",   "softcap",  "norm"};
  json.object([&] {
    json.key("index").list(index);
    json.member("kind", kKinds[static_cast<int>(e.kind)]);
    json.member("value", e.value);
    if (!e.terms.empty()) {
      json.key("terms").array([&] {
        for (const auto& [a, b] : e.terms) json.list(std::array{a, b});
      });
    }
    if (e.has_addend) json.member("addend", e.addend);
    if (e.kind == Expansion::Kind::norm) {
      json.member("mean", e.mean);
      json.member("variance", e.variance);
      json.member("eps", e.eps);
    }
    if (e.kind == Expansion::Kind::softmax) {
      json.key("scores").list(e.scores);
      json.member("chosen", e.chosen);
      json.member("largest", e.largest);
    }
    if (e.kind == Expansion::Kind::copied) {
      json.member("source", e.source);
      json.key("source_index").list(e.source_index);
    }
  });
}

// The labels along an axis of the tensor; none: its entries have numbers alone.
std::span<const std::string> labels_of(const Step& step, std::size_t axis) {
  const std::size_t rank = step.axes.size();
  if (is_image(step)) {
    if (axis == 1) return step.channels;
    return {};
  }
  if (axis + 1 == rank) return step.cols;
  if (axis + 2 == rank) return step.rows;
  return {};
}

// For each axis the labels of what is shown, or null.
void write_labels(JsonWriter& json, const Step& step, const std::vector<Range>& slice) {
  bool any = false;
  for (std::size_t axis = 0; axis < slice.size(); ++axis) {
    any = any || !labels_of(step, axis).empty();
  }
  if (!any) return;
  json.key("labels").array([&] {
    for (std::size_t axis = 0; axis < slice.size(); ++axis) {
      const std::span<const std::string> labels = labels_of(step, axis);
      if (labels.empty()) {
        json.value_as_written("null");
        continue;
      }
      json.array([&] {
        for (std::int64_t i = slice[axis].begin; i < slice[axis].end; ++i) {
          const auto n = static_cast<std::size_t>(i);
          json.value(n < labels.size() ? labels[n] : fmt::format("{}", i));
        }
      });
    }
  });
}

void write_step(JsonWriter& json, const Explanation& explanation, const Step& step,
                const WriteOptions& options) {
  const std::vector<Range> slice = select_part(step, options.selection);
  const std::vector<Dims> expanded = entries_of(explanation, step, options);
  std::vector<std::int64_t> index;
  json.object([&] {
    json.member("name", step.name);
    json.member("title", title_of(step, options.language));
    json.member("formula", step.formula);
    json.member("meaning", meaning_of(step, options.language));
    json.key("axes").list(step.axes);
    json.key("shape").list(step.value->shape());
    json.key("slice").array([&] {
      for (const Range& range : slice) json.list(std::array{range.begin, range.end});
    });
    write_labels(json, step, slice);
    json.key("values");
    write_nested(json, step, slice, index);
    if (expanded.empty()) return;
    json.key("expansions").array([&] {
      for (const Dims& entry : expanded) write_expansion(json, step, entry);
    });
  });
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
  JsonWriter json(1);
  json.object([&] {
    json.member("block", explanation.block);
    json.member("title", message(language, explanation.text + ".title"));
    json.member("intro", message(language, explanation.text + ".intro"));
    json.member("language", code_of(language));
    json.key("steps").array([&] {
      for (const Step& step : explanation.steps) write_step(json, explanation, step, options);
    });
    json.key("remarks").array([&] {
      for (const Remark& remark : explanation.remarks) {
        json.object([&] {
          json.member("step", remark.step);
          json.member("text", message(language, remark.text, remark.arguments));
        });
      }
    });
  });
  return json.text() + "\n";
}

std::string write_csv(const Explanation& explanation, const WriteOptions& options) {
  check_selection(explanation, options.selection);
  std::string out = "step,title,formula,shape,index,value,row,column\r\n";
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
    const Page page(step);
    for (bool more = true; more;) {
      const auto [row, col] = place_of(step, index);
      out += fmt::format("{},{},{},{},{}\r\n", head, csv_field(to_string(index)),
                         shortest(step.value->view().at(index), step.value->dtype()),
                         page.has_row_labels() ? csv_field(page.row_label(row)) : "",
                         page.has_col_labels() ? csv_field(page.col_label(col)) : "");
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
