#include "cli/summary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/text.h"

namespace qkv::cli {

Summary::Summary(const OutputFile& file, const TensorView& result, double milliseconds)
    : path_(file.path()),
      dtype_(name_of(result.dtype())),
      shape_(result.shape()),
      milliseconds_(milliseconds),
      stream_(file.is_stream()) {}

void Summary::print(bool json, Context& context) const {
  std::ostream& out = stream_ ? context.err : context.out;
  if (!json) {
    out << fmt::format("{}: {} {}", printable(path_), dtype_, to_string(shape_));
    for (const Fact& fact : facts_) out << fmt::format(", {} {}", fact.key, printable(fact.value));
    out << fmt::format(", {:.1f} ms\n", milliseconds_);
    return;
  }
  nlohmann::ordered_json object;
  for (const Fact& fact : facts_) {
    if (fact.is_number) {
      object[fact.key] = std::stoll(fact.value);
    } else {
      object[fact.key] = fact.value;
    }
  }
  object["output"] = {
      {"file", path_}, {"dtype", dtype_}, {"shape", std::vector(shape_.begin(), shape_.end())}};
  object["milliseconds"] = milliseconds_;
  out << to_json_text(object) << '\n';
}

}  // namespace qkv::cli
