#include "explain/writers/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::int64_t kSmall = 12;     // extents up to this are shown whole
constexpr std::int64_t kFirstRows = 6;  // of larger ones
constexpr std::int64_t kFirstCols = 8;
constexpr std::int64_t kManyHeads = 4;

[[noreturn]] void refuse(std::string_view subject, std::string_view expected,
                         std::string_view found) {
  throw Error(ErrorKind::value, "explain", subject, expected, found);
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool is_head_axis(const std::string& axis) { return axis == "heads" || axis == "h"; }

// The range of an axis of `extent` under what was asked for, or `first` entries if it is large. A
// step that has nothing of what was asked for is shown as if nothing was.
Range clip(const std::optional<Range>& asked, std::int64_t extent, std::int64_t first, bool full) {
  if (!asked || asked->begin >= extent) {
    return {0, full || extent <= kSmall ? extent : std::min(extent, first)};
  }
  return {asked->begin, asked->end < 0 ? extent : std::min(asked->end, extent)};
}

}  // namespace

bool is_image(const Step& step) {
  const auto n = step.axes.size();
  return n == 4 && !step.planes && step.axes[n - 2] == "H" && step.axes[n - 1] == "W";
}

Range parse_range(std::string_view text, std::string_view option) {
  if (text == "all") return {0, -1};
  const auto colon = text.find(':');
  const std::string_view left = text.substr(0, colon);
  const std::string_view right = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  const auto begin = left.empty() && colon != std::string_view::npos ? 0 : parse_number(left);
  std::optional<std::int64_t> end = -1;
  if (colon == std::string_view::npos) {
    end = begin ? std::optional(*begin + 1) : std::nullopt;
  } else if (!right.empty()) {
    end = parse_number(right);
  }
  if (!begin || !end || (*end >= 0 && *end <= *begin)) {
    refuse(option, "a range like 3, 2:5, :5, 2: or all", fmt::format("\"{}\"", text));
  }
  return {*begin, *end};
}

Page::Page(const Step& step) {
  const Dims& shape = step.value->shape();
  rank_ = shape.rank();
  image_ = is_image(step);
  turned_ = image_ || step.tokens_last;
  if (image_) {
    lead_ = 1;
    width_ = shape[3];
    rows_ = shape[2] * shape[3];
    cols_ = shape[1];
    col_labels_ = step.channels;
    return;
  }
  lead_ = std::max(rank_ - 2, 0);
  if (rank_ >= 1) cols_ = shape[-1];
  if (rank_ >= 2) rows_ = shape[-2];
  row_labels_ = step.rows;
  col_labels_ = step.cols;
  if (turned_) {
    std::swap(rows_, cols_);
    std::swap(row_labels_, col_labels_);
  }
}

Dims Page::index(const std::vector<std::int64_t>& lead, std::int64_t row, std::int64_t col) const {
  Dims result{std::span<const std::int64_t>(lead)};
  if (image_) {
    result.push_back(col);
    result.push_back(row / width_);
    result.push_back(row % width_);
    return result;
  }
  if (turned_) std::swap(row, col);
  if (rank_ >= 2) result.push_back(row);
  if (rank_ >= 1) result.push_back(col);
  return result;
}

std::string Page::row_label(std::int64_t row) const {
  const auto n = static_cast<std::size_t>(row);
  return n < row_labels_.size() ? row_labels_[n] : fmt::format("{}{}", image_ ? "p" : "", row);
}

std::string Page::col_label(std::int64_t col) const {
  const auto n = static_cast<std::size_t>(col);
  return n < col_labels_.size() ? col_labels_[n] : fmt::format("{}{}", image_ ? "c" : "", col);
}

PagePart page_part(const Step& step, const Selection& selection) {
  const Page page(step);
  PagePart part;
  for (int axis = 0; axis < page.lead_count(); ++axis) {
    const std::string& name = step.axes[static_cast<std::size_t>(axis)];
    const std::int64_t extent = step.value->dim(axis);
    const bool head = is_head_axis(name);
    const auto& asked = head ? selection.head : selection.batch;
    if (asked && (head || name == "B")) {
      if (*asked < 0 || *asked >= extent) {
        refuse(head ? "--head" : "--batch", fmt::format("below {} ({})", extent, step.name),
               fmt::format("{}", *asked));
      }
      part.lead.push_back({*asked, *asked + 1});
    } else {
      const std::int64_t most = name == "B" ? 1 : kManyHeads;
      part.lead.push_back({0, selection.full || extent <= most ? extent : 1});
    }
  }
  part.rows = clip(selection.rows, page.row_count(), kFirstRows, selection.full);
  part.cols = clip(selection.cols, page.col_count(), kFirstCols, selection.full);
  return part;
}

void check_selection(const Explanation& explanation, const Selection& selection) {
  std::int64_t rows = 0, cols = 0;
  for (const Step& step : explanation.steps) {
    const Page page(step);
    rows = std::max(rows, page.row_count());
    cols = std::max(cols, page.col_count());
  }
  const auto check = [](std::string_view option, const std::optional<Range>& asked,
                        std::int64_t extent) {
    if (!asked || asked->begin < extent || extent == 0) return;
    refuse(option, fmt::format("a range that begins below {}", extent),
           fmt::format("{}", asked->begin));
  };
  check("--rows", selection.rows, rows);
  check("--cols", selection.cols, cols);
}

std::vector<Range> select_part(const Step& step, const Selection& selection) {
  const Page page(step);
  const PagePart part = page_part(step, selection);
  std::vector<Range> result = part.lead;
  if (is_image(step)) {
    // Pixels are shown by number; a part of them is whole lines of the image in the data.
    const std::int64_t width = step.value->dim(3);
    result.push_back(part.cols);
    result.push_back({part.rows.begin / std::max<std::int64_t>(width, 1),
                      (part.rows.end + width - 1) / std::max<std::int64_t>(width, 1)});
    result.push_back({0, width});
    return result;
  }
  const Range first = page.turned() ? part.cols : part.rows;
  const Range second = page.turned() ? part.rows : part.cols;
  if (step.value->shape().rank() >= 2) result.push_back(first);
  if (step.value->shape().rank() >= 1) result.push_back(second);
  return result;
}

Entry parse_entry(std::string_view text, const Explanation& explanation,
                  const Selection& selection) {
  const auto open = text.find('[');
  const std::string_view name = text.substr(0, open);
  const Step* step = explanation.find(name);
  if (step == nullptr) {
    std::vector<std::string_view> names;
    for (const Step& s : explanation.steps) names.push_back(s.name);
    refuse("--expand", fmt::format("an entry of {}", fmt::join(names, ", ")),
           fmt::format("\"{}\"", text));
  }
  std::vector<std::int64_t> numbers;
  bool right = open != std::string_view::npos && text.back() == ']';
  if (right) {
    std::string_view list = text.substr(open + 1, text.size() - open - 2);
    while (right) {
      const auto comma = list.find(',');
      std::string_view each = list.substr(0, comma);
      while (!each.empty() && each.front() == ' ') each.remove_prefix(1);
      const auto number = parse_number(each);
      right = number.has_value();
      if (right) numbers.push_back(*number);
      if (comma == std::string_view::npos) break;
      list.remove_prefix(comma + 1);
    }
  }
  const int rank = step->value->shape().rank();
  Dims index;
  if (right && static_cast<int>(numbers.size()) == rank) {
    index = Dims(std::span<const std::int64_t>(numbers));
  } else if (right && numbers.size() == 2) {
    const Page page(*step);
    std::vector<std::int64_t> lead;
    for (const Range& r : page_part(*step, selection).lead) lead.push_back(r.begin);
    right = numbers[0] < page.row_count() && numbers[1] < page.col_count();
    if (right) index = page.index(lead, numbers[0], numbers[1]);
  } else {
    right = false;
  }
  for (int i = 0; right && i < rank; ++i) right = index[i] < step->value->dim(i);
  if (!right) {
    const Page page(*step);
    refuse("--expand",
           fmt::format(
               "{0}[row,column] within {1}×{2} as printed, or {0}[…] with {3} numbers within {4}",
               name, page.row_count(), page.col_count(), rank, to_string(step->value->shape())),
           fmt::format("\"{}\"", text));
  }
  return {std::string(name), index};
}

std::pair<std::int64_t, std::int64_t> place_of(const Step& step, const Dims& index) {
  const int rank = index.rank();
  if (is_image(step)) return {index[2] * step.value->dim(3) + index[3], index[1]};
  const std::int64_t row = rank < 2 ? 0 : index[-2], col = rank < 1 ? 0 : index[-1];
  return step.tokens_last ? std::pair(col, row) : std::pair(row, col);
}

std::string entry_name(const Step& step, const Dims& index) {
  if (index.rank() < 2) return fmt::format("{}{}", step.name, to_string(index));
  const auto [row, col] = place_of(step, index);
  std::string which;  // of several matrices
  for (int axis = 0; axis < Page(step).lead_count(); ++axis) {
    if (step.value->dim(axis) == 1) continue;
    which += fmt::format("{}{} = {}", which.empty() ? "" : ", ",
                         step.axes[static_cast<std::size_t>(axis)], index[axis]);
  }
  return fmt::format("{}[{},{}]{}", step.name, row, col,
                     which.empty() ? "" : fmt::format(" ({})", which));
}

}  // namespace qkv
