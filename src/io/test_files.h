#pragma once

// What the tests of src/io share: files made of given bytes, and how a refusal looks.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "io/element_stream.h"
#include "qkv/error.h"
#include "qkv/tensor.h"

namespace qkv::io {

// A test with a directory of its own, which goes away with it.
class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "qkv-io-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  std::filesystem::path path(std::string_view name) const { return directory_ / name; }

  std::filesystem::path file(std::string_view name, std::string_view content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(directory_), {}));
  }

  std::filesystem::path directory_;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// All elements in row-major order, as bytes: reads each of them once.
inline std::string bytes_of(const TensorView& view) {
  std::string out;
  ElementStream stream(view);
  for (Bytes piece = stream.next(); !piece.empty(); piece = stream.next()) out += as_text(piece);
  return out;
}

// fn throws an Error of that kind, whose message has all the fragments.
inline void expect_error(ErrorKind kind, std::initializer_list<std::string_view> fragments,
                         const std::function<void()>& fn) {
  try {
    fn();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), kind) << message;
    for (const std::string_view fragment : fragments) {
      EXPECT_NE(message.find(fragment), std::string::npos)
          << "no '" << fragment << "' in: " << message;
    }
  }
}

// Every proper prefix of `content` is refused by an Error.
template <typename Load>
void expect_prefixes_refused(const std::filesystem::path& path, std::string_view content,
                             Load&& load) {
  for (std::size_t size = 0; size < content.size(); ++size) {
    std::ofstream(path, std::ios::binary) << content.substr(0, size);
    EXPECT_THROW(load(path), Error) << "cut at byte " << size;
  }
}

// With any one of the first `size` bytes' bits flipped, `load` throws an Error or returns; what it
// reads on the way is for the sanitizer to judge.
template <typename Load>
void expect_flips_survived(const std::filesystem::path& path, std::string content, std::size_t size,
                           Load&& load) {
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < size * 8; ++bit) {
    const char mask = static_cast<char>(1 << (bit % 8));
    content[bit / 8] ^= mask;
    std::ofstream(path, std::ios::binary) << content;
    try {
      load(path);
    } catch (const Error&) {
      ++refused;
    }
    content[bit / 8] ^= mask;
  }
  EXPECT_GT(refused, size);  // most of them matter
}

}  // namespace qkv::io
