#include "cli/program.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/suggest.h"
#include "cli/text.h"
#include "models/test_weights.h"
#include "qkv/attention.h"
#include "qkv/gpt.h"
#include "qkv/npy.h"
#include "qkv/transformer.h"

namespace qkv::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

struct Outcome {
  Status status;
  std::string out, err;
};

Outcome qkv(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  Context context{.out = out, .err = err};
  const Status status = run_program(arguments, context);
  return {status, out.str(), err.str()};
}

// Wrong usage: status 2, one line that has the fragment, nothing on stdout.
void expect_usage_error(const std::vector<std::string>& arguments, const std::string& fragment) {
  const Outcome outcome = qkv(arguments);
  EXPECT_EQ(outcome.status, Status::usage);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, AllOf(StartsWith("qkv: "), HasSubstr(fragment)));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "qkv-cli-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // A file of random numbers; returns its path.
  std::string npy(const std::string& name, const Dims& shape) {
    save_npy(path(name), inputs_.add(name, shape));
    return path(name);
  }

  std::filesystem::path folder_;
  Checkpoint inputs_;
};

std::vector<float> floats(const TensorView& view) {
  const Tensor dense = Tensor::copy_of(view, DType::f32);
  return {dense.as<float>().begin(), dense.as<float>().end()};
}

std::vector<float> floats(const std::string& path) { return floats(load_npy(path).view); }

// ---------------------------------------------------------------- the frame

TEST_F(Cli, UnknownWordsNameTheNearest) {
  expect_usage_error({}, "subcommand is required");
  expect_usage_error({"rum"}, "unknown command 'rum': did you mean 'run'?");
  expect_usage_error({"zzzzzz"}, "unknown command 'zzzzzz' (see");
  expect_usage_error({"--versoin"}, "did you mean '--version'?");
  expect_usage_error({"run", "--blok", "gpt"},
                     "run: unknown option '--blok': did you mean '--block'?");
  expect_usage_error({"run", "--blok=gpt"}, "did you mean '--block'?");
  expect_usage_error({"attention", "--quarry", "x"}, "did you mean '--query'?");
  expect_usage_error({"info", "a.npy", "b.npy"}, "b.npy");
  expect_usage_error({"run", "--block", "lstm"}, "lstm");
  expect_usage_error({"run"}, "required");
  expect_usage_error({"attention", "--threads", "-1"}, "threads");
  expect_usage_error({"attention", "--scale", "wide"}, "scale");
}

TEST_F(Cli, HelpHasExamplesAndStatuses) {
  const Outcome all = qkv({"--help"});
  EXPECT_EQ(all.status, Status::ok);
  EXPECT_THAT(all.out, AllOf(HasSubstr("Exit status"), HasSubstr("attention"), HasSubstr("141")));
  for (const char* command : {"run", "attention", "info", "completion"}) {
    const Outcome help = qkv({command, "--help"});
    EXPECT_EQ(help.status, Status::ok);
    EXPECT_THAT(help.out, AllOf(HasSubstr(std::string("qkv ") + command), HasSubstr("Examples:")));
    EXPECT_THAT(help.err, IsEmpty());
  }
  EXPECT_THAT(qkv({"--version"}).out, StartsWith("qkv "));
}

TEST_F(Cli, SuggestionsAreNear) {
  EXPECT_EQ(did_you_mean("atention", {"run", "attention"}), ": did you mean 'attention'?");
  EXPECT_EQ(did_you_mean("att", {"run", "attention"}), ": did you mean 'attention'?");
  EXPECT_EQ(did_you_mean("x", {"run", "attention"}), "");
  EXPECT_EQ(did_you_mean(std::string(100000, 'a'), {"run"}), "");
}

TEST_F(Cli, NamesCannotDriveTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\n"), "a\\x1b[31mb\\x0a");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");
  EXPECT_EQ(printable("Größe 😀"), "Größe 😀");
  // Parts of a character, as tokens are: bytes that are no UTF-8.
  EXPECT_EQ(printable("a\xf0\x9f"), "a\\xf0\\x9f");
  EXPECT_EQ(printable("\x98\x80 \xc3"), "\\x98\\x80 \\xc3");
  EXPECT_EQ(printable("\xc3("), "\\xc3(");
}

// ---------------------------------------------------------------- info

TEST_F(Cli, InfoOfTheMachine) {
  EXPECT_THAT(qkv({"info"}).out, AllOf(HasSubstr("cpu"), HasSubstr("threads")));
  const auto json = nlohmann::json::parse(qkv({"info", "--json"}).out);
  EXPECT_TRUE(json.at("cpu").at("features").is_object());
  EXPECT_GE(json.at("threads").at("count"), 1);
}

TEST_F(Cli, InfoOfFiles) {
  const std::string x = npy("x.npy", {2, 3});
  EXPECT_EQ(qkv({"info", x}).out, "f32  [2, 3]\n");
  Checkpoint c;
  c.add("a.weight", {4, 2});
  c.add("a.steps", Tensor(DType::i64, {}));
  c.save(path("m.safetensors"));
  const Outcome text = qkv({"info", path("m.safetensors")});
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("a.weight  f32  [4, 2]\n"), HasSubstr("2 tensors, 9 elem")));
  const auto json = nlohmann::json::parse(qkv({"info", "--json", path("m.safetensors")}).out);
  EXPECT_EQ(json.at("tensors").size(), 2u);
  EXPECT_EQ(json.at("format"), "safetensors");
}

TEST_F(Cli, OddFilesAreRefused) {
  const auto status = [](const std::string& file) { return qkv({"info", file}).status; };
  EXPECT_EQ(status(path("missing.npy")), Status::system);
  std::filesystem::create_directory(path("folder.npy"));
  EXPECT_NE(status(path("folder.npy")), Status::ok);
  std::ofstream(path("empty.npy")).flush();
  EXPECT_EQ(status(path("empty.npy")), Status::usage);
  std::ofstream(path("wrong.safetensors")) << "this is no such file";
  EXPECT_EQ(status(path("wrong.safetensors")), Status::usage);
  EXPECT_THAT(qkv({"info", path("wrong.safetensors")}).err, HasSubstr("wrong.safetensors"));
  EXPECT_EQ(status(path("model.pt")), Status::usage);
}

// ---------------------------------------------------------------- attention

TEST_F(Cli, AttentionWithEveryOption) {
  const std::string q = npy("q.npy", {2, 4, 3, 8}), k = npy("k.npy", {2, 2, 5, 8});
  const std::string v = npy("v.npy", {2, 2, 5, 6});
  Tensor mask(DType::boolean, {3, 5});
  for (bool& allowed : mask.as<bool>()) allowed = true;
  mask.as<bool>()[1] = false;
  save_npy(path("mask.npy"), mask);
  npy("bias.npy", {4, 1, 5});
  const Outcome outcome = qkv({"attention",
                               "--query",
                               q,
                               "--key",
                               k,
                               "--value",
                               v,
                               "--output",
                               path("o.npy"),
                               "--mask",
                               path("mask.npy"),
                               "--bias",
                               path("bias.npy"),
                               "--causal",
                               "true",
                               "--offset",
                               "2,1",
                               "--window",
                               "3",
                               "-1",
                               "--prefix",
                               "1,0",
                               "--scale",
                               "-0.5",
                               "--softcap",
                               "3",
                               "--alibi",
                               "0.5,0.25,0.125,0",
                               "--key-lengths",
                               "5,4",
                               "--sinks",
                               "0,-inf,1,2",
                               "--threads",
                               "1",
                               "--lse-output",
                               path("lse.npy"),
                               "--weights-output",
                               path("p.npy")});
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("o.npy: f32 [2, 4, 3, 6]"));

  const std::vector<std::int64_t> offsets = {2, 1}, prefix = {1, 0}, lengths = {5, 4};
  const std::vector<double> alibi = {0.5, 0.25, 0.125, 0};
  const std::vector<double> sinks = {0, -std::numeric_limits<double>::infinity(), 1, 2};
  AttentionOptions options;
  options.mask = mask;
  options.bias = inputs_["bias.npy"];
  options.causal = Causal::aligned;
  options.offsets = TensorView::of(offsets);
  options.window = {3, -1};
  options.prefix = TensorView::of(prefix);
  options.scale = -0.5;
  options.softcap = 3;
  options.alibi = TensorView::of(alibi);
  options.key_lengths = TensorView::of(lengths);
  options.sinks = TensorView::of(sinks);
  Tensor out(DType::f32, {2, 4, 3, 6}), lse(DType::f32, {2, 4, 3}), p(DType::f32, {2, 4, 3, 5});
  AttentionStages stages;
  stages.lse = lse;
  stages.weights = p;
  attention_forward(inputs_["q.npy"], inputs_["k.npy"], inputs_["v.npy"], out, options, stages);
  EXPECT_EQ(floats(path("o.npy")), floats(out));
  EXPECT_EQ(floats(path("lse.npy")), floats(lse));
  EXPECT_EQ(floats(path("p.npy")), floats(p));
}

TEST_F(Cli, AttentionPacked) {
  const std::string q = npy("q.npy", {1, 2, 7, 4}), k = npy("k.npy", {1, 2, 7, 4});
  const Outcome outcome =
      qkv({"attention", "--query", q, "--key", k, "--value", k, "--output", path("o.npy"),
           "--query-starts", "0,3,7", "--key-starts", "0,3,7", "--causal", "bottom_right"});
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  const std::vector<std::int64_t> starts = {0, 3, 7};
  AttentionOptions options;
  options.query_starts = options.key_starts = TensorView::of(starts);
  options.causal = Causal::bottom_right;
  Tensor out(DType::f32, {1, 2, 7, 4});
  attention_forward(inputs_["q.npy"], inputs_["k.npy"], inputs_["k.npy"], out, options);
  EXPECT_EQ(floats(path("o.npy")), floats(out));
}

// Every layout and rank gives the same numbers, in its own order.
TEST_F(Cli, AttentionLayoutsAndRanks) {
  const TensorView q = inputs_.add("q", {1, 2, 3, 4}), k = inputs_.add("k", {1, 2, 5, 4});
  const TensorView v = inputs_.add("v", {1, 2, 5, 6});
  Tensor expected(DType::f32, {1, 2, 3, 6}), expected_lse(DType::f32, {1, 2, 3});
  AttentionStages stages;
  stages.lse = expected_lse;
  attention_forward(q, k, v, expected, {}, stages);
  const auto in_layout = [](const TensorView& view, const std::string& layout) {
    return layout == "bthd"   ? view.permute({0, 2, 1, 3})
           : layout == "bhdt" ? view.permute({0, 1, 3, 2})
                              : view;
  };
  for (const std::string layout : {"bhtd", "bthd", "bhdt"}) {
    for (const int rank : {4, 3, 2}) {
      const auto cut = [&](const TensorView& view) {
        TensorView part = rank == 2 ? view.slice(1, 0, 1) : view;  // one head
        part = in_layout(part, layout);
        if (rank <= 3) part = part.select(0, 0);
        return rank == 2 ? part.select(layout == "bthd" ? 1 : 0, 0) : part;
      };
      for (const auto& [name, view] : {std::pair("q.npy", q), {"k.npy", k}, {"v.npy", v}}) {
        save_npy(path(name), cut(view));
      }
      const Outcome outcome = qkv({"attention", "--query", path("q.npy"), "--key", path("k.npy"),
                                   "--value", path("v.npy"), "--output", path("o.npy"), "--layout",
                                   layout, "--lse-output", path("lse.npy")});
      ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
      const FileTensor found = load_npy(path("o.npy"));
      const TensorView wanted = cut(expected);
      EXPECT_EQ(found.view.shape(), wanted.shape()) << layout << " " << rank;
      EXPECT_EQ(floats(found.view), floats(wanted)) << layout << " " << rank;
      EXPECT_EQ(load_npy(path("lse.npy")).view.rank(), rank - 1);
    }
  }
}

TEST_F(Cli, AttentionChosenRows) {
  const std::string q = npy("q.npy", {2, 2, 3, 4});
  const Outcome outcome =
      qkv({"attention", "--query", q, "--key", q, "--value", q, "--output", path("o.npy"),
           "--weights-output", path("p.safetensors"), "--rows", "1,0,2;0,1,0"});
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  Tensor out(DType::f32, {2, 2, 3, 4}), p(DType::f32, {2, 2, 3, 3});
  AttentionStages stages;
  stages.weights = p;
  attention_forward(inputs_["q.npy"], inputs_["q.npy"], inputs_["q.npy"], out, {}, stages);
  const SafetensorsFile file(path("p.safetensors"));
  const TensorView rows = file.tensor("weights");
  EXPECT_EQ(rows.shape(), (Dims{2, 3}));
  for (std::int64_t j = 0; j < 3; ++j) {
    EXPECT_EQ(rows.at({0, j}), p.view().at({1, 0, 2, j}));
    EXPECT_EQ(rows.at({1, j}), p.view().at({0, 1, 0, j}));
  }
}

TEST_F(Cli, AttentionFromNamedTensors) {
  Checkpoint c;
  c.add("layer:0.q", {1, 1, 2, 4});
  c.add("k", {1, 1, 3, 4});
  c.save(path("in.safetensors"));
  const std::string file = path("in.safetensors");
  const Outcome outcome = qkv({"attention", "--query", file + ":layer:0.q", "--key", file + ":k",
                               "--value", file + ":k", "--output", path("o.npy"), "--json"});
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("output").at("shape"), nlohmann::json({1, 1, 2, 4}));
  expect_usage_error({"attention", "--query", file + ":w", "--key", file, "--value", file,
                      "--output", path("o.npy")},
                     "'layer:0.q', 'k'");
  expect_usage_error(
      {"attention", "--query", file, "--key", file, "--value", file, "--output", path("o.npy")},
      "a name after ':'");
}

TEST_F(Cli, AttentionRefusals) {
  const std::string q = npy("q.npy", {1, 2, 3, 4}), flat = npy("flat.npy", {3, 4});
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"attention", "--query", q, "--key", q, "--value", q};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::string o = path("o.npy");
  expect_usage_error(with({"--output", path("o.txt")}), ".npy or .safetensors");
  expect_usage_error(with({"--output", o, "--lse-output", o}), "twice");
  expect_usage_error(with({"--output", o, "--rows", "0,0,0"}), "--weights-output");
  expect_usage_error(with({"--output", o, "--rows", "0,0,9", "--weights-output", path("p.npy")}),
                     "rows");
  expect_usage_error(with({"--output", o, "--key-lengths", "1.5"}), "whole numbers");
  expect_usage_error(with({"--output", o, "--key-lengths", "true"}), "--key-lengths");
  expect_usage_error(with({"--output", o, "--offset", "true"}), "--offset");
  expect_usage_error(with({"--output", o, "--key-lengths", "9"}), "key_lengths");
  expect_usage_error(with({"--output", o, "--scale", "nan"}), "scale");
  expect_usage_error(with({"--output", o, "--window", "-2", "0"}), "window");
  expect_usage_error(with({"--output", o, "--window", "1"}), "window");
  expect_usage_error(with({"--output", o, "--causal", "maybe"}), "top_left");
  expect_usage_error({"attention", "--query", q, "--key", flat, "--value", q, "--output", o},
                     "--key: expected 4 dimensions");
  EXPECT_EQ(qkv(with({"--output", path("no/such/folder.npy")})).status, Status::system);
  EXPECT_FALSE(std::filesystem::exists(o));
}

// ---------------------------------------------------------------- run

TEST_F(Cli, RunABlock) {
  Checkpoint c;
  for (const std::string p : {"h.0.attn.", "h.1.attn."}) {
    c.add(p + "c_attn.weight", {8, 24});
    c.add(p + "c_attn.bias", {24});
    c.add(p + "c_proj.weight", {8, 8});
  }
  c.save(path("w.safetensors"));
  const std::string x = npy("x.npy", {2, 5, 8});
  const std::vector<std::string> words = {
      "run", "--block", "gpt", "--weights", path("w.safetensors"), "--input", x, "--heads", "2"};
  expect_usage_error(
      [&] {
        auto all = words;
        all.insert(all.end(), {"--output", path("y.npy")});
        return all;
      }(),
      "--weights-prefix");
  std::vector<std::string> all = words;
  all.insert(all.end(), {"--weights-prefix", "h.1", "--json", "--output"});
  for (const std::string& input : {x, path("w.safetensors")}) {
    all.push_back(input);
    expect_usage_error(all, input);  // a result over what it is made from
    all.pop_back();
  }
  all.push_back(path("y.npy"));
  const Outcome outcome = qkv(all);
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.at("place"), "h.1.attn");
  EXPECT_EQ(json.at("heads"), 2);

  Tensor out(DType::f32, {2, 5, 8});
  gpt_forward(GptWeights::from_arrays(c["h.1.attn.c_attn.weight"], c["h.1.attn.c_attn.bias"],
                                      c["h.1.attn.c_proj.weight"], {}, 2),
              inputs_["x.npy"], out);
  EXPECT_EQ(floats(path("y.npy")), floats(out));
}

TEST_F(Cli, RunWithoutABatchAndWithAMemory) {
  Checkpoint c;
  c.add("in_proj_weight", {12, 4});
  c.add("out_proj.weight", {4, 4});
  c.save(path("w.safetensors"));
  const std::string x = npy("x.npy", {3, 4}), m = npy("m.npy", {5, 4});
  const Outcome outcome =
      qkv({"run", "--block", "transformer", "--weights", path("w.safetensors"), "--heads", "2",
           "--input", x, "--memory", m, "--output", path("y.npy")});
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  const FileTensor y = load_npy(path("y.npy"));
  EXPECT_EQ(y.view.shape(), (Dims{3, 4}));
  Tensor out(DType::f32, {1, 3, 4});
  transformer_forward(
      TransformerWeights::from_packed(c["in_proj_weight"], {}, c["out_proj.weight"], {}, 2),
      inputs_["x.npy"].unflatten(0, {1, 3}), inputs_["m.npy"].unflatten(0, {1, 5}), out);
  EXPECT_EQ(floats(y.view), floats(out));
  npy("flat.npy", {4});
  expect_usage_error({"run", "--block", "transformer", "--weights", path("w.safetensors"),
                      "--heads", "2", "--input", path("flat.npy"), "--output", path("y.npy")},
                     "[T, width]");
}

TEST_F(Cli, RunAnImageBlock) {
  Checkpoint c;
  add_psa_modules(c, "m.", 8);
  c.save(path("w.safetensors"));
  const std::string x = npy("x.npy", {8, 3, 4});
  const Outcome outcome = qkv({"run", "--block", "psa", "--weights", path("w.safetensors"),
                               "--input", x, "--output", path("y.safetensors")});
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  EXPECT_EQ(SafetensorsFile(path("y.safetensors")).shape("output"), (Dims{8, 3, 4}));
}

// ---------------------------------------------------------------- completion

TEST_F(Cli, CompletionKnowsCommandsFlagsAndChoices) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = qkv({"completion", shell});
    EXPECT_EQ(outcome.status, Status::ok);
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("attention"), HasSubstr("weights-prefix"),
                      HasSubstr("transformer vit detector psa c2psa gpt"),
                      HasSubstr("bash zsh fish"), HasSubstr("none true top_left bottom_right")))
        << shell;
  }
  expect_usage_error({"completion", "tcsh"}, "bash");
}

}  // namespace
}  // namespace qkv::cli
