#pragma once

// Tests that go through many cases of one kind go through a share of them where each takes long:
// under a sanitizer or an emulator. CMake's QKV_TEST_PERCENT says which, 100 unless a preset says
// less.

namespace qkv {

constexpr int share_of(int cases) { return (cases * QKV_TEST_PERCENT + 99) / 100; }

// Every so many-th case.
inline constexpr int kStride = 100 / QKV_TEST_PERCENT;

}  // namespace qkv
