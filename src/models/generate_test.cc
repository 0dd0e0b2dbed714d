#include "qkv/generate.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "io/tokenizer/test_tokenizers.h"
#include "tests/gpt_folder.h"

namespace qkv::testing {
namespace {

// A GPT whose only say is in its positions: after position p it gives the p-th of the given tokens.
// Embeddings are 0, positions unit vectors, layers add nothing, and the head maps position to
// token.
class Parrot : public GptFolderTest {
 protected:
  GptModel parrot(const std::vector<std::int32_t>& says, bool tokenizer = true) {
    return parrot(says, tokenizer ? io::small_byte_level().json() : "");
  }
  GptModel parrot(const std::vector<std::int32_t>& says, const std::string& tokenizer) {
    const auto n = static_cast<std::int64_t>(says.size());
    const std::int64_t V = 290;
    Checkpoint checkpoint;
    const auto zeros = [&](const std::string& name, const Dims& shape) {
      checkpoint.add(name, Tensor(DType::f32, shape));
    };
    zeros("wte.weight", {V, n});
    Tensor positions(DType::f32, {n, n}), head(DType::f32, {V, n}), ones(DType::f32, {n});
    for (std::int64_t p = 0; p < n; ++p) {
      positions.view().set({p, p}, 1);
      head.view().set({says[static_cast<std::size_t>(p)], p}, 9);
      ones.view().set({p}, 1);
    }
    checkpoint.add("wpe.weight", std::move(positions));
    for (const char* norm : {"h.0.ln_1", "h.0.ln_2"}) zeros(std::string(norm) + ".weight", {n});
    checkpoint.add("ln_f.weight", std::move(ones));
    zeros("h.0.attn.c_attn.weight", {3 * n, n});
    zeros("h.0.attn.c_proj.weight", {n, n});
    zeros("h.0.mlp.c_fc.weight", {4 * n, n});
    zeros("h.0.mlp.c_proj.weight", {n, 4 * n});
    checkpoint.add("lm_head.weight", std::move(head));
    checkpoint.save(path("model.safetensors"));
    file("config.json", R"({"n_layer": 1, "n_head": 1, "vocab_size": 290, "bias": false,
                            "eos_token_id": 269, "n_embd": )" +
                            std::to_string(n) + R"(, "block_size": )" + std::to_string(n) + "}");
    if (!tokenizer.empty()) file("tokenizer.json", tokenizer);
    return GptModel::load(directory_);
  }

  // What it says after one token, and why it ends.
  std::pair<std::string, GenerateEnd> said(const GptModel& model, GenerateOptions options,
                                           std::int32_t after = 'x') {
    options.sampler.temperature = 0;
    DecoderSession session(model.decoder());
    Generator generator(model, session, std::vector<std::int32_t>{after}, options);
    std::string text;
    pieces_.clear();
    while (const auto token = generator.next()) {
      EXPECT_TRUE(io::is_utf8(token->text));
      pieces_.push_back(token->text);
      text += token->text;
    }
    EXPECT_FALSE(generator.next());
    return {text + generator.rest(), generator.end()};
  }

  std::vector<std::string> pieces_;
};

using Said = std::pair<std::string, GenerateEnd>;

TEST_F(Parrot, SaysItAndEnds) {
  const GptModel model = parrot({'a', 'b', 259, 'c', 269, 'd'});
  EXPECT_EQ(said(model, {}), (Said{"abhelloc", GenerateEnd::end_token}));
  EXPECT_EQ(said(model, {.max_tokens = 3}), (Said{"abhello", GenerateEnd::max_tokens}));
  EXPECT_EQ(said(model, {.max_tokens = 0}), (Said{"", GenerateEnd::max_tokens}));
  EXPECT_EQ(said(model, {.stop_at_end = false}), (Said{"abhellocd", GenerateEnd::context}));
  EXPECT_EQ(pieces_, (std::vector<std::string>{"a", "b", "hello", "c", "", "d"}));
}

TEST_F(Parrot, StopsAtTexts) {
  const GptModel model = parrot({'a', 'b', 259, 'c', 'a', 'b', 'd', 269});
  EXPECT_EQ(said(model, {.stop = {"bhe"}}), (Said{"a", GenerateEnd::stop_text}));
  EXPECT_EQ(said(model, {.stop = {"zz", "abd"}}), (Said{"abhelloc", GenerateEnd::stop_text}));
  EXPECT_EQ(pieces_.back(), "");
  EXPECT_EQ(said(model, {.stop = {"ell", "lo"}}), (Said{"abh", GenerateEnd::stop_text}));
  // What looked like a stop text, and was none, comes after all.
  EXPECT_EQ(said(model, {.stop = {"bd!"}}), (Said{"abhellocabd", GenerateEnd::end_token}));
}

TEST_F(Parrot, HoldsBackCharactersThatAreNotWhole) {
  const GptModel model = parrot({0xf0, 0x9f, 0x99, 0x82, 0xe1, 'a', 0xe1, 269});
  EXPECT_EQ(said(model, {}), (Said{"\U0001f642\ufffd"
                                   "a\ufffd",
                                   GenerateEnd::end_token}));
  EXPECT_EQ(pieces_, (std::vector<std::string>{"", "", "", "\U0001f642", "",
                                               "\ufffd"
                                               "a",
                                               ""}));
}

// An older Llama: ▁ is 259, ▁h 275, h 260, <s> 1, byte b 3 + b.
TEST_F(Parrot, GoesOnAfterThePrompt) {
  const GptModel model =
      parrot({275, 259, 3 + 0xe1, 3 + 'A', 3 + 0xc3, 260, 289}, io::small_llama2().json());
  const std::string rest =
      "h \ufffd\ufffd\ufffd"
      "h";
  EXPECT_EQ(said(model, {}, 260), (Said{" " + rest, GenerateEnd::context}));
  // Where no text was before, the space in front is the tokenizer's.
  EXPECT_EQ(said(model, {}, 1), (Said{rest, GenerateEnd::context}));
  // A character that the prompt began.
  const GptModel other = parrot({3 + 0xa9, 260}, io::small_llama2().json());
  EXPECT_EQ(said(other, {}, 3 + 0xc3), (Said{"\u00e9h", GenerateEnd::context}));
}

TEST_F(Parrot, RefusesWhatMakesNoSense) {
  const GptModel model = parrot({'a', 'b'}, false);
  DecoderSession session(model.decoder());
  const std::vector<std::int32_t> prompt{1}, none, long_prompt{1, 2, 3};
  EXPECT_THROW(Generator(model, session, none), Error);
  EXPECT_THROW(Generator(model, session, long_prompt), Error);
  EXPECT_THROW(Generator(model, session, prompt, {.stop = {"x"}}), Error);
  EXPECT_THROW(Generator(model, session, prompt, {.max_tokens = -1}), Error);
  EXPECT_EQ(session.length(), 0);
  Generator generator(model, session, prompt, {.sampler = {.temperature = 0}});
  EXPECT_EQ(generator.next()->id, 'a');
  EXPECT_EQ(generator.next()->id, 'b');
  EXPECT_FALSE(generator.next());
  EXPECT_EQ(generator.end(), GenerateEnd::context);
}

}  // namespace
}  // namespace qkv::testing
