// Prepared blocks against the functions for one call, which are tested against an independent
// evaluation (tests/blocks_test.cc has the prepared ones at real sizes too).

#include "qkv/prepared.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "blocks/prepared/scope.h"
#include "tests/block_trace.h"

namespace qkv::testing {
namespace {

Tensor narrow(const Tensor& t) { return Tensor::copy_of(t.view(), DType::f32); }

// Weights of width d, in f64 and f32.
struct Mha {
  std::int64_t heads;
  Tensor in, in_bias, out, out_bias;
  Mha(std::int64_t d, std::int64_t heads_, std::uint64_t seed)
      : heads(heads_),
        in(random_tensor({3 * d, d}, seed, 0.3)),
        in_bias(random_tensor({3 * d}, seed + 1, 0.2)),
        out(random_tensor({d, d}, seed + 2, 0.3)),
        out_bias(random_tensor({d}, seed + 3, 0.2)) {}
  TransformerWeights transformer() const {
    return TransformerWeights::from_packed(in, in_bias, out, out_bias, heads);
  }
  VitWeights vit() const { return {{in, in_bias}, {out, out_bias}, {}, {}, heads}; }
  GptWeights gpt() const { return {{in, in_bias}, {out, out_bias}, heads}; }
};

// Sums of a few dozen numbers of size 1 to 10, one after another: far below this in f32.
constexpr double kClose = 2e-4;
// Both in f64, in different orders.
constexpr double kCloseF64 = 1e-12;

TEST(PreparedAttention, IsTheBlockForOneCall) {
  const Mha w(24, 3, 1);
  const Tensor x = random_tensor({2, 7, 24}, 9), x32 = narrow(x);
  Tensor expected(DType::f64, x.shape()), out(DType::f64, x.shape()), out32(DType::f32, x.shape());
  const auto check = [&](const auto& weights, const BlockOptions& options) {
    const PreparedAttention prepared(weights);
    prepared.forward(x, out, options);
    EXPECT_LE(max_difference(out, expected), kCloseF64);
    prepared.forward(x32, out32, options);
    EXPECT_LE(max_difference(out32, expected), kClose);
  };
  transformer_forward(w.transformer(), x, expected);
  check(w.transformer(), {});
  vit_forward(w.vit(), x, expected);
  check(w.vit(), {});
  gpt_forward(w.gpt(), x, expected);
  check(w.gpt(), {});

  VitWeights normed = w.vit();
  const Tensor g = random_tensor({8}, 20), b = random_tensor({8}, 21);
  normed.q_norm = NormWeights{g, b};
  normed.k_norm = NormWeights{b, {}, 1e-6, NormKind::rms};
  vit_forward(normed, x, expected);
  check(normed, {});

  const std::int64_t lengths[] = {7, 3};
  const Tensor bias = random_tensor({2, 1, 7, 7}, 22);
  BlockOptions options;
  options.attention.key_lengths = TensorView::of(lengths);
  options.attention.bias = bias;
  options.attention.window = {2, 1};
  options.attention.scale = 0.7;
  transformer_forward(w.transformer(), x, expected, options);
  {
    const PreparedAttention prepared(w.transformer());
    prepared.forward(x, out, options);
    EXPECT_LE(max_difference(out, expected), kCloseF64);
  }
}

TEST(PreparedAttention, GroupedHeadsAndOddWidths) {
  const Tensor q = random_tensor({12, 10}, 1, 0.3), k = random_tensor({6, 10}, 2, 0.3);
  const Tensor v = random_tensor({10, 10}, 3, 0.3), o = random_tensor({7, 20}, 4, 0.3);
  const Tensor kb = random_tensor({6}, 5);
  const TransformerWeights w{{q, {}}, {k, kb}, {v, {}}, {o, {}}, 4, 2};  // d_k 3, d_v 5
  const Tensor x = random_tensor({3, 5, 10}, 6);
  Tensor expected(DType::f64, {3, 5, 7}), out(DType::f64, {3, 5, 7});
  transformer_forward(w, x, expected);
  const PreparedAttention prepared(w);
  prepared.forward(x, out);
  EXPECT_LE(max_difference(out, expected), kCloseF64);
  const Tensor memory = random_tensor({3, 9, 10}, 7);
  transformer_forward(w, x, memory, expected);
  PreparedCrossAttention(w).forward(x, memory, out);
  EXPECT_LE(max_difference(out, expected), kCloseF64);
}

// A batch that is dealt out to threads in pieces, with options that differ from entry to entry.
TEST(PreparedAttention, SequencesAreOnTheirOwn) {
  constexpr std::int64_t B = 19, T = 11, d = 16;
  ASSERT_GT(sequences_together(B, T, 2), 0);
  ASSERT_EQ(sequences_together(B, T, 1), 0);
  const Mha w(d, 2, 5);
  const Tensor x = random_tensor({B, T, d}, 6), x32 = narrow(x);
  const Tensor bias = random_tensor({B, 1, 1, T}, 7, 1, DType::f32);
  std::vector<std::int64_t> lengths, offsets;
  for (std::int64_t b = 0; b < B; ++b) lengths.push_back(b % (T + 1)), offsets.push_back(b % 3);
  BlockOptions options;
  options.attention.key_lengths = TensorView::of(lengths);
  options.attention.offsets = TensorView::of(offsets);
  options.attention.causal = Causal::aligned;
  options.attention.bias = bias;
  Tensor expected(DType::f64, x.shape());
  transformer_forward(w.transformer(), x, expected, options);
  const PreparedAttention prepared(w.transformer());
  for (const int threads : {1, 2, 3}) {
    options.threads = threads;
    Tensor out(DType::f32, x.shape()), again(DType::f32, x.shape());
    prepared.forward(x32, out, options);
    EXPECT_LE(max_difference(out, expected), kClose) << threads;
    prepared.forward(x32, again, options);
    EXPECT_TRUE(same_bits(out, again));
  }
  // A bad length in a later entry: nothing is written.
  lengths.back() = T + 1;
  Tensor untouched(DType::f32, x.shape());
  expect_refused(untouched, "PreparedAttention", "key_lengths[18]",
                 [&] { prepared.forward(x32, untouched, options); });
}

TEST(PreparedAttention, LayoutsAndDtypes) {
  const Mha w(8, 2, 1);
  const Tensor x = random_tensor({2, 5, 8}, 2);
  Tensor expected(DType::f64, x.shape());
  vit_forward(w.vit(), x, expected);
  const PreparedAttention prepared(w.vit());
  const Tensor across = Tensor::copy_of(x.view().permute({2, 1, 0}), DType::f32);
  Tensor out(DType::f32, {8, 2, 5});
  prepared.forward(across.view().permute({2, 1, 0}), out.view().permute({1, 2, 0}));
  EXPECT_LE(max_difference(out.view().permute({1, 2, 0}), expected), kClose);
  const Tensor half = Tensor::copy_of(x.view(), DType::bf16);
  Tensor exact(DType::f32, x.shape()), rounded(DType::bf16, x.shape());
  prepared.forward(half, exact);
  prepared.forward(half, rounded);
  EXPECT_LE(max_difference(rounded, exact), 0x1p-8 * 8);
  EXPECT_GT(max_difference(exact, expected), 0);
}

TEST(PreparedAttention, Empty) {
  const Mha w(8, 2, 1);
  const PreparedAttention prepared(w.vit());
  Tensor none(DType::f32, {0, 5, 8}), no_tokens(DType::f32, {3, 0, 8});
  Tensor out0(DType::f32, {0, 5, 8}), out1(DType::f32, {3, 0, 8});
  prepared.forward(none, out0);
  prepared.forward(no_tokens, out1);
}

TEST(PreparedAttention, Refuses) {
  const Mha w(8, 2, 1);
  const PreparedAttention prepared(w.vit());
  Tensor x = random_tensor({2, 5, 8}, 2), y = random_tensor({2, 5, 8}, 3);
  const auto refused = [&](const char* subject, const TensorView& in, const MutableTensorView& out,
                           const BlockOptions& options = {}) {
    expect_refused(y, "PreparedAttention", subject, [&] { prepared.forward(in, out, options); });
  };
  refused("x", {}, y);
  refused("x", x.view().select(0, 0), y);
  refused("x", x.view().slice(2, 0, 7), y);
  refused("out", x, y.view().slice(1, 0, 4));
  refused("out", x, x.view());
  BlockOptions options;
  options.threads = -1;
  refused("threads", x, y, options);
  options = {};
  options.observer = [](std::string_view, const TensorView&) {};
  refused("observer", x, y, options);
  options = {};
  options.attention.scale = std::nan("");
  refused("scale", x, y, options);
  VitWeights bad = w.vit();
  bad.heads = 3;
  expect_refused(y, "PreparedAttention", "qkv.weight", [&] { PreparedAttention{bad}; });
  TransformerWeights worse = w.transformer();
  worse.value = {};
  expect_refused(y, "PreparedAttention", "value.weight", [&] { PreparedAttention{worse}; });
}

TEST(PreparedCrossAttention, MemoryIsReadOnce) {
  const Mha w(24, 3, 1);
  const Tensor x = random_tensor({2, 4, 24}, 2), memory = random_tensor({2, 9, 24}, 3);
  Tensor expected(DType::f64, x.shape()), out(DType::f64, x.shape()), both(DType::f64, x.shape());
  transformer_forward(w.transformer(), x, memory, expected);
  const PreparedCrossAttention prepared(w.transformer());
  const PreparedCrossAttention::Memory kept = prepared.read(memory);
  prepared.forward(x, kept, out);
  EXPECT_LE(max_difference(out, expected), kCloseF64);
  prepared.forward(x, memory, both);
  EXPECT_TRUE(same_bits(out, both));
  const Tensor x32 = narrow(x);
  Tensor out32(DType::f32, x.shape());
  expect_refused(out32, "PreparedCrossAttention", "memory",
                 [&] { prepared.forward(x32, kept, out32); });
  prepared.forward(x32, memory, out32);  // f64 memory, computed in f32
  EXPECT_LE(max_difference(out32, expected), kClose);
  EXPECT_GT(prepared.plan({2, 4, 24}, {2, 9, 24}).flops, 0);
}

struct DetectorParts {
  Tensor qkv, qkv_b, proj, pe, pe_b, expand, reduce, cv1, cv2;
  DetectorParts()
      : qkv(random_tensor({2 * (2 * 3 + 5), 10, 1, 1}, 1, 0.3)),
        qkv_b(random_tensor({22}, 2)),
        proj(random_tensor({10, 10, 1, 1}, 3, 0.3)),
        pe(random_tensor({10, 1, 3, 3}, 4, 0.3)),
        pe_b(random_tensor({10}, 5)),
        expand(random_tensor({20, 10}, 6, 0.3)),
        reduce(random_tensor({10, 20}, 7, 0.3)),
        cv1(random_tensor({20, 14}, 8, 0.3)),
        cv2(random_tensor({13, 20}, 9, 0.3)) {}
  DetectorWeights attention() const { return {{qkv, qkv_b}, {proj, {}}, {pe, pe_b}, 2, 3, 5}; }
  PsaBlockWeights psa(bool shortcut) const {
    return {attention(), {expand, {}}, {reduce, {}}, shortcut};
  }
};

TEST(PreparedDetector, IsTheBlockForOneCall) {
  const DetectorParts parts;
  const Tensor x = random_tensor({2, 10, 4, 9}, 10), x32 = narrow(x);
  Tensor expected(DType::f64, x.shape()), out(DType::f64, x.shape()), out32(DType::f32, x.shape());
  const auto check = [&](const auto& prepared) {
    prepared.forward(x, out);
    EXPECT_LE(max_difference(out, expected), kCloseF64);
    prepared.forward(x32, out32);
    EXPECT_LE(max_difference(out32, expected), kClose);
    Tensor half(DType::bf16, x.shape());  // no rounding before the end
    prepared.forward(x32, half);
    EXPECT_LE(max_difference(half, Tensor::copy_of(out32.view(), DType::bf16)), 0);
  };
  detector_forward(parts.attention(), x, expected);
  check(PreparedDetector(parts.attention()));
  DetectorWeights bare = parts.attention();
  bare.proj = bare.pe = {};
  detector_forward(bare, x, expected);
  check(PreparedDetector(bare));
  for (const bool shortcut : {true, false}) {
    psa_block_forward(parts.psa(shortcut), x, expected);
    check(PreparedPsaBlock(parts.psa(shortcut)));
  }
}

// Where there are as many heads for each thread, a head stays on one: no bit changes, whatever the
// options are of each head and image.
TEST(PreparedDetector, HeadsOnThreadsOfTheirOwn) {
  const DetectorParts parts;
  constexpr std::int64_t B = 2, heads = 2, H = 7, W = 11, N = H * W;
  const Tensor x = random_tensor({B, 10, H, W}, 10), x32 = narrow(x);
  const Tensor slopes = random_tensor({heads}, 11, 0.1), sinks = random_tensor({heads}, 12);
  const Tensor bias = random_tensor({heads, N, N}, 13), other = random_tensor({B, heads, 1, N}, 14);
  Tensor mask(DType::boolean, {B, 1, N, N}), lengths(DType::i64, {B}), prefix(DType::i64, {B});
  std::uint64_t state = 1;
  for (bool& m : mask.as<bool>()) m = ((state = state * 69069 + 5) >> 16 & 1) != 0;
  lengths.as<std::int64_t>()[0] = N - 3;
  lengths.as<std::int64_t>()[1] = N;
  prefix.as<std::int64_t>()[0] = 0;
  prefix.as<std::int64_t>()[1] = 9;
  std::vector<AttentionOptions> cases(4);
  cases[1].alibi = slopes;
  cases[1].sinks = sinks;
  cases[1].bias = bias;
  cases[2].mask = mask;
  cases[2].bias = other;
  cases[2].key_lengths = lengths;
  cases[3].prefix = prefix;
  cases[3].causal = Causal::top_left;
  cases[3].softcap = 3;
  const auto run = [&](const PreparedDetector& prepared, const Tensor& in,
                       const AttentionOptions& attention, int threads) {
    BlockOptions options;
    options.attention = attention;
    options.threads = threads;
    Tensor out(in.dtype(), x.shape());
    prepared.forward(in, out, options);
    return out;
  };
  for (const WeightStorage storage :
       {WeightStorage::as_given, WeightStorage::f32, WeightStorage::bf16, WeightStorage::i8}) {
    PrepareOptions prepare;
    prepare.storage = storage;
    const PreparedDetector prepared(parts.attention(), prepare);
    for (std::size_t n = 0; n < cases.size(); ++n) {
      BlockOptions options;
      options.attention = cases[n];
      Tensor expected(DType::f64, x.shape());
      detector_forward(parts.attention(), x, expected, options);
      for (const Tensor* in : {&x, &x32}) {
        AttentionOptions attention = cases[n];
        Tensor narrower;
        if (in == &x32 && attention.bias.has_value()) {
          narrower = Tensor::copy_of(attention.bias, DType::f32);
          attention.bias = narrower;
        }
        const Tensor one = run(prepared, *in, attention, 1);
        if (storage == WeightStorage::as_given) {
          EXPECT_LE(max_difference(one, expected), in == &x ? kCloseF64 : kClose) << n;
        }
        for (const int threads : {2, 3, 4, 8}) {
          EXPECT_TRUE(same_bits(run(prepared, *in, attention, threads), one))
              << name_of(storage) << ", case " << n << ", " << threads << " threads";
        }
      }
    }
  }
  // Where there are not, each step is on all threads.
  const PreparedDetector prepared(parts.attention());
  const auto text = [&](int threads) {
    return to_string(prepared.plan({B, 10, H, W}, {.threads = threads}));
  };
  EXPECT_NE(text(4).find("by heads"), std::string::npos) << text(4);
  for (const int threads : {1, 3, 8}) {
    EXPECT_EQ(text(threads).find("by heads"), std::string::npos) << text(threads);
  }
  BlockOptions apart;  // attention may have threads of its own
  apart.threads = 4;
  apart.attention.threads = 1;
  EXPECT_EQ(to_string(prepared.plan({B, 10, H, W}, apart)).find("by heads"), std::string::npos);
  Tensor none(DType::f32, {0, 10, H, W}), no_out(DType::f32, {0, 10, H, W});
  prepared.forward(none, no_out, {.threads = 2});
}

TEST(PreparedC2psa, IsTheBlockForOneCall) {
  const DetectorParts parts;
  const Tensor x = random_tensor({2, 14, 5, 6}, 11), x32 = narrow(x);
  const C2psaWeights w{{parts.cv1, {}}, {parts.cv2, {}}, {parts.psa(true), parts.psa(true)}};
  Tensor expected(DType::f64, {2, 13, 5, 6}), out(DType::f64, {2, 13, 5, 6});
  Tensor out32(DType::f32, {2, 13, 5, 6});
  c2psa_forward(w, x, expected);
  const PreparedC2psa prepared(w);
  prepared.forward(x, out);
  EXPECT_LE(max_difference(out, expected), kCloseF64);
  prepared.forward(x32, out32);
  EXPECT_LE(max_difference(out32, expected), kClose);
  // An image whose channels lie last.
  const Tensor last = Tensor::copy_of(x32.view().permute({0, 2, 3, 1}));
  Tensor strided(DType::f32, {2, 5, 6, 13});
  prepared.forward(last.view().permute({0, 3, 1, 2}), strided.view().permute({0, 3, 1, 2}));
  EXPECT_LE(max_difference(strided.view().permute({0, 3, 1, 2}), expected), kClose);

  Tensor y = random_tensor({2, 13, 5, 6}, 1);
  expect_refused(y, "PreparedC2psa", "x", [&] { prepared.forward(x.view().slice(1, 0, 13), y); });
  expect_refused(y, "PreparedC2psa", "out", [&] { prepared.forward(x, y.view().slice(1, 0, 12)); });
  C2psaWeights bad = w;
  bad.blocks[1].reduce = {parts.expand, {}};
  expect_refused(y, "PreparedC2psa", "blocks.1.reduce.weight", [&] { PreparedC2psa{bad}; });
  const BlockPlan plan = prepared.plan({2, 14, 5, 6});
  EXPECT_NE(to_string(plan).find("blocks.1.ffn.expand"), std::string::npos);
  EXPECT_GT(plan.workspace, 0);
}

// Threads take pieces of an image through several products at once, where it is large enough: no
// bit depends on how many there are, and no piece writes what another one still reads.
TEST(PreparedC2psa, PiecesOfPixelsChangeNoBit) {
  const DetectorParts parts;
  const Tensor wide = random_tensor({40, 10}, 12, 0.3), back = random_tensor({10, 40}, 13, 0.3);
  PsaBlockWeights wider = parts.psa(true);  // its hidden channels need more room than q, k and v
  wider.expand = {wide, {}};
  wider.reduce = {back, {}};
  const C2psaWeights w{{parts.cv1, {}}, {parts.cv2, {}}, {parts.psa(true), wider}};
  const PreparedC2psa prepared(w);
  for (const Dims& size :
       {Dims{1, 14, 11, 17}, Dims{1, 14, 13, 25}, Dims{2, 14, 8, 24}, Dims{3, 14, 20, 20}}) {
    const Tensor large = random_tensor({size[0], 14, size[2], size[3] + 3}, 14, 1, DType::f32);
    const Tensor dense = Tensor::copy_of(large.view().slice(3, 0, size[3]));
    const Dims shape{size[0], 13, size[2], size[3]};
    Tensor expected(DType::f64, shape), one(DType::f32, shape);
    c2psa_forward(w, Tensor::copy_of(dense.view(), DType::f64), expected);
    prepared.forward(dense, one, {.threads = 1});
    EXPECT_LE(max_difference(one, expected), kClose);
    for (const int threads : {2, 3, 5}) {
      Tensor out(DType::f32, shape), gaps(DType::f32, shape);
      BlockProfile profile;
      BlockOptions options;
      options.threads = threads;
      options.profile = &profile;
      prepared.forward(dense, out, options);
      EXPECT_TRUE(same_bits(out, one)) << to_string(size) << " on " << threads;
      prepared.forward(large.view().slice(3, 0, size[3]), gaps, {.threads = threads});
      EXPECT_TRUE(same_bits(gaps, one)) << to_string(size) << " on " << threads;
      std::string names;
      for (const BlockProfile::Step& step : profile.steps) names += step.name + " ";
      EXPECT_EQ(profile.steps.size(), 8U) << names;
    }
  }
}

// The same without shortcuts, projections or positions, into 16 bits, of channels that lie last,
// and in f64.
TEST(PreparedC2psa, PiecesOfPixelsWhateverTheBlockIs) {
  const DetectorParts parts;
  PsaBlockWeights bare = parts.psa(false);
  bare.attention.proj = bare.attention.pe = {};
  PsaBlockWeights with_shortcut = bare;
  with_shortcut.shortcut = true;
  const PreparedC2psa prepared({{parts.cv1, {}}, {parts.cv2, {}}, {bare, with_shortcut}});
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = random_tensor({2, 14, 10, 26}, 14, 1, dtype);
    const Tensor last = Tensor::copy_of(x.view().permute({0, 2, 3, 1}));
    const Dims shape{2, 13, 10, 26};
    Tensor one(dtype, shape), half(DType::bf16, shape);
    prepared.forward(x, one, {.threads = 1});
    prepared.forward(x, half, {.threads = 1});
    for (const int threads : {2, 3}) {
      const BlockOptions options{.threads = threads};
      Tensor out(dtype, shape), out_half(DType::bf16, shape), out_last(dtype, {2, 10, 26, 13});
      prepared.forward(x, out, options);
      EXPECT_TRUE(same_bits(out, one)) << name_of(dtype) << " on " << threads;
      prepared.forward(x, out_half, options);
      EXPECT_TRUE(same_bits(out_half, half)) << name_of(dtype) << " on " << threads;
      prepared.forward(last.view().permute({0, 3, 1, 2}), out_last.view().permute({0, 3, 1, 2}),
                       options);
      EXPECT_TRUE(same_bits(Tensor::copy_of(out_last.view().permute({0, 3, 1, 2})), one))
          << name_of(dtype) << " on " << threads << ", channels last";
    }
  }
  Tensor none(DType::f32, {0, 14, 10, 26}), no_out(DType::f32, {0, 13, 10, 26});
  prepared.forward(none, no_out, {.threads = 2});
}

// Several calls at once share the weights, not the memory.
TEST(Prepared, CallsAtOnce) {
  const Mha w(24, 3, 1);
  const PreparedAttention prepared(w.vit());
  const Tensor a = random_tensor({1, 50, 24}, 2, 1, DType::f32);
  const Tensor b = random_tensor({1, 70, 24}, 3, 1, DType::f32);
  Tensor out_a(DType::f32, a.shape()), out_b(DType::f32, b.shape());
  prepared.forward(a, out_a, {.threads = 1});
  prepared.forward(b, out_b, {.threads = 1});
  const auto repeat = [&](const Tensor& x, const Tensor& expected) {
    for (int i = 0; i < 20; ++i) {
      Tensor out(DType::f32, x.shape());
      prepared.forward(x, out, {.threads = 1});
      EXPECT_TRUE(same_bits(out, expected));
    }
  };
  std::thread one([&] { repeat(a, out_a); }), two([&] { repeat(b, out_b); });
  one.join();
  two.join();
}

TEST(Prepared, ProfileAddsUp) {
  const Mha w(24, 3, 1);
  const PreparedAttention prepared(w.vit());
  const Tensor x = random_tensor({1, 50, 24}, 2, 1, DType::f32);
  Tensor out(DType::f32, x.shape());
  BlockProfile profile;
  BlockOptions options;
  options.profile = &profile;
  prepared.forward(x, out, options);
  const double once = profile.steps.at(0).seconds;
  prepared.forward(x, out, options);
  ASSERT_EQ(profile.steps.size(), 3U);
  EXPECT_EQ(profile.steps[0].name, "qkv");
  EXPECT_EQ(profile.steps[1].name, "attention");
  EXPECT_EQ(profile.steps[2].name, "output");
  EXPECT_GT(once, 0);
  EXPECT_GT(profile.steps[0].seconds, once);
}

}  // namespace
}  // namespace qkv::testing
