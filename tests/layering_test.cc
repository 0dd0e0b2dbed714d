// The arrows between the folders, checked by reading #include lines:
//   base → kernels → ops → blocks → models → cli, python
//   base → io → models        blocks → explain → cli, python, web
// A folder may include from those before it on its arrows, and from itself. Public headers include
// public headers and the standard library, nothing else. A header has no #if of an instruction set.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
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

std::string line_fault(const std::string& path, const std::string& line) {
  static const std::regex include(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  static const std::regex instruction_set(
      R"re(^\s*#\s*(if|ifdef|ifndef|elif).*\b__(AVX|SSE|FMA__|F16C__|BMI|ARM_NEON|ARM_FEATURE|riscv_v))re");
  static const std::regex intrinsics(R"re([a-z0-9]*intrin\.h|arm_(neon|sve)\.h)re");
  const bool is_header = path.ends_with(".h");

  if (is_header && std::regex_search(line, instruction_set)) {
    return "a header has no #if of an instruction set";
  }
  std::smatch match;
  if (!std::regex_search(line, match, include)) return "";
  const bool quoted = match[1] == "\"";
  const std::string target = match[2];
  if (is_header && std::regex_match(target, intrinsics)) return "no vector types in a header";
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
