#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "qkv/attention.h"
#include "qkv/file.h"

namespace qkv::cli {

// The options of attention as flags, named as the arguments of the Python function with dashes for
// underscores; shared by the commands that run attention.
class AttentionFlags {
 public:
  // The flags belong to this object, which has to outlive parsing.
  void add_to(Command& command);

  struct Options {
    AttentionOptions options;
    std::vector<FileTensor> owners;  // of what the options view
  };
  Options load() const;
  int threads() const noexcept { return threads_; }
  // The arguments that may name files.
  std::vector<std::string> files() const;

 private:
  std::string mask_, bias_, causal_ = "none", offset_, prefix_, key_lengths_, alibi_, sinks_;
  std::string query_starts_, key_starts_;
  std::vector<std::int64_t> window_;
  std::optional<double> scale_, softcap_;
  std::string kernel_ = "automatic", target_ = "automatic";
  int threads_ = 0;
};

}  // namespace qkv::cli
