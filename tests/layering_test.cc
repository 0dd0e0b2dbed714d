// The arrows between the folders, checked by reading #include lines:
//   base → kernels → ops → blocks → models → cli, python
//   base → io → models        blocks → explain → cli, python, web
// A folder may include from those before it on its arrows, and from itself. Public headers include
// public headers and the standard library, nothing else. A header has no #if of an instruction set.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::map<std::string, std::set<std::string>>& layers_below() {
  static const std::map<std::string, std::set<std::string>> below = {
      {"base", {}},
      {"kernels", {"base"}},
      {"ops", {"base", "kernels"}},
      {"blocks", {"base", "kernels", "ops"}},
      {"io", {"base"}},
      {"explain", {"base", "kernels", "ops", "blocks"}},
      {"models", {"base", "kernels", "ops", "blocks", "io"}},
      {"cli", {"base", "kernels", "ops", "blocks", "io", "explain", "models"}},
  };
  return below;
}

std::string first_folder(const std::string& path) { return path.substr(0, path.find('/')); }

bool is_test_or_bench(const std::string& path) {
  return path.ends_with("_test.cc") || path.ends_with("_bench.cc");
}

// The layer of a file: src/<layer>/… or cli/…; empty for a file of no layer.
std::string layer_of(const std::string& path) {
  if (path.starts_with("src/")) return first_folder(path.substr(4));
  if (path.starts_with("cli/")) return "cli";
  return "";
}

// What is wrong with `#include "target"` in a file under src/ or cli/; empty when nothing is.
std::string quoted_include_fault(const std::string& path, const std::string& target) {
  const std::string layer = layer_of(path);
  const std::string folder = first_folder(target);
  if (folder == "qkv" || folder == layer) return "";
  if (folder == "tests" && is_test_or_bench(path)) return "";
  if (!layers_below().contains(folder)) {
    return "\"" + target + "\" is no path from src/, include/ or the project's root";
  }
  if (!layers_below().contains(layer)) return "folder " + layer + " is in no layer";
  if (!layers_below().at(layer).contains(folder)) return layer + " may not include from " + folder;
  return "";
}

// What is wrong with an #include in a public header.
std::string public_include_fault(const std::string& target, bool quoted) {
  if (quoted) {
    return target.starts_with("qkv/") ? "" : "a public header may not include \"" + target + "\"";
  }
  // Headers of the standard library have no slash and no extension.
  return target.find_first_of("/.") == std::string::npos
             ? ""
             : "a public header may not include <" + target + ">";
}

// A preprocessor line, `# name rest`; the name is empty for any other line.
struct Directive {
  std::string name;
  std::string rest;
};

Directive directive_of(const std::string& line) {
  constexpr const char* blank = " \t";
  const std::size_t hash = line.find_first_not_of(blank);
  if (hash == std::string::npos || line[hash] != '#') return {};
  const std::size_t name = line.find_first_not_of(blank, hash + 1);
  if (name == std::string::npos) return {};
  const std::size_t end = std::min(line.find_first_of(" \t\"<(", name), line.size());
  const std::size_t rest = std::min(line.find_first_not_of(blank, end), line.size());
  return {line.substr(name, end - name), line.substr(rest)};
}

bool names_an_instruction_set(const Directive& directive) {
  if (!directive.name.starts_with("if") && !directive.name.starts_with("el")) return false;
  for (const char* macro : {"__AVX", "__SSE", "__FMA__", "__F16C__", "__BMI", "__ARM_NEON",
                            "__ARM_FEATURE", "__riscv_v"}) {
    if (directive.rest.find(macro) != std::string::npos) return true;
  }
  return false;
}

bool is_intrinsics_header(const std::string& target) {
  return target.ends_with("intrin.h") || target == "arm_neon.h" || target == "arm_sve.h";
}

// What is wrong with one line; empty when nothing is.
std::string line_fault(const std::string& path, const std::string& line) {
  const Directive directive = directive_of(line);
  const bool is_header = path.ends_with(".h");
  if (is_header && names_an_instruction_set(directive)) {
    return "a header has no #if of an instruction set";
  }
  if (directive.name != "include" || directive.rest.empty()) return "";
  const bool quoted = directive.rest[0] == '"';
  if (!quoted && directive.rest[0] != '<') return "";  // a macro
  const std::string target = directive.rest.substr(1, directive.rest.find_first_of("\">", 1) - 1);
  if (is_header && is_intrinsics_header(target)) return "no vector types in a header";
  if (path.starts_with("include/")) return public_include_fault(target, quoted);
  if (quoted) return quoted_include_fault(path, target);
  if (target == "iostream" && path.starts_with("src/") && !is_test_or_bench(path)) {
    return "the library never prints";
  }
  return "";
}

// Every fault of one file, as "path:line: fault". `path` is relative to the project's root.
std::vector<std::string> faults(const std::string& path, std::string_view text) {
  std::vector<std::string> found;
  std::istringstream stream{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const std::string fault = line_fault(path, line);
    if (!fault.empty()) found.push_back(path + ":" + std::to_string(number) + ": " + fault);
  }
  return found;
}

TEST(Layering, SourcesFollowTheArrows) {
  namespace fs = std::filesystem;
  const fs::path root = QKV_SOURCE_DIR;
  std::vector<std::string> found;
  int files = 0;
  for (const char* folder : {"include", "src", "cli"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (!path.ends_with(".h") && !path.ends_with(".cc") && !path.ends_with(".inc")) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      for (const std::string& fault : faults(path, text.str())) found.push_back(fault);
      ++files;
    }
  }
  EXPECT_THAT(found, IsEmpty());
  EXPECT_GE(files, 3) << "hardly a file was found under " << root;
}

// The checker itself: each kind of fault is caught, and what is allowed is not.

TEST(Layering, CatchesAnIncludeAgainstTheArrows) {
  EXPECT_THAT(faults("src/base/tensor.cc", "\n#include \"ops/attention.h\"\n"),
              ElementsAre("src/base/tensor.cc:2: base may not include from ops"));
  EXPECT_THAT(faults("src/io/npy.cc", "#include \"kernels/softmax/softmax.h\""),
              ElementsAre(HasSubstr("io may not include from kernels")));
  EXPECT_THAT(faults("src/blocks/vit.h", "  #  include \"io/npz.h\""),
              ElementsAre(HasSubstr("blocks may not include from io")));
  EXPECT_THAT(faults("src/models/gpt.cc", "#include \"explain/steps.h\""),
              ElementsAre(HasSubstr("models may not include from explain")));
  EXPECT_THAT(faults("src/models/gpt.cc", "#include \"cli/args.h\""),
              ElementsAre(HasSubstr("models may not include from cli")));
}

TEST(Layering, AllowsIncludesAlongTheArrows) {
  EXPECT_THAT(faults("src/ops/attention.cc",
                     "#include \"ops/attention.h\"\n#include \"base/error.h\"\n"
                     "#include \"kernels/attention/attention.h\"\n#include \"qkv/tensor.h\"\n"
                     "#include <vector>\n// #include \"models/gpt.h\"\n"),
              IsEmpty());
  EXPECT_THAT(faults("src/models/gpt.cc", "#include \"io/npz.h\"\n#include \"blocks/gpt.h\""),
              IsEmpty());
  EXPECT_THAT(faults("cli/explain.cc", "#include \"cli/args.h\"\n#include \"explain/steps.h\""),
              IsEmpty());
}

TEST(Layering, CatchesPathsThatStartElsewhere) {
  EXPECT_THAT(faults("src/ops/attention.cc", "#include \"attention.h\""),
              ElementsAre(HasSubstr("no path from src/")));
  EXPECT_THAT(faults("src/ops/attention.cc", "#include \"../base/error.h\""),
              ElementsAre(HasSubstr("no path from src/")));
  EXPECT_THAT(faults("src/ops/attention.cc", "#include \"tests/util.h\""),
              ElementsAre(HasSubstr("no path from src/")));
  EXPECT_THAT(faults("src/ops/attention_test.cc", "#include \"tests/util.h\""), IsEmpty());
  EXPECT_THAT(faults("src/misc/any.cc", "#include \"base/error.h\""),
              ElementsAre(HasSubstr("in no layer")));
}

TEST(Layering, CatchesPublicHeadersThatLeanOnAnythingPrivate) {
  EXPECT_THAT(faults("include/qkv/tensor.h", "#include \"base/buffer.h\""),
              ElementsAre(HasSubstr("a public header may not include \"base/buffer.h\"")));
  EXPECT_THAT(faults("include/qkv/error.h", "#include <fmt/format.h>"),
              ElementsAre(HasSubstr("a public header may not include <fmt/format.h>")));
  EXPECT_THAT(faults("include/qkv/io.h", "#include <zip.h>"),
              ElementsAre(HasSubstr("a public header may not include <zip.h>")));
  EXPECT_THAT(faults("include/qkv/qkv.h", "#include \"qkv/tensor.h\"\n#include <span>"), IsEmpty());
}

TEST(Layering, CatchesInstructionSetsInHeaders) {
  EXPECT_THAT(faults("src/kernels/softmax/softmax.h", "#if defined(__AVX2__)"),
              ElementsAre(HasSubstr("instruction set")));
  EXPECT_THAT(faults("include/qkv/tensor.h", "#ifdef __ARM_NEON"),
              ElementsAre(HasSubstr("instruction set")));
  EXPECT_THAT(faults("src/base/simd.h", "#include <immintrin.h>"),
              ElementsAre(HasSubstr("no vector types")));
  EXPECT_THAT(
      faults("src/kernels/softmax/softmax_simd.cc", "#ifdef __AVX2__\n#include <immintrin.h>"),
      IsEmpty());
}

TEST(Layering, CatchesALibraryThatPrints) {
  EXPECT_THAT(faults("src/explain/text.cc", "#include <iostream>"),
              ElementsAre(HasSubstr("never prints")));
  EXPECT_THAT(faults("cli/main.cc", "#include <iostream>"), IsEmpty());
}

}  // namespace
