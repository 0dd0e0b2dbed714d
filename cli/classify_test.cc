#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/program.h"
#include "io/image/image.h"
#include "io/image/test_png.h"
#include "models/test_weights.h"
#include "models/vision.h"
#include "qkv/npy.h"

namespace qkv::cli {
namespace {

using testing::HasSubstr;

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

// A ViT of one layer, of width 4, for images of 4×4 pixels, and a photograph.
class Classify : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "qkv-classify-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    Checkpoint c;
    const auto linear = [&](const std::string& name, const Dims& shape) {
      c.add(name + ".weight", shape);
      c.add(name + ".bias", {shape[0]});
    };
    c.add("vit.embeddings.cls_token", {1, 1, 4});
    c.add("vit.embeddings.position_embeddings", {1, 5, 4});
    linear("vit.embeddings.patch_embeddings.projection", {4, 3, 2, 2});
    const std::string layer = "vit.encoder.layer.0.";
    for (const char* part : {"attention.attention.query", "attention.attention.key",
                             "attention.attention.value", "attention.output.dense"}) {
      linear(layer + part, {4, 4});
    }
    linear(layer + "intermediate.dense", {8, 4});
    linear(layer + "output.dense", {4, 8});
    linear(layer + "layernorm_before", {4});
    linear(layer + "layernorm_after", {4});
    linear("vit.layernorm", {4});
    linear("classifier", {3, 4});
    c.save(folder_ / "model.safetensors");
    write("config.json", R"({"model_type": "vit", "image_size": 4, "num_attention_heads": 2,
      "num_hidden_layers": 1, "id2label": {"0": "cat", "1": "dog", "2": "tree"}})");
    std::string rows;
    for (int y = 0; y < 5; ++y) {
      rows += '\0';
      for (int x = 0; x < 7 * 3; ++x) rows += static_cast<char>((x * 37 + y * 91) % 256);
    }
    write("photo.png", io::png(7, 5, 8, 2, rows));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

#if QKV_WITH_PNG
TEST_F(Classify, NamesTheLargestScoreFirst) {
  const VisionModel model = load_vision(folder_);
  const Tensor pixels = io::process_image(io::read_image(path("photo.png")), model.processing);
  Tensor scores(DType::f32, {1, 3});
  PreparedVision(model.weights).forward(pixels.view().unflatten(0, {1, 3}), scores);
  const auto values = scores.as<float>();
  const auto best =
      static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
  const Outcome outcome = qkv({"classify", folder_.string(), path("photo.png"), "--top", "2"});
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
  EXPECT_THAT(outcome.out.substr(0, outcome.out.find('\n')), HasSubstr(model.labels[best]));

  const Outcome json = qkv({"classify", folder_.string(), path("photo.png"), path("photo.png"),
                            "--json", "--repeat", "2", "--profile", "--plan"});
  ASSERT_EQ(json.status, Status::ok) << json.err;
  EXPECT_THAT(json.out, HasSubstr("\"label\": \"" + model.labels[best] + "\""));
  EXPECT_THAT(json.err, HasSubstr("embedding"));
  EXPECT_THAT(json.err, HasSubstr("mlp.expand"));
  EXPECT_THAT(json.err, HasSubstr("MB of weights"));
}
#endif

TEST_F(Classify, RefusesWhatItCannotRead) {
  const auto refused = [&](const std::string& image, Status status, const std::string& fragment) {
    const Outcome outcome = qkv({"classify", folder_.string(), path(image)});
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(fragment));
    EXPECT_EQ(outcome.out, "");
  };
  write("text.png", "not a photograph");
  refused("text.png", Status::usage, "a PNG or a JPEG");
  refused("none.png", Status::system, "none.png");
  const Outcome outcome = qkv({"classify", path("none"), path("photo.png")});
  EXPECT_EQ(outcome.status, Status::system);
  EXPECT_THAT(outcome.err, HasSubstr("config.json"));
}

// The same numbers as without; the table goes to stderr.
TEST_F(Classify, RunTellsWhereTheTimeGoes) {
  Checkpoint c;
  c.add("qkv.weight", {24, 8});
  c.add("proj.weight", {8, 8});
  c.save(folder_ / "w.safetensors");
  Checkpoint inputs;
  save_npy(path("x.npy"), inputs.add("x", {2, 5, 8}));
  std::vector<std::string> words = {
      "run",     "--block", "vit",     "--weights",   path("w.safetensors"),
      "--heads", "2",       "--input", path("x.npy"), "--output"};
  std::vector<std::string> timed = words;
  words.push_back(path("y.npy"));
  timed.insert(timed.end(), {path("z.npy"), "--repeat", "3", "--profile", "--plan"});
  ASSERT_EQ(qkv(words).status, Status::ok);
  const Outcome outcome = qkv(timed);
  ASSERT_EQ(outcome.status, Status::ok) << outcome.err;
  for (const char* word : {"qkv", "attention", "output", "share", "GFLOP"}) {
    EXPECT_THAT(outcome.err, HasSubstr(word));
  }
  const FileTensor once = load_npy(path("y.npy")), often = load_npy(path("z.npy"));
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t t = 0; t < 5; ++t) {
      for (std::int64_t i = 0; i < 8; ++i) {
        EXPECT_NEAR(once.view.at({b, t, i}), often.view.at({b, t, i}), 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace qkv::cli
