#pragma once

// Checkpoints for tests: tensors of random numbers under given names, in a real file.

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "models/weight_file.h"
#include "qkv/safetensors.h"
#include "qkv/tensor.h"

namespace qkv {

class Checkpoint {
 public:
  // A tensor of numbers in (low, high), always the same ones for the n-th call.
  TensorView add(const std::string& name, const Dims& shape, double low = -1, double high = 1) {
    Tensor tensor(DType::f32, shape);
    std::uniform_real_distribution<float> numbers(static_cast<float>(low),
                                                  static_cast<float>(high));
    for (float& value : tensor.as<float>()) value = numbers(random_);
    return add(name, std::move(tensor));
  }
  TensorView add(const std::string& name, Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    const TensorView view = std::as_const(tensors_.back()).view();
    named_.push_back({name, view});
    by_name_[name] = view;
    return view;
  }
  void remove(const std::string& name) {
    std::erase_if(named_, [&](const NamedTensor& tensor) { return tensor.name == name; });
  }

  const TensorView& operator[](const std::string& name) const { return by_name_.at(name); }
  const std::vector<NamedTensor>& named() const { return named_; }

  void save(const std::filesystem::path& path) const { save_safetensors(path, named_); }

  // Written and opened again; what was opened does not need the file's name any more.
  WeightFile file() const {
    std::string pattern = ::testing::TempDir() + "qkv-models-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    const std::filesystem::path path = std::filesystem::path(pattern) / "w.safetensors";
    save(path);
    WeightFile opened = WeightFile::open(path);
    std::filesystem::remove_all(pattern);
    return opened;
  }

 private:
  std::mt19937 random_{1};
  std::deque<Tensor> tensors_;
  std::vector<NamedTensor> named_;
  std::map<std::string, TensorView> by_name_;
};

// One of Ultralytics' modules Conv, with the buffer that is no weight.
inline void add_conv_module(Checkpoint& checkpoint, const std::string& name, const Dims& shape) {
  checkpoint.add(name + ".conv.weight", shape);
  checkpoint.add(name + ".bn.weight", {shape[0]}, 0.5, 2);
  checkpoint.add(name + ".bn.bias", {shape[0]});
  checkpoint.add(name + ".bn.running_mean", {shape[0]});
  checkpoint.add(name + ".bn.running_var", {shape[0]}, 0.5, 2);
  checkpoint.add(name + ".bn.num_batches_tracked", Tensor(DType::i64, {}));
}

// The convolutions of a PSABlock of c channels; `prefix` ends with a dot or is empty.
inline void add_attention_modules(Checkpoint& checkpoint, const std::string& prefix, std::int64_t c,
                                  std::int64_t qkv_channels) {
  add_conv_module(checkpoint, prefix + "qkv", {qkv_channels, c, 1, 1});
  add_conv_module(checkpoint, prefix + "proj", {c, c, 1, 1});
  add_conv_module(checkpoint, prefix + "pe", {c, 1, 3, 3});
}

inline void add_psa_modules(Checkpoint& checkpoint, const std::string& prefix, std::int64_t c) {
  add_attention_modules(checkpoint, prefix + "attn.", c, 2 * c);  // attn_ratio 0.5
  add_conv_module(checkpoint, prefix + "ffn.0", {2 * c, c, 1, 1});
  add_conv_module(checkpoint, prefix + "ffn.1", {c, 2 * c, 1, 1});
}

}  // namespace qkv
