#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/json.h"
#include "io/bytes.h"
#include "io/file_writer.h"
#include "io/report.h"
#include "io/safetensors_header.h"
#include "qkv/safetensors.h"

namespace qkv {
namespace {

using io::in_quotes;
using io::refuse;

constexpr std::size_t kLongestHeader = 100'000'000;

void check_text(std::string_view text, std::string_view subject, std::string_view where) {
  if (!io::is_utf8(text)) refuse(where, subject, "text in UTF-8", in_quotes(text));
}

void check_tensors(const std::vector<NamedTensor>& tensors, std::string_view where) {
  std::unordered_set<std::string_view> seen;
  for (const NamedTensor& tensor : tensors) {
    check_text(tensor.name, "name of a tensor", where);
    if (tensor.name == "__metadata__") {
      refuse(where, "name of a tensor", "any but the reserved one", in_quotes(tensor.name));
    }
    if (!seen.insert(tensor.name).second) {
      refuse(where, "names of the tensors", "each once",
             fmt::format("{} twice", in_quotes(tensor.name)));
    }
    if (!tensor.view.has_value()) refuse(where, in_quotes(tensor.name), "a tensor", "none");
  }
}

// The header's text, padded so that the data after it is aligned to 8 bytes.
std::string header_for(const std::vector<const NamedTensor*>& tensors,
                       const std::map<std::string, std::string>& metadata, std::string_view where) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += json_string(key) + ":" + json_string(value) + ",";
    }
    text.back() = '}';
    text += ',';
  }
  std::int64_t offset = 0;
  for (const NamedTensor* tensor : tensors) {
    const TensorView& view = tensor->view;
    const auto bytes =
        io::checked_product(view.shape(), static_cast<std::int64_t>(size_of(view.dtype())));
    const auto end = bytes ? checked_add(offset, *bytes) : bytes;
    if (!end) {
      refuse(where, in_quotes(tensor->name), "fewer than 2^63 bytes", to_string(view.shape()));
    }
    text += fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}},)",
                        json_string(tensor->name), io::safetensors_type(view.dtype()).name,
                        to_string(view.shape()), offset, *end);
    offset = *end;
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kLongestHeader) {
    refuse(where, "header", fmt::format("at most {} bytes", kLongestHeader),
           fmt::format("{}", text.size()));
  }
  return text;
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::string where = path.string();
  check_tensors(tensors, where);
  for (const auto& [key, value] : metadata) {
    check_text(key, "key of the metadata", where);
    check_text(value, fmt::format("metadata {}", in_quotes(key)), where);
  }
  std::vector<const NamedTensor*> order;
  order.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_of(a->view.dtype()) > size_of(b->view.dtype());
  });
  const std::string header = header_for(order, metadata, where);
  const std::uint64_t length = header.size();

  io::FileWriter out(path);
  out.write(std::as_bytes(std::span(&length, 1)));
  out.write(io::as_bytes(header));
  for (const NamedTensor* tensor : order) out.write(tensor->view);
  out.commit();
}

}  // namespace qkv
