#pragma once

// Folders with small GPTs of random weights, for tests.

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "io/report.h"
#include "io/test_files.h"
#include "models/test_weights.h"
#include "tests/gpt_oracle.h"

namespace qkv::testing {

// A model as files, and the same numbers for the oracle.
struct TestGpt {
  OracleGpt oracle;
  Checkpoint checkpoint;
  std::string config, prefix;  // of the names: "transformer.", "model."

  TensorView add(const std::string& name, const Dims& shape, double low, double high) {
    return checkpoint.add((name == "lm_head.weight" ? "" : prefix) + name, shape, low, high);
  }
  // Numbers of a checkpoint for the oracle; views stay where they are.
  void look_up() {
    const std::map<std::string, TensorView> views = [&] {
      std::map<std::string, TensorView> all;
      for (const NamedTensor& t : checkpoint.named()) all[t.name] = t.view;
      return all;
    }();
    oracle.tensor = [views, prefix = prefix](const std::string& name) {
      const auto found = views.find((name == "lm_head.weight" ? "" : prefix) + name);
      if (found == views.end()) return Numbers();
      const Tensor wide = Tensor::copy_of(found->second, DType::f64);
      return Numbers(wide.as<double>().begin(), wide.as<double>().end());
    };
  }
  void save(const std::filesystem::path& folder) const {
    std::ofstream(folder / "config.json") << config;
    checkpoint.save(folder / "model.safetensors");
  }
};

// Hugging Face's names with Conv1D, the head tied; or minGPT's with Linear and a head of its own.
inline TestGpt small_gpt2(bool conv1d) {
  TestGpt gpt;
  OracleGpt& o = gpt.oracle;
  o.conv1d = conv1d;
  o.layers = 2;
  o.heads = o.kv_heads = 3;
  o.head_dim = 8;
  o.width = 24;
  o.hidden = 96;
  o.vocabulary = 31;
  gpt.prefix = conv1d ? "" : "transformer.";
  const auto map = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    gpt.add(name + ".weight", conv1d ? Dims{in, out} : Dims{out, in}, -0.4, 0.4);
    gpt.add(name + ".bias", {out}, -0.2, 0.2);
  };
  const auto norm = [&](const std::string& name) {
    gpt.add(name + ".weight", {24}, 0.5, 1.5);
    gpt.add(name + ".bias", {24}, -0.3, 0.3);
  };
  gpt.add("wte.weight", {31, 24}, -1, 1);
  gpt.add("wpe.weight", {20, 24}, -1, 1);
  for (int n = 0; n < 2; ++n) {
    const std::string layer = "h." + std::to_string(n) + ".";
    norm(layer + "ln_1");
    map(layer + "attn.c_attn", 24, 72);
    map(layer + "attn.c_proj", 24, 24);
    gpt.add(layer + "attn.bias", {1, 1, 20, 20}, 0, 1);
    norm(layer + "ln_2");
    map(layer + "mlp.c_fc", 24, 96);
    map(layer + "mlp.c_proj", 96, 24);
  }
  norm("ln_f");
  if (!conv1d) gpt.add("lm_head.weight", {31, 24}, -1, 1);
  gpt.config = conv1d ? R"({"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 24,
                            "vocab_size": 31, "n_positions": 20, "eos_token_id": 30})"
                      : R"({"model_type": "gpt-nano", "n_layer": 2, "n_head": 3, "n_embd": 24,
                            "vocab_size": 31, "block_size": 20})";
  gpt.look_up();
  return gpt;
}

// nanoGPT's config names no family, and has "bias"; its GELU is exact.
inline TestGpt small_nano_gpt() {
  TestGpt gpt = small_gpt2(false);
  gpt.oracle.exact_gelu = true;
  gpt.config = R"({"n_layer": 2, "n_head": 3, "n_embd": 24, "vocab_size": 31, "block_size": 20,
                   "dropout": 0.0, "bias": true})";
  return gpt;
}

inline TestGpt small_llama(bool tied = false) {
  TestGpt gpt;
  OracleGpt& o = gpt.oracle;
  o.llama = true;
  o.layers = 2;
  o.heads = 4;
  o.kv_heads = 2;
  o.head_dim = 6;
  o.width = 20;
  o.hidden = 28;
  o.vocabulary = 31;
  o.eps = 1e-6;
  o.rope_base = 500;
  gpt.prefix = "model.";
  gpt.add("embed_tokens.weight", {31, 20}, -1, 1);
  for (int n = 0; n < 2; ++n) {
    const std::string layer = "layers." + std::to_string(n) + ".";
    gpt.add(layer + "input_layernorm.weight", {20}, 0.5, 1.5);
    gpt.add(layer + "self_attn.q_proj.weight", {24, 20}, -0.5, 0.5);
    gpt.add(layer + "self_attn.k_proj.weight", {12, 20}, -0.5, 0.5);
    gpt.add(layer + "self_attn.v_proj.weight", {12, 20}, -0.5, 0.5);
    gpt.add(layer + "self_attn.o_proj.weight", {20, 24}, -0.5, 0.5);
    gpt.add(layer + "post_attention_layernorm.weight", {20}, 0.5, 1.5);
    gpt.add(layer + "mlp.gate_proj.weight", {28, 20}, -0.5, 0.5);
    gpt.add(layer + "mlp.up_proj.weight", {28, 20}, -0.5, 0.5);
    gpt.add(layer + "mlp.down_proj.weight", {20, 28}, -0.5, 0.5);
  }
  gpt.add("norm.weight", {20}, 0.5, 1.5);
  if (!tied) gpt.add("lm_head.weight", {31, 20}, -1, 1);
  gpt.config = R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
                   "num_key_value_heads": 2, "head_dim": 6, "hidden_size": 20,
                   "intermediate_size": 28, "vocab_size": 31, "max_position_embeddings": 20,
                   "rms_norm_eps": 1e-6, "rope_theta": 500, "hidden_act": "silu",
                   "eos_token_id": [30, 29], "tie_word_embeddings": )" +
               std::string(tied ? "true}" : "false}");
  gpt.look_up();
  return gpt;
}

// A test with a folder of its own.
using GptFolderTest = io::FileTest;

}  // namespace qkv::testing
