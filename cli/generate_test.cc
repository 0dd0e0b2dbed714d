#include <gmock/gmock.h>

#include <cmath>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/utf8.h"
#include "cli/command.h"
#include "cli/program.h"
#include "explain/writers/width.h"
#include "io/tokenizer/test_tokenizers.h"
#include "tests/gpt_folder.h"

namespace qkv::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  Status status;
  std::string out, err;
};

class CliGenerate : public io::FileTest {
 protected:
  Outcome qkv(std::vector<std::string> arguments) const {
    std::ostringstream out, err;
    Context context{.out = out, .err = err};
    const Status status = run_program(arguments, context);
    return {status, out.str(), err.str()};
  }
  Outcome generate(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"generate", directory_.string()});
    return qkv(arguments);
  }
  void expect_usage(const Outcome& outcome, const std::string& fragment) const {
    EXPECT_EQ(outcome.status, Status::usage) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, AllOf(StartsWith("qkv: "), HasSubstr(fragment)));
  }
  // That the rows of a step's first table are equally wide.
  void expect_aligned(const std::string& text, const std::string& step) const {
    std::istringstream lines(text.substr(text.find(step)));
    std::size_t width = 0, rows = 0;
    for (std::string line; std::getline(lines, line) && !line.empty();) {
      if (line.find("0.0000") == line.npos) {
        if (rows > 0) break;
        continue;
      }
      if (rows++ == 0) width = display_width(line);
      EXPECT_EQ(display_width(line), width) << line;
    }
    EXPECT_GT(rows, 3u);
  }
  // A small Llama; with a tokenizer, its vocabulary is that of the tokenizer.
  void save_ids() const { testing::small_llama().save(directory_); }
  void save_text(const io::TokenizerText& tokenizer = io::small_llama3()) {
    testing::TestGpt gpt = testing::small_llama();
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
      gpt.checkpoint.remove(name);
    }
    gpt.add("embed_tokens.weight", {270, 20}, -1, 1);
    gpt.add("lm_head.weight", {270, 20}, -1, 1);
    gpt.config.replace(gpt.config.find("\"vocab_size\": 31"), 16, "\"vocab_size\": 270");
    gpt.save(directory_);
    file("tokenizer.json", tokenizer.json());
  }
};

TEST_F(CliGenerate, IdsStreamAndTheSummaryIsOnStderr) {
  save_ids();
  const Outcome a = generate({"--tokens", "3,30,0", "--max-tokens", "5", "--temperature", "0"});
  ASSERT_EQ(a.status, Status::ok) << a.err;
  EXPECT_THAT(a.out, ::testing::MatchesRegex("([0-9]+ ){4}[0-9]+\n"));
  EXPECT_THAT(a.err, AllOf(HasSubstr("3 tokens of prompt"), HasSubstr("5 generated"),
                           HasSubstr("tokens/s"), HasSubstr("cache"), HasSubstr("max_tokens")));
  const Outcome again = generate({"--tokens", "3,30,0", "--max-tokens", "5", "--temperature", "0"});
  EXPECT_EQ(a.out, again.out);
  const Outcome one = generate({"--tokens", "3,30,0", "--max-tokens", "9", "--seed", "1"});
  const Outcome two = generate({"--tokens", "3,30,0", "--max-tokens", "9", "--seed", "2"});
  EXPECT_NE(one.out, two.out);
  const Outcome full = generate({"--tokens", "3,30,0", "--cache", "int8", "--top-k", "5"});
  EXPECT_THAT(full.err, AllOf(HasSubstr("20 of 20 tokens, int8"), HasSubstr("context")));
  const Outcome most = generate({"--tokens", "3,30,0", "--max-tokens", "9223372036854775807"});
  ASSERT_EQ(most.status, Status::ok) << most.err;
  EXPECT_THAT(most.err, AllOf(HasSubstr("20 of 20 tokens"), HasSubstr("context")));
}

// The shell sees that Ctrl-C ended it, and the user what there was until then.
TEST_F(CliGenerate, CtrlCEndsItAfterTheSummary) {
  save_ids();
  class Interrupting : public std::stringbuf {
    int sync() override {
      if (!std::exchange(done_, true)) ::raise(SIGINT);
      return 0;
    }
    bool done_ = false;
  };
  const auto interrupted = [&] {
    Interrupting buffer;
    std::ostream out(&buffer);
    Context context{.out = out, .err = std::cerr};
    run_program({"generate", directory_.string(), "--tokens", "3,30,0", "--max-tokens", "1000000"},
                context);
  };
  EXPECT_EXIT(interrupted(), ::testing::KilledBySignal(SIGINT), "1 generated.*interrupted");
}

TEST_F(CliGenerate, JsonIsAnObjectALine) {
  save_text();
  const Outcome outcome = generate({"--prompt", "hello", "--max-tokens", "4", "--json"});
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  std::istringstream lines(outcome.out);
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  ASSERT_GE(objects.size(), 2u);
  EXPECT_TRUE(objects.front().contains("token"));
  EXPECT_EQ(objects.back()["prompt_tokens"], 2);  // <|end|> stands in front
  EXPECT_LE(objects.back()["tokens"], 4);
  EXPECT_TRUE(objects.back().contains("tokens_per_second"));
}

TEST_F(CliGenerate, SeveralTextsStopIt) {
  save_text();
  const std::vector<std::string> greedy = {"--prompt", "hello",         "--max-tokens",
                                           "8",        "--temperature", "0"};
  const std::string text = generate(greedy).out;
  ASSERT_GT(text.size(), 2u);
  std::vector<std::string> second = greedy;
  second.insert(second.end(), {"--stop", "no such text", "--stop", text.substr(0, 1)});
  const Outcome stopped = generate(second);
  EXPECT_THAT(stopped.err, HasSubstr("stop_text"));
  EXPECT_EQ(stopped.out, "\n");
}

TEST_F(CliGenerate, AnEmptyPromptIsWhatTheTokenizerMakesOfIt) {
  save_text();
  const Outcome begun = generate({"--prompt", "", "--max-tokens", "3"});
  EXPECT_EQ(begun.status, Status::ok) << begun.err;
  EXPECT_THAT(begun.err, StartsWith("qkv: 1 token of prompt"));  // <|end|>
  const Outcome explained = qkv({"explain", directory_.string(), "--prompt", ""});
  EXPECT_EQ(explained.status, Status::ok) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("<|end|>"));
  expect_usage(generate({"--prompt", "", "--tokens", "1"}), "give one of");
  save_text(io::small_byte_level());
  for (const char* command : {"generate", "explain"}) {
    expect_usage(qkv({command, directory_.string(), "--prompt", ""}), "found an empty one");
    expect_usage(qkv({command, directory_.string()}), "give one of");
  }
}

TEST_F(CliGenerate, TokensAreReadAsTheyWereTyped) {
  save_ids();
  for (const char* command : {"generate", "explain"}) {
    const auto refused = [&](const char* tokens, const char* fragment) {
      expect_usage(qkv({command, directory_.string(), "--tokens", tokens}), fragment);
    };
    refused("", "found one in '' (field 1)");
    refused("0,,1", "found one in '0,,1' (field 2)");
    refused("0,1,", "(field 3)");
    refused("99999999999999999999", "in [0, 31), found 99999999999999999999");
    refused("1,-2", "found -2");
    refused("1,0x2", "found '0x2'");
    refused("-", "found '-'");
  }
  EXPECT_THAT(generate({"--tokens", "1", "2,3", "--max-tokens", "1"}).err,
              StartsWith("qkv: 3 tokens of prompt"));
}

TEST_F(CliGenerate, TheSummarySaysWhatThereIsToSay) {
  save_ids();
  const Outcome one = generate({"--tokens", "3", "--max-tokens", "1"});
  EXPECT_THAT(one.err, AllOf(StartsWith("qkv: 1 token of prompt in "), HasSubstr("1 generated; "),
                             HasSubstr("cache 0.2 kB (1 of 2 tokens, f32)")));
  const Outcome json = generate({"--tokens", "3", "--max-tokens", "1", "--json"});
  EXPECT_THAT(json.out, HasSubstr("\"tokens_per_second\": null"));
  std::ostringstream out, err;
  out.setstate(std::ios::badbit);  // a full disk
  Context context{.out = out, .err = err};
  (void)run_program({"generate", directory_.string(), "--tokens", "3"}, context);
  EXPECT_THAT(err.str(), ::testing::EndsWith("; the output could not be written\n"));
}

TEST_F(CliGenerate, RefusesWhatDoesNotFit) {
  save_ids();
  expect_usage(generate({}), "--prompt");
  expect_usage(generate({"--prompt", "x", "--tokens", "1"}), "--prompt");
  expect_usage(generate({"--prompt", "x"}), "no tokenizer");
  expect_usage(generate({"--tokens", "31"}), "31");
  expect_usage(generate({"--tokens", "a"}), "--tokens");
  expect_usage(generate({"--tokens", "1", "--temperature", "-1"}), "temperature");
  expect_usage(generate({"--tokens", "1", "--top-p", "0"}), "top_p");
  expect_usage(generate({"--tokens", "1", "--stop", "x"}), "tokenizer");
  expect_usage(generate({"--tokens", "1", "--cache", "f8"}), "--cache");
  const Outcome none = qkv({"generate", path("none").string(), "--tokens", "1"});
  EXPECT_EQ(none.status, Status::system);
  EXPECT_THAT(none.err, HasSubstr("config.json"));
}

TEST_F(CliGenerate, ExplainShowsALayerOfTheModel) {
  save_text();
  const auto explain = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"explain", directory_.string()});
    return qkv(arguments);
  };
  const Outcome text = explain({"--prompt", "hello world", "--layer", "1", "--head", "2"});
  ASSERT_EQ(text.status, Status::ok) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("<|end|>"), HasSubstr("hello"), HasSubstr("·wor"),
                              HasSubstr("No key came from the cache")));
  const Outcome cached = explain({"--prompt", "hello world", "--cached", "3", "--lang", "ko"});
  ASSERT_EQ(cached.status, Status::ok) << cached.err;
  EXPECT_THAT(cached.out, AllOf(HasSubstr("‹hello›"), HasSubstr("캐시에서")));
  // Tokens that are parts of a character.
  for (const char* format : {"text", "markdown", "json", "csv"}) {
    const Outcome parts = explain({"--prompt", "à hello 😀", "--format", format, "--full"});
    ASSERT_EQ(parts.status, Status::ok) << parts.err;
    for (std::string_view rest = parts.out; !rest.empty();) {
      const std::size_t length = utf8_sequence(rest);
      ASSERT_GT(length, 0u) << format << ": " << rest.substr(0, 40);
      rest.remove_prefix(length);
    }
    EXPECT_THAT(parts.out, HasSubstr("\\x98")) << format;
    EXPECT_THAT(parts.out, HasSubstr("hello")) << format;
    if (format == std::string("text")) expect_aligned(parts.out, "(weights)");
  }
  const Outcome json = explain({"--tokens", "1,2,3", "--format", "json"});
  ASSERT_EQ(json.status, Status::ok) << json.err;
  EXPECT_EQ(nlohmann::json::parse(json.out)["block"], "decoder");
  expect_usage(explain({}), "--prompt");
  expect_usage(explain({"--prompt", "x", "--layer", "9"}), "layer");
  for (const char* flag : {"--input", "--mask", "--causal", "--heads", "--layout", "--norm-eps",
                           "--attn-ratio", "--weights-prefix", "--kernel", "--target", "--scale"}) {
    const std::string value = flag == std::string("--causal")   ? "none"
                              : flag == std::string("--layout") ? "bhtd"
                              : flag == std::string("--kernel") ? "fused"
                                                                : "1";
    expect_usage(explain({"--prompt", "x", flag, value}), std::string(flag) + ": a model takes");
  }
  EXPECT_EQ(explain({"--prompt", "x", "--threads", "1", "--digits", "2"}).status, Status::ok);
  expect_usage(qkv({"explain", "pixels", "--layer", "1"}), "folder");
  expect_usage(qkv({"explain", "pixel"}), "did you mean 'pixels'");
}

}  // namespace
}  // namespace qkv::cli
