// Whole GPTs: a trained one whose every intermediate is published, and small random ones of both
// families beside their definition in f64.

#include "qkv/gpt_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "qkv/safetensors.h"
#include "tests/conformance_case.h"
#include "tests/effort.h"
#include "tests/gpt_folder.h"
#include "tests/gpt_oracle.h"

namespace qkv::testing {
namespace {

namespace fs = std::filesystem;

fs::path sort_folder() { return conformance_folder().parent_path() / "models" / "nano-gpt-sort"; }

class NanoGptSort : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(sort_folder() / "config.json")) {
      GTEST_SKIP() << "no folder models/nano-gpt-sort in $QKV_SHARED or ../shared";
    }
  }
};

using Steps = std::map<std::string, Tensor>;

Steps steps_of(DecoderSession& session, const std::vector<std::int32_t>& tokens) {
  Steps steps;
  session.append(tokens, [&](std::string_view name, const TensorView& value) {
    steps.emplace(name, Tensor::copy_of(value));
  });
  return steps;
}

// |a - b| ≤ 1e-6·max(1, max|b|) everywhere; what is -inf in one is in the other.
void expect_close(const std::string& name, const TensorView& found, const TensorView& expected) {
  const Tensor a = Tensor::copy_of(found, DType::f64), b = Tensor::copy_of(expected, DType::f64);
  ASSERT_EQ(a.size(), b.size()) << name;
  double largest = 1, worst = 0;
  for (const double v : b.as<double>())
    largest = std::isfinite(v) ? std::max(largest, std::abs(v)) : largest;
  for (std::size_t i = 0; i < b.as<double>().size(); ++i) {
    const double x = a.as<double>()[i], y = b.as<double>()[i];
    if (x == y) continue;
    worst = std::abs(x - y) <= worst ? worst : std::abs(x - y);  // a NaN stays
  }
  EXPECT_LE(worst, 1e-6 * largest) << name;
}

Tensor softmax(const Tensor& logits) {
  Tensor result(DType::f64, logits.shape());
  for (std::int64_t t = 0; t < logits.dim(0); ++t) {
    double total = 0;
    for (std::int64_t i = 0; i < logits.dim(1); ++i) total += std::exp(logits.view().at({t, i}));
    for (std::int64_t i = 0; i < logits.dim(1); ++i) {
      result.view().set({t, i}, std::exp(logits.view().at({t, i})) / total);
    }
  }
  return result;
}

TEST_F(NanoGptSort, EveryIntermediateIsThePublishedOne) {
  const GptModel model = GptModel::load(sort_folder());
  EXPECT_EQ(model.describe(), "gpt2: 3 layers, 3 heads of 16, width 48, vocabulary 3, context 11");
  const SafetensorsFile partials(sort_folder() / "partials.safetensors");
  const std::vector<std::pair<std::string, std::string>> names = {
      {"x", "embedding"},         {"ln1", "h.0.norm1"},
      {"qkv", "h.0.qkv"},         {"q", "h.0.query"},
      {"k", "h.0.key"},           {"v", "h.0.value"},
      {"attSm", "h.0.weights"},   {"y", "h.0.concat"},
      {"yProj", "h.0.projected"}, {"attnResid", "h.0.residual"},
      {"ln2", "h.0.norm2"},       {"fc", "h.0.fc"},
      {"gelu", "h.0.activated"},  {"mlp", "h.0.mlp"},
      {"mlpResid", "h.0.output"}, {"block0", "h.0.output"},
      {"block1", "h.1.output"},   {"block2", "h.2.output"},
      {"ln_f", "norm"},           {"lm_head", "logits"}};
  // idx, tok_emb, pos_emb, att and probs are compared below.
  ASSERT_EQ(names.size() + 5, partials.names().size());
  for (std::int64_t b = 0; b < 3; ++b) {
    const TensorView idx = partials.tensor("idx").select(0, b);
    std::vector<std::int32_t> tokens;
    for (std::int64_t t = 0; t < 11; ++t) tokens.push_back(static_cast<std::int32_t>(idx.at({t})));
    DecoderSession session(model.decoder());
    const Steps steps = steps_of(session, tokens);
    for (const auto& [theirs, ours] : names) {
      expect_close(theirs, steps.at(ours), partials.tensor(theirs).select(0, b));
    }
    const TensorView att = partials.tensor("att").select(0, b);
    const bool masked = std::isinf(att.at({0, 0, 1}));
    expect_close("att", steps.at(masked ? "h.0.masked" : "h.0.scores"), att);
    expect_close("probs", softmax(steps.at("logits")), partials.tensor("probs").select(0, b));
    for (std::int64_t t = 0; t < 11; ++t) {
      expect_close("tok_emb", model.weights().tokens.select(0, tokens[static_cast<std::size_t>(t)]),
                   partials.tensor("tok_emb").select(0, b).select(0, t));
    }
    expect_close("pos_emb", model.weights().positions, partials.tensor("pos_emb").select(0, 0));
  }
}

std::int32_t most_likely(const TensorView& logits) {
  std::int32_t best = 0;
  for (std::int32_t i = 1; i < logits.dim(0); ++i) {
    if (logits.at({i}) > logits.at({best})) best = i;
  }
  return best;
}

int most_likely(const Numbers& logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// All 3⁶ inputs are continued as the definition continues them. It is causal, so one pass of it
// over the whole continued sequence tells, for each token, whether it would have said the same.
TEST_F(NanoGptSort, ContinuesAllInputsAsTheDefinitionDoes) {
  const GptModel model = GptModel::load(sort_folder());
  const SafetensorsFile file(sort_folder() / "model.safetensors");
  OracleGpt oracle;
  oracle.layers = oracle.heads = oracle.kv_heads = oracle.vocabulary = 3;
  oracle.head_dim = 16;
  oracle.width = 48;
  std::map<std::string, Numbers> read;
  for (const std::string& name : file.names()) {
    const Tensor wide = Tensor::copy_of(file.tensor(name), DType::f64);
    const std::string known = name.starts_with("transformer.") ? name.substr(12) : name;
    read[known] = Numbers(wide.as<double>().begin(), wide.as<double>().end());
  }
  oracle.tensor = [&](const std::string& name) { return read[name]; };
  // One thread: a hundred thousand products of nothing, on cores that others use too.
  DecoderSession session(model.decoder(), {.threads = 1});
  int sorted = 0;
  for (int input = 0; input < 729; input += kStride) {
    std::vector<std::int32_t> tokens;
    for (int i = 0, rest = input; i < 6; ++i, rest /= 3) tokens.push_back(rest % 3);
    session.truncate(0);
    TensorView logits = session.append(tokens);
    std::vector<std::int32_t> all = tokens;
    all.push_back(most_likely(logits));
    while (all.size() < 12) {
      logits = session.append(std::span(&all.back(), 1));
      all.push_back(most_likely(logits));
    }
    const std::vector<Numbers> expected =
        oracle.logits(std::vector<int>(all.begin(), all.end() - 1));
    for (std::size_t t = 5; t < 11; ++t) {
      ASSERT_EQ(all[t + 1], most_likely(expected[t])) << "input " << input << ", token " << t + 1;
    }
    std::sort(tokens.begin(), tokens.end());
    sorted += std::equal(tokens.begin(), tokens.end(), all.begin() + 6) ? 1 : 0;
  }
  EXPECT_GE(sorted * kStride, 700);  // it was trained to sort, and nearly always does
}

// --- small random models ------------------------------------------------------------------------

const std::vector<std::int32_t> kTokens = {3, 30, 0, 7, 7, 12, 29, 1, 18, 5, 22, 9};

double worst_logit(const TensorView& found, const std::vector<Numbers>& expected,
                   std::size_t from) {
  double worst = 0;
  for (std::int64_t t = 0; t < found.dim(0); ++t) {
    const Numbers& row = expected[from + static_cast<std::size_t>(t)];
    for (std::int64_t i = 0; i < found.dim(1); ++i) {
      const double d = std::abs(found.at({t, i}) - row[static_cast<std::size_t>(i)]);
      worst = d <= worst ? worst : d;
    }
  }
  return worst;
}

// f32 against f64: about 25 roundings in a row (2 layers of norm, two products, softmax, two
// products, each a sum of up to 96 numbers) of numbers up to about 8, whose errors the norms keep
// from growing: 25·√96·8·2⁻²⁴ ≈ 1.2e-4; seen is a tenth.
constexpr double kBound = 1.2e-4;

class SmallGpt : public GptFolderTest, public ::testing::WithParamInterface<int> {
 protected:
  static TestGpt make() {
    return GetParam() == 0   ? small_gpt2(true)
           : GetParam() == 1 ? small_gpt2(false)
           : GetParam() == 4 ? small_nano_gpt()
                             : small_llama(GetParam() == 3);
  }
};

TEST_P(SmallGpt, IsItsDefinition) {
  const TestGpt gpt = make();
  gpt.save(directory_);
  const GptModel model = GptModel::load(directory_);
  EXPECT_EQ(model.family(), gpt.oracle.llama ? "llama" : "gpt2");
  EXPECT_FALSE(model.tokenizer());
  const std::vector<Numbers> expected =
      gpt.oracle.logits(std::vector<int>(kTokens.begin(), kTokens.end()));
  Tensor logits(DType::f32, {12, 31});
  // All at once, in chunks, and token by token.
  for (const std::int64_t chunk : {256, 5, 1}) {
    DecoderSession session(model.decoder(), {.chunk = chunk, .threads = 1});
    session.append_all(kTokens, logits);
    EXPECT_LE(worst_logit(logits, expected, 0), kBound) << chunk;
    EXPECT_EQ(session.length(), 12);
    session.truncate(4);
    const TensorView last = session.append(std::span(kTokens).subspan(4, 3));
    EXPECT_LE(worst_logit(TensorView(last.data(), DType::f32, {1, 31}), expected, 6), kBound);
  }
  DecoderSession eight(model.decoder(), {.storage = KVStorage::bf16, .threads = 1});
  eight.append_all(kTokens, logits);
  EXPECT_LE(worst_logit(logits, expected, 0), 0.5);  // keys and values of 8 bits
  EXPECT_GT(worst_logit(logits, expected, 0), kBound);
}

TEST_P(SmallGpt, BitsDoNotDependOnTheObserverNorOnWhatWasForgotten) {
  const TestGpt gpt = make();
  gpt.save(directory_);
  const GptModel model = GptModel::load(directory_);
  DecoderSession plain(model.decoder(), {.threads = 1}), observed(model.decoder());
  const Tensor a = Tensor::copy_of(plain.append(kTokens));
  std::size_t steps = 0;
  const Tensor b =
      Tensor::copy_of(observed.append(kTokens, [&](auto, const TensorView&) { ++steps; }));
  const auto bits = [](const Tensor& t) { return io::bytes_of(t); };
  EXPECT_EQ(bits(a), bits(b));
  EXPECT_GT(steps, 30u);
  plain.truncate(0);
  EXPECT_EQ(bits(Tensor::copy_of(plain.append(kTokens))), bits(a));
}

TEST_P(SmallGpt, FillsExactlyAndRefusesOneMore) {
  const TestGpt gpt = make();
  gpt.save(directory_);
  const GptModel model = GptModel::load(directory_);
  DecoderSession session(model.decoder(), {.capacity = 13, .threads = 1});
  session.append(kTokens);
  const auto refused = [&](std::vector<std::int32_t> tokens, std::string_view subject) {
    const std::int64_t before = session.length();
    try {
      session.append(tokens);
      ADD_FAILURE() << "took " << tokens.size();
    } catch (const Error& error) {
      EXPECT_EQ(error.subject(), subject) << error.what();
    }
    EXPECT_EQ(session.length(), before);
  };
  refused({1, 2}, "tokens");
  refused({}, "tokens");
  refused({31}, "tokens[0]");
  refused({-1}, "tokens[0]");
  session.append(std::vector<std::int32_t>{4});
  refused({4}, "tokens");
  EXPECT_THROW(DecoderSession(model.decoder(), {.capacity = 21}), Error);
}

std::string family_name(const ::testing::TestParamInfo<int>& test) {
  const char* names[] = {"Gpt2Conv1d", "MinGpt", "Llama", "LlamaTied", "NanoGpt"};
  return names[test.param];
}
INSTANTIATE_TEST_SUITE_P(Families, SmallGpt, ::testing::Range(0, 5), family_name);

// --- files --------------------------------------------------------------------------------------

using GptFiles = GptFolderTest;

// Embeddings are read where the file was mapped: a session keeps that, whatever becomes of the
// model.
TEST_F(GptFiles, ASessionOutlivesItsModel) {
  const TestGpt gpt = small_gpt2(true);
  gpt.save(directory_);
  auto model = std::make_unique<GptModel>(GptModel::load(directory_));
  DecoderSession session(model->decoder(), {.threads = 1});
  model.reset();
  Tensor logits(DType::f32, {12, 31});
  session.append_all(kTokens, logits);
  const std::vector<int> tokens(kTokens.begin(), kTokens.end());
  EXPECT_LE(worst_logit(logits, gpt.oracle.logits(tokens), 0), kBound);
}

TEST_F(GptFiles, SixteenBitsAndShards) {
  TestGpt gpt = small_llama();
  gpt.save(directory_);
  Tensor whole(DType::f32, {12, 31}), logits(DType::f32, {12, 31});
  DecoderSession(GptModel::load(directory_).decoder()).append_all(kTokens, whole);

  // The same numbers rounded to bf16, in two files.
  std::vector<Tensor> narrow;
  std::vector<NamedTensor> files[2];
  std::string map;
  for (const NamedTensor& tensor : gpt.checkpoint.named()) {
    narrow.push_back(Tensor::copy_of(tensor.view, DType::bf16));
    const int n = map.size() % 2;
    files[n].push_back({tensor.name, narrow.back().view()});
    map += (map.empty() ? "" : ", ") + ("\"" + tensor.name) + "\": \"part-" + std::to_string(n) +
           ".safetensors\"";
  }
  ASSERT_FALSE(files[0].empty() || files[1].empty());
  fs::remove(directory_ / "model.safetensors");
  for (int n = 0; n < 2; ++n)
    save_safetensors(path("part-" + std::to_string(n) + ".safetensors"), files[n]);
  file("model.safetensors.index.json", R"({"metadata": {}, "weight_map": {)" + map + "}}");
  DecoderSession(GptModel::load(directory_).decoder()).append_all(kTokens, logits);
  double worst = 0;
  for (std::int64_t t = 0; t < 12; ++t) {
    for (std::int64_t i = 0; i < 31; ++i) {
      worst = std::max(worst, std::abs(whole.view().at({t, i}) - logits.view().at({t, i})));
    }
  }
  EXPECT_LT(worst, 0.5);
  EXPECT_GT(worst, 1e-3);

  const auto refused = [&](std::initializer_list<std::string_view> fragments) {
    io::expect_error(ErrorKind::value, fragments, [&] { (void)GptModel::load(directory_); });
  };
  files[1].push_back(files[0].front());
  save_safetensors(path("part-1.safetensors"), files[1]);
  refused({"part-1.safetensors", files[0].front().name, "part-0"});
  files[1].pop_back();
  const std::string gone = files[1].back().name;
  files[1].pop_back();
  save_safetensors(path("part-1.safetensors"), files[1]);
  refused({"part-1.safetensors", gone, "none"});
  file("model.safetensors.index.json", R"({"weight_map": {"a": "../x.safetensors"}})");
  refused({"index.json", "weight_map", "../x.safetensors"});
}

TEST_F(GptFiles, TensorsThatAreNotRightAreNamed) {
  const auto refused = [&](const TestGpt& gpt, std::initializer_list<std::string_view> fragments) {
    gpt.save(directory_);
    io::expect_error(ErrorKind::value, fragments, [&] { (void)GptModel::load(directory_); });
  };
  TestGpt gpt = small_gpt2(true);
  gpt.checkpoint.remove("h.1.mlp.c_fc.weight");
  refused(gpt, {"h.1.mlp.c_fc.weight", "no such tensor"});
  gpt = small_gpt2(true);
  gpt.add("h.2.ln_1.weight", {24}, 0, 1);
  refused(gpt, {"h.2.ln_1.weight", "config.json"});
  gpt = small_gpt2(true);
  gpt.checkpoint.remove("h.0.attn.c_attn.weight");
  gpt.add("h.0.attn.c_attn.weight", {24, 48}, 0, 1);
  refused(gpt, {"h.0.attn.c_attn.weight", "Conv1D", "[24, 48]"});
  gpt = small_gpt2(false);
  gpt.add("other.wte.weight", {31, 24}, 0, 1);
  refused(gpt, {"wte.weight", "2"});
  gpt = small_llama();
  gpt.checkpoint.remove("lm_head.weight");
  refused(gpt, {"lm_head.weight", "no such tensor"});
  gpt = small_llama();
  gpt.checkpoint.remove("model.layers.0.self_attn.k_proj.weight");
  gpt.add("layers.0.self_attn.k_proj.weight", {24, 20}, 0, 1);
  refused(gpt, {"layers.0.self_attn.k_proj.weight", "[12, 20]", "[24, 20]"});
}

TEST_F(GptFiles, ConfigsThatAreNotRightAreNamed) {
  TestGpt gpt = small_llama();
  const auto refused = [&](const std::string& from, const std::string& to,
                           std::initializer_list<std::string_view> fragments) {
    TestGpt changed = small_llama();
    const std::size_t at = changed.config.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.config.replace(at, from.size(), to);
    changed.save(directory_);
    io::expect_error(ErrorKind::value, fragments, [&] { (void)GptModel::load(directory_); });
  };
  refused("\"llama\"", "\"bert\"", {"config.json", "model_type", "'bert'"});
  refused("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0", {"num_hidden_layers", "0"});
  refused("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1e99", {"num_hidden_layers"});
  refused("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", {"num_key_value_heads"});
  refused("\"head_dim\": 6", "\"head_dim\": 5", {"config.json", "head_dim", "even", "5"});
  refused("\"head_dim\": 6, \"hidden_size\": 20", "\"hidden_size\": 12",
          {"config.json", "num_attention_heads", "even", "3"});
  refused("\"rope_theta\": 500", "\"rope_theta\": -1", {"config.json", "rope_theta", "-1"});
  const std::string llama3 = R"("rope_theta": 500, "rope_scaling": {"rope_type": "llama3",
      "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1,
      "original_max_position_embeddings": )";
  refused("\"rope_theta\": 500", llama3 + "9}", {"config.json", "rope_scaling.high_freq_factor"});
  refused("\"rope_theta\": 500", llama3 + "0}",
          {"config.json", "rope_scaling.original_max_position_embeddings", "0"});
  refused("\"hidden_act\": \"silu\"", "\"hidden_act\": \"mish\"", {"hidden_act", "'mish'"});
  refused("\"rope_theta\": 500", "\"rope_theta\": 500, \"rope_scaling\": {\"type\": \"yarn\"}",
          {"rope_scaling.type", "'yarn'"});
  refused("\"vocab_size\": 31", "\"vocab_size\": 32", {"embed_tokens.weight", "[32, 20]"});
  refused("[30, 29]", "-1", {"eos_token_id", "-1"});
  for (std::size_t size = 0; size < gpt.config.size(); size += 5) {
    file("config.json", gpt.config.substr(0, size));
    EXPECT_THROW((void)GptModel::load(directory_), Error) << size;
  }
  fs::remove(directory_ / "config.json");
  io::expect_error(ErrorKind::io, {"config.json"}, [&] { (void)GptModel::load(directory_); });
}

}  // namespace
}  // namespace qkv::testing
