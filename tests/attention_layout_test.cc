// attention_forward reads and writes arrays where they lie. How they lie must not change a bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "qkv/attention.h"
#include "qkv/cpu.h"
#include "tests/attention_cases.h"

namespace qkv::testing {
namespace {

using Layout = Strided::Layout;

struct Sizes {
  std::int64_t heads, Tq, Tk, D, Dv;
};

// Widths that fill vectors and widths that do not; queries enough for units of which the keys and
// values are copied; one step of keys and several; a channel-first row of a multiple of 1 KB.
constexpr Sizes kSizes[] = {{6, 201, 101, 32, 32}, {1, 270, 301, 32, 64}, {2, 67, 200, 40, 48},
                            {2, 64, 256, 16, 96},  {3, 20, 20, 64, 64},   {2, 70, 150, 33, 72}};

class AttentionLayout : public ::testing::TestWithParam<Sizes> {
 protected:
  AttentionLayout() {
    Random random(11);
    for (Tensor* t : {&q, &k, &v}) fill_normal(t->view(), random);
  }

  static Strided laid(const Tensor& from, Layout layout, bool aligned) {
    Strided to(from.dtype(), from.shape(), layout, aligned);
    copy(from.view(), to.view());
    return to;
  }

  // The result of arrays that lie so, dense.
  Tensor run(Layout in, Layout out_layout, bool aligned, AttentionOptions options) const {
    const Strided query = laid(q, in, aligned), key = laid(k, in, aligned),
                  value = laid(v, in, aligned);
    const Strided out(DType::f32, {1, size.heads, size.Tq, size.Dv}, out_layout, aligned);
    out.poison();
    attention_forward(query.view(), key.view(), value.view(), out.view(), options);
    EXPECT_TRUE(out.guards_intact());
    return Tensor::copy_of(out.view());
  }

  void expect_same(const AttentionOptions& options) const {
    const Tensor expected = run(Layout::bhtd, Layout::bhtd, true, options);
    for (const Layout in : {Layout::bhtd, Layout::bthd, Layout::bhdt, Layout::gaps}) {
      for (const Layout out : {Layout::bhtd, Layout::bhdt, Layout::gaps}) {
        for (const bool aligned : {true, false}) {
          const Tensor got = run(in, out, aligned, options);
          const auto bytes = static_cast<std::size_t>(got.size()) * sizeof(float);
          EXPECT_EQ(std::memcmp(got.view().data(), expected.view().data(), bytes), 0)
              << name_of(options.target) << ": in " << static_cast<int>(in) << ", out "
              << static_cast<int>(out) << ", aligned " << aligned;
        }
      }
    }
  }

  const Sizes size = GetParam();
  Tensor q{DType::f32, {1, size.heads, size.Tq, size.D}},
      k{DType::f32, {1, size.heads, size.Tk, size.D}},
      v{DType::f32, {1, size.heads, size.Tk, size.Dv}};
};

TEST_P(AttentionLayout, ChangesNoBit) {
  for (const SimdTarget target : simd_targets()) {
    AttentionOptions options;
    options.target = target;
    options.threads = 1;
    expect_same(options);
  }
}

TEST_P(AttentionLayout, ChangesNoBitOfACausalCall) {
  for (const SimdTarget target : simd_targets()) {
    AttentionOptions options;
    options.target = target;
    options.causal = Causal::bottom_right;
    expect_same(options);
  }
}

// Hidden values that are no numbers are left out, in rows and in columns.
TEST_P(AttentionLayout, ChangesNoBitBesideHiddenNan) {
  for (std::int64_t c = 0; c < size.Dv; ++c) {
    v.view().set({0, 0, size.Tk - 1, c}, std::numeric_limits<double>::quiet_NaN());
  }
  for (const SimdTarget target : simd_targets()) {
    AttentionOptions options;
    options.target = target;
    options.causal = Causal::bottom_right;
    expect_same(options);
    const Tensor got = run(Layout::bhdt, Layout::bhdt, true, options);
    for (std::int64_t i = 0; i + 1 < size.Tq; ++i) {
      ASSERT_FALSE(std::isnan(got.view().at({0, 0, i, 0}))) << "query " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, AttentionLayout, ::testing::ValuesIn(kSizes),
                         [](const auto& chosen) {
                           const Sizes& s = chosen.param;
                           return "Tq" + std::to_string(s.Tq) + "Tk" + std::to_string(s.Tk) + "D" +
                                  std::to_string(s.D) + "Dv" + std::to_string(s.Dv);
                         });

}  // namespace
}  // namespace qkv::testing
