#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/tensor_argument.h"
#include "qkv/tensor.h"

namespace qkv::cli {

class Stopwatch {
 public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// What a command that wrote a tensor says at the end: a line, or an object of JSON.
class Summary {
 public:
  Summary(const OutputFile& file, const TensorView& result, double milliseconds);

  // Something else about it: "block", "gpt". Numbers stand as numbers in JSON.
  void add(std::string key, std::string value) { facts_.push_back({std::move(key), value, false}); }
  void add(std::string key, std::int64_t value) {
    facts_.push_back({std::move(key), std::to_string(value), true});
  }

  // To context.out, or to context.err if the result itself went to a stream (--output /dev/stdout).
  void print(bool json, Context& context) const;

 private:
  struct Fact {
    std::string key, value;
    bool is_number;
  };
  std::string path_, dtype_;
  Dims shape_;
  double milliseconds_;
  bool stream_;
  std::vector<Fact> facts_;
};

}  // namespace qkv::cli
