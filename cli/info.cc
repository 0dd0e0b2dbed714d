#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "base/cpu.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/text.h"
#include "io/report.h"
#include "qkv/cpu.h"
#include "qkv/npy.h"
#include "qkv/npz.h"
#include "qkv/safetensors.h"
#include "qkv/threads.h"
#include "qkv/version.h"

namespace qkv::cli {
namespace {

constexpr const char* kThreads = QKV_THREADS_OPENMP ? "OpenMP" : "std::thread";

std::string feature_names(bool present) {
  std::string names;
  for (const CpuFeature& feature : cpu_info().features) {
    if (feature.present == present)
      names += fmt::format("{}{}", names.empty() ? "" : " ", feature.name);
  }
  return names.empty() ? "none" : names;
}

void print_machine(std::ostream& out) {
  const CpuInfo& cpu = cpu_info();
  const auto row = [&](std::string_view key, std::string_view value) {
    out << fmt::format("{:<10}{}\n", key, value);
  };
  out << "qkv " << version() << '\n';
  row("cpu", fmt::format("{} ({})", cpu.model.empty() ? "unknown" : printable(cpu.model),
                         cpu.architecture));
  row("has", feature_names(true));
  row("has not", feature_names(false));
  std::string caches;
  for (const CpuCache& cache : cpu.caches) {
    caches += fmt::format("{}{} {}", caches.empty() ? "" : ", ", cache.name,
                          human_bytes(static_cast<double>(cache.bytes)));
  }
  if (!caches.empty()) row("caches", caches);
  row("threads", fmt::format("{} ({})", num_threads(), kThreads));
  std::string kernels = "fused for";
  for (const SimdTarget target : simd_targets()) kernels += fmt::format(" {}", name_of(target));
  row("kernels", kernels + "; reference");
  row("npz", npz_supported() ? "yes" : "no (built without libzip)");
}

std::string machine_json() {
  const CpuInfo& cpu = cpu_info();
  JsonWriter json(2);
  json.object([&] {
    json.member("version", version());
    json.key("cpu").object([&] {
      json.member("model", cpu.model);
      json.member("architecture", cpu.architecture);
      json.key("features").object([&] {
        for (const CpuFeature& feature : cpu.features) json.member(feature.name, feature.present);
      });
      json.key("caches").object([&] {
        for (const CpuCache& cache : cpu.caches) json.member(cache.name, cache.bytes);
      });
    });
    json.key("threads").object([&] {
      json.member("count", num_threads());
      json.member("kind", kThreads);
    });
    json.key("kernels").array([&] {
      for (const SimdTarget target : simd_targets())
        json.value(fmt::format("fused {}", name_of(target)));
      json.value("reference");
    });
    json.member("npz", npz_supported());
  });
  return json.text();
}

// What a file says about one of its tensors.
struct Row {
  std::string name, dtype;
  Dims shape;
};

struct FileRows {
  std::string format;
  std::vector<Row> rows;
  std::map<std::string, std::string> metadata;
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

FileRows read_rows(const std::filesystem::path& path) {
  const auto row = [](const std::string& name, const TensorView& view) {
    return Row{name, std::string(name_of(view.dtype())), view.shape()};
  };
  const std::string extension = path.extension().string();
  FileRows found{extension.empty() ? "" : extension.substr(1), {}, {}};
  if (extension == ".npy") {
    found.rows.push_back(row("", load_npy(path).view));
  } else if (extension == ".npz") {
    const NpzFile file(path);
    for (const std::string& name : file.names())
      found.rows.push_back(row(name, file.read(name).view));
  } else if (extension == ".safetensors") {
    const SafetensorsFile file(path);
    for (const std::string& name : file.names()) {
      found.rows.push_back({name, lower(file.dtype_name(name)), file.shape(name)});
    }
    found.metadata = file.metadata();
  } else {
    throw UsageError(fmt::format("info: expected a file .npy, .npz or .safetensors, found {}",
                                 io::in_quotes(path.string())));
  }
  return found;
}

void print_file(const FileRows& file, std::ostream& out) {
  std::size_t name_width = 0, dtype_width = 0;
  for (const Row& row : file.rows) {
    name_width = std::max(name_width, printable(row.name).size());
    dtype_width = std::max(dtype_width, row.dtype.size());
  }
  if (name_width > 0) name_width += 2;
  std::int64_t elements = 0;
  for (const Row& row : file.rows) {
    elements += element_count(row.shape);
    out << fmt::format("{:<{}}{:<{}}{}\n", printable(row.name), name_width, row.dtype,
                       dtype_width + 2, to_string(row.shape));
  }
  for (const auto& [key, value] : file.metadata) {
    out << fmt::format("metadata {}: {}\n", printable(key), printable(value));
  }
  if (file.format != "npy") {
    out << fmt::format("{} tensor{}, {} elements\n", file.rows.size(),
                       file.rows.size() == 1 ? "" : "s", elements);
  }
}

std::string file_json(const FileRows& file, const std::string& path) {
  JsonWriter json(2);
  json.object([&] {
    json.member("file", path);
    json.member("format", file.format);
    json.key("tensors").array([&] {
      for (const Row& row : file.rows) {
        json.object([&] {
          if (file.format != "npy") json.member("name", row.name);
          json.member("dtype", row.dtype);
          json.key("shape").list(row.shape);
        });
      }
    });
    if (file.metadata.empty()) return;
    json.key("metadata").object([&] {
      for (const auto& [key, value] : file.metadata) json.member(key, value);
    });
  });
  return json.text();
}

}  // namespace

void add_info_command(Command& app, Context& context) {
  struct Arguments {
    std::string file;
    bool json = false;
  };
  auto args = std::make_shared<Arguments>();
  Command command = app.add_command("info", "version, CPU and threads; or the tensors of a file");
  command.option("FILE", args->file, "a .npy, .npz or .safetensors file").type_name("FILE");
  command.flag("--json", args->json, "the same for machines");
  command.footer(examples({"qkv info", "qkv info model.safetensors", "qkv info --json x.npz"}));
  command.action([args, &context] {
    if (args->file.empty()) {
      if (args->json) {
        context.out << machine_json() << '\n';
      } else {
        print_machine(context.out);
      }
      return;
    }
    const FileRows file = read_rows(args->file);
    if (args->json) {
      context.out << file_json(file, args->file) << '\n';
    } else {
      print_file(file, context.out);
    }
  });
}

}  // namespace qkv::cli
