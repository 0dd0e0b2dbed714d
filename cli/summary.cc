#include "cli/summary.h"

#include <fmt/format.h>

#include "base/json.h"
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
  JsonWriter writer(2);
  writer.object([&] {
    for (const Fact& fact : facts_) {
      writer.key(fact.key).value_as_written(fact.is_number ? fact.value : json_string(fact.value));
    }
    writer.key("output").object([&] {
      writer.member("file", path_);
      writer.member("dtype", dtype_);
      writer.key("shape").list(shape_);
    });
    writer.member("milliseconds", milliseconds_);
  });
  out << writer.text() << '\n';
}

}  // namespace qkv::cli
