// qkv explain from the command line: what it takes, what it refuses, and in which language.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cli/command.h"
#include "cli/language.h"
#include "cli/program.h"
#include "qkv/npy.h"
#include "qkv/safetensors.h"

namespace qkv::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Outcome {
  Status status;
  std::string out, err;
};

Outcome explain(std::vector<std::string> words) {
  words.insert(words.begin(), "explain");
  std::ostringstream out, err;
  Context context{.out = out, .err = err};
  const Status status = run_program(words, context);
  return {status, out.str(), err.str()};
}

class CliExplain : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "qkv-explain-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A file of the numbers 0, 0.1, 0.2, …
  std::string npy(const std::string& name, const Dims& shape) {
    Tensor tensor(DType::f32, shape);
    float next = 0;
    for (float& x : tensor.as<float>()) x = next += 0.1f;
    save_npy(folder_ / name, tensor);
    return (folder_ / name).string();
  }

  void expect_refused(const std::vector<std::string>& words, const std::string& says) {
    const Outcome outcome = explain(words);
    EXPECT_EQ(outcome.status, Status::usage);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(says));
  }

  std::filesystem::path folder_;
};

TEST_F(CliExplain, ShowsAnExample) {
  const Outcome outcome =
      explain({"pixels", "--lang", "en", "--rows", "0:2", "--expand", "query[0,1]"});
  EXPECT_EQ(outcome.status, Status::ok) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("query[0,1] = 1·0 + 0·0 + 1·1 + 2·0 = 1\n"));
  EXPECT_THAT(outcome.out, HasSubstr("rows 0–1 of 4"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
}

TEST_F(CliExplain, ShowsOwnMatricesAndBlocks) {
  const std::string q = npy("q.npy", {2, 4}), k = npy("k.npy", {3, 4});
  const Outcome bare = explain({"--query", q, "--key", k, "--value", k, "--causal", "bottom_right",
                                "--tokens", "a,b", "--format", "csv"});
  EXPECT_EQ(bare.status, Status::ok) << bare.err;
  EXPECT_THAT(bare.out, HasSubstr("\"masked\",\"Masked scores\",\"masked = scaled + mask\","
                                  "\"[1, 1, 2, 3]\",\"[0, 0, 0, 2]\",-inf,\"a\",\r\n"));

  Tensor qkv(DType::f32, {12, 4}), proj(DType::f32, {4, 4});
  const std::string weights = (folder_ / "w.safetensors").string();
  save_safetensors(weights, {{"attn.qkv.weight", qkv}, {"attn.proj.weight", proj}});
  const Outcome vit = explain({"--block", "vit", "--weights", weights, "--heads", "2", "--input", q,
                               "--format", "json", "--lang", "ko"});
  EXPECT_EQ(vit.status, Status::ok) << vit.err;
  EXPECT_THAT(vit.out, HasSubstr("\"name\": \"w_output\""));
}

TEST_F(CliExplain, RefusesWhatItWouldHaveToIgnore) {
  const std::string q = npy("q.npy", {2, 4});
  expect_refused({}, "EXAMPLE");
  expect_refused({"pixels", "--block", "vit"}, "give one of");
  expect_refused({"pixels", "--causal", "true"}, "has its own input");
  expect_refused({"pixels", "--input", q}, "has its own input");
  expect_refused({"pixels", "--tokens", "a,b,c,d"}, "has its own input");
  expect_refused({"pixels", "--heads", "2"}, "--heads: example 'pixels'");
  expect_refused({"pixels", "--cols", "99"}, "--cols");
  expect_refused({"--query", q, "--key", q, "--value", q, "--tokens", "a,,c"}, "(field 2)");
  expect_refused({"--query", q, "--key", q, "--value", q, "--tokens", "a,b,c"}, "2 names, found 3");
  expect_refused({"--query", q, "--key", q}, "go together");
}

TEST(CliLanguage, IsTheFlagsOrTheEnvironments) {
  EXPECT_EQ(language_for("zh"), Language::zh);
  const char* before = std::getenv("LC_ALL");
  const std::string kept = before == nullptr ? "" : before;
  setenv("LC_ALL", "ko_KR.UTF-8", 1);
  EXPECT_EQ(language_for(""), Language::ko);
  EXPECT_EQ(language_for("vi"), Language::vi);
  setenv("LC_ALL", "C", 1);
  EXPECT_EQ(language_for(""), Language::en);
  if (before == nullptr) {
    unsetenv("LC_ALL");
  } else {
    setenv("LC_ALL", kept.c_str(), 1);
  }
}

}  // namespace
}  // namespace qkv::cli
