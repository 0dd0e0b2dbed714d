// Attention with every number shown: four pixels, one head, through the detector's block, whose own
// intermediates are printed as it computes them.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/detector.h"
#include "qkv/tensor.h"

namespace {

using Lines = std::vector<std::string>;

// Columns on the screen: bytes of UTF-8 that do not continue a character.
std::size_t width(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

std::string pad(std::string text, std::size_t columns) {
  const std::size_t has = width(text);
  return has < columns ? text + std::string(columns - has, ' ') : text;
}

// A matrix [rows, columns] under its title, one line a row, `decimals` after the point.
Lines matrix(const std::string& title, const qkv::TensorView& m, int decimals,
             std::string_view row_name = "") {
  Lines lines{title};
  for (std::int64_t r = 0; r < m.dim(0); ++r) {
    std::string line = row_name.empty() ? "" : std::string(row_name) + std::to_string(r) + "  ";
    for (std::int64_t c = 0; c < m.dim(1); ++c) {
      char number[32];
      std::snprintf(number, sizeof number, "%.*f", decimals, m.at({r, c}));
      line += (c == 0 ? "" : "  ") + std::string(number);
    }
    lines.push_back(line);
  }
  return lines;
}

void say(const std::string& line) { std::printf("%s\n", line.c_str()); }

// Matrices side by side, and an empty line.
void show(const std::vector<Lines>& blocks) {
  std::size_t height = 0;
  for (const Lines& block : blocks) height = std::max(height, block.size());
  for (std::size_t i = 0; i < height; ++i) {
    std::string line = "    ";
    for (const Lines& block : blocks) {
      std::size_t columns = 0;
      for (const std::string& text : block) columns = std::max(columns, width(text));
      line += pad(i < block.size() ? block[i] : "", columns + 6);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    say(line);
  }
  say("");
}

// [out, in] weights of one convolution from three maps [in, out].
std::vector<double> fused(const std::vector<qkv::TensorView>& maps) {
  std::vector<double> rows;
  for (const qkv::TensorView& w : maps) {
    for (std::int64_t o = 0; o < w.dim(1); ++o) {
      for (std::int64_t i = 0; i < w.dim(0); ++i) rows.push_back(w.at({i, o}));
    }
  }
  return rows;
}

std::string shape(const qkv::Tensor& tensor) { return qkv::to_string(tensor.shape()); }

void run() {
  using Numbers = std::vector<double>;
  const Numbers pixels{1, 0, 1, 2, 2, 1, 0, 2, 3, 0, 1, 2, 4, 1, 0, 2};
  const Numbers q_map{1, 0, 0, 0, 0, 1, 0, 0}, k_map{0, 1, 1, 0, 0, 0, 0, 0};
  const Numbers v_map{0, 0, 0, 1, 1, 0, 0, 0};
  const auto view = [](const Numbers& numbers, const qkv::Dims& dims) {
    return qkv::TensorView::of(std::span<const double>(numbers), dims);
  };
  const auto x = view(pixels, {4, 4});
  const auto wq = view(q_map, {4, 2}), wk = view(k_map, {4, 2}), wv = view(v_map, {4, 2});

  // The image [B, C, H, W] is the same numbers, seen with other strides.
  const qkv::TensorView image(x.data(), x.dtype(), {1, 4, 2, 2}, {16, 1, 8, 4});
  const Numbers weight = fused({wq, wk, wv});
  qkv::DetectorWeights weights;
  weights.qkv.weight = view(weight, {6, 4});
  weights.heads = 1;
  weights.key_dim = 2;
  weights.head_dim = 2;

  std::map<std::string, qkv::Tensor, std::less<>> steps;
  qkv::BlockOptions options;
  options.observer = [&](std::string_view step, const qkv::TensorView& value) {
    steps[std::string(step)] = qkv::Tensor::copy_of(value);
  };
  qkv::Tensor out(qkv::DType::f64, {1, 2, 2, 2});
  qkv::detector_forward(weights, image, out, options);

  // One batch entry, one head: [1, 1, rows, columns].
  const auto plain = [&](const char* step) {
    return steps.at(step).view().select(0, 0).select(0, 0);
  };
  const auto by_token = [&](const char* step) { return plain(step).transpose(0, 1); };

  say("Four pixels that look at each other");
  say("===================================");
  say("");
  say("1. An image of 2×2 pixels with 4 channels is 4 tokens (p0 to p3) of 4 numbers.");
  say("");
  show({matrix("    X [4, 4]", x, 0, "p")});
  say("2. Three linear maps, the same for every pixel: Wq picks channels 0 and 2, Wk picks 1 and");
  say("   0, Wv picks 2 and 1. In the block they are one 1×1 convolution.");
  say("");
  show({matrix("Wq [4, 2]", wq, 0), matrix("Wk [4, 2]", wk, 0), matrix("Wv [4, 2]", wv, 0)});
  say("3. One pixel, three roles: what it asks (Q), what it is compared by (K), and what it "
      "passes");
  say("   on (V). The convolution gives " + shape(steps.at("qkv")) + ", which splits into three " +
      shape(steps.at("query")) + ":");
  say("   channels first. Here are its columns as rows, one a pixel.");
  say("");
  show({matrix("    Q = X·Wq", by_token("query"), 0, "p"),
        matrix("    K = X·Wk", by_token("key"), 0, "p"),
        matrix("    V = X·Wv", by_token("value"), 0, "p")});
  say("4. Scores: how well each pixel's question (row) meets each pixel's key (column), divided "
      "by");
  say("   √key_dim = √2.");
  say("");
  show({matrix("    Q·Kᵀ / √2 " + shape(steps.at("scores")), plain("scores"), 6, "p")});
  say("5. Weights: softmax makes each row positive and its sum 1.");
  say("");
  show({matrix("    softmax(Q·Kᵀ / √2) " + shape(steps.at("weights")), plain("weights"), 6, "p")});
  say("6. Output: each pixel takes the weighted mean of all values.");
  say("");
  show({matrix("    out = weights·V, as an image " + shape(out), by_token("heads"), 6, "p")});
  say("p0 and p1 get the same mix, and so do p2 and p3: other weights, but the same sum over the");
  say("pixels that hold the value (1, 0) and over those that hold (0, 1).");
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  // A full disk or a closed pipe shows when the last bytes leave.
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : 1;
}
