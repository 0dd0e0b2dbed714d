#include "io/image/image.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "io/image/test_png.h"
#include "io/test_files.h"

namespace qkv::io {
namespace {

// 3×2 pixels of (200, 60, 30), quality 90, made by libjpeg.
std::string jpeg() {
  const std::string hex =
      "ffd8ffe000104a46494600010100000100010000ffdb00430003020203020203030303040303040508050504"
      "04050a070706080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f1718161418121415"
      "14ffdb00430103040405040509050509140d0b0d141414141414141414141414141414141414141414141414"
      "1414141414141414141414141414141414141414141414141414ffc000110800020003030111000211010311"
      "01ffc40014000100000000000000000000000000000007ffc400141001000000000000000000000000000000"
      "00ffc4001501010100000000000000000000000000000708ffc4001411010000000000000000000000000000"
      "0000ffda000c03010002110311003f002f0bac07ffd9";
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

Image decode(const std::string& bytes) { return decode_image(as_bytes(bytes), "photo"); }

[[maybe_unused]] void expect_pixels(const Image& image, const std::vector<int>& expected) {
  ASSERT_EQ(image.rgb.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(image.rgb[i], expected[i]) << i;
}

void expect_refused(const std::string& bytes, const std::string& fragment) {
  try {
    decode(bytes);
    ADD_FAILURE() << "taken: " << fragment;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos) << error.what();
    EXPECT_EQ(error.where(), "photo");
  }
}

using namespace std::string_literals;

#if QKV_WITH_PNG
TEST(Png, ColoursAndDepths) {
  expect_pixels(decode(png(2, 1, 8, 2, "\0\1\2\3\4\5\6"s)), {1, 2, 3, 4, 5, 6});
  expect_pixels(decode(png(2, 1, 8, 0, "\0\7\x9"s)), {7, 7, 7, 9, 9, 9});
  expect_pixels(decode(png(1, 2, 8, 6, "\0\1\2\3\0\0\4\5\6\x80"s)), {1, 2, 3, 4, 5, 6});
  expect_pixels(decode(png(1, 1, 16, 2, "\0\x12\xff\x34\0\x56\x80"s)), {0x12, 0x34, 0x56});
  expect_pixels(decode(png(4, 1, 1, 0, "\0\x50"s)),
                {0, 0, 0, 255, 255, 255, 0, 0, 0, 255, 255, 255});
  const std::string palette = chunk("PLTE", "\x0a\x0b\x0c\x14\x15\x16"s);
  expect_pixels(decode(png(2, 1, 8, 3, "\0\1\0"s, palette)), {20, 21, 22, 10, 11, 12});
}

TEST(Png, IsRefusedWhenDamaged) {
  const std::string good = png(2, 2, 8, 2, "\0\1\2\3\4\5\6\0\1\2\3\4\5\6"s);
  decode(good);
  for (std::size_t size = 8; size < good.size() - 12; ++size) {
    expect_refused(good.substr(0, size), "photo");
  }
  // No byte of it may be changed: there is a checksum over all of them. Libpng forgives a checksum
  // of the image's end alone.
  for (std::size_t i = 8; i < good.size() - 16; ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x41);
    try {
      decode(bad);
    } catch (const Error& error) {
      EXPECT_EQ(error.where(), "photo");
    }
  }
  expect_refused(png(2, 2, 8, 2, "\0\1\2\3\4\5\6"s), "photo");   // rows are missing
  expect_refused(png(1 << 30, 1 << 30, 8, 2, "\0"s), "photo");   // too large by far
  expect_refused(png(1 << 20, 1 << 10, 8, 2, "\0"s), "pixels");  // a bomb
  expect_refused(png(0, 5, 8, 2, "\0"s), "photo");
  expect_refused(kSignature, "photo");
}

#else
TEST(Png, IsRefusedWhereItCannotBeRead) { expect_refused(png(1, 1, 8, 0, "\0\1"s), "no libpng"); }
#endif

#if QKV_WITH_JPEG
TEST(Jpeg, Colours) {
  const Image image = decode(jpeg());
  ASSERT_EQ(image.width, 3);
  ASSERT_EQ(image.height, 2);
  const int expected[] = {200, 60, 30};
  for (std::size_t i = 0; i < image.rgb.size(); ++i) EXPECT_NEAR(image.rgb[i], expected[i % 3], 2);
}

TEST(Jpeg, IsRefusedWhenDamaged) {
  const std::string good = jpeg();
  for (std::size_t size = 3; size + 2 < good.size(); ++size) {
    expect_refused(good.substr(0, size), "photo");
  }
  for (std::size_t i = 3; i < good.size(); ++i) {  // no crash; some changes are only other colours
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      try {
        decode(bad);
      } catch (const Error& error) {
        EXPECT_EQ(error.where(), "photo");
      }
    }
  }
}

#else
TEST(Jpeg, IsRefusedWhereItCannotBeRead) { expect_refused(jpeg(), "no libjpeg"); }
#endif

TEST(Image, OtherFormatsAreRefused) {
  expect_refused("", "an empty file");
  expect_refused("GIF89a", "a PNG or a JPEG");
  expect_refused("\x89PN", "neither");
}

Image grey(std::int64_t width, std::int64_t height, const std::vector<int>& values) {
  Image image{width, height, {}};
  for (const int v : values) image.rgb.insert(image.rgb.end(), 3, static_cast<std::uint8_t>(v));
  return image;
}

void expect_grey(const Image& image, const std::vector<int>& expected) {
  ASSERT_EQ(image.rgb.size(), 3 * expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(image.rgb[3 * i + c], expected[i]) << i;
  }
}

// By hand: weights are the triangle (bilinear) or Keys' cubic at the pixels' distances.
TEST(Resize, ByHand) {
  // 4 → 2, triangle of half-width 2 around 1 and 3: pixels 0, 1, 2 with 0.75, 0.75, 0.25 of 1.75.
  expect_grey(resize(grey(4, 1, {10, 20, 30, 40}), 2, 1, Resample::bilinear),
              {static_cast<int>(std::lround((0.75 * 10 + 0.75 * 20 + 0.25 * 30) / 1.75)),
               static_cast<int>(std::lround((0.25 * 20 + 0.75 * 30 + 0.75 * 40) / 1.75))});
  // 2 → 4: a quarter of the neighbour.
  expect_grey(resize(grey(2, 1, {0, 100}), 4, 1, Resample::bilinear), {0, 25, 75, 100});
  expect_grey(resize(grey(1, 2, {0, 100}), 1, 4, Resample::bilinear), {0, 25, 75, 100});
  // Cubic, 2 → 4: at distance 0.25 0.8671875, at 0.75 0.2265625, at 1.25 -0.0703125.
  expect_grey(resize(grey(2, 1, {0, 200}), 4, 1, Resample::bicubic),
              {0,  // 200·(-0.0703125) / 0.796875 is below 0
               static_cast<int>(std::lround(200 * 0.2265625 / 1.09375)),
               static_cast<int>(std::lround(200 * 0.8671875 / 1.09375)), 218});
  expect_grey(resize(grey(2, 2, {1, 2, 3, 4}), 2, 2, Resample::bicubic), {1, 2, 3, 4});
  // A constant stays one, at any size.
  const Image flat = resize(grey(7, 5, std::vector<int>(35, 77)), 31, 2, Resample::bicubic);
  EXPECT_EQ(flat.width, 31);
  expect_grey(flat, std::vector<int>(62, 77));
  EXPECT_THROW(resize(grey(1, 1, {1}), 0, 5, Resample::bilinear), Error);
  EXPECT_THROW(resize(grey(1, 1, {1}), 1 << 20, 1 << 20, Resample::bilinear), Error);
}

TEST(ProcessImage, ResizeCropNormalise) {
  ImageProcessing p;
  p.shortest_edge = 2;
  p.crop_height = p.crop_width = 2;
  p.scale = 0.5;
  p.mean = {1, 2, 3};
  p.deviation = {1, 2, 4};
  // 4×2 stays as it is; the middle 2×2 of it is columns 1 and 2.
  const Tensor t = process_image(grey(4, 2, {10, 20, 30, 40, 50, 60, 70, 80}), p);
  ASSERT_EQ(to_string(t.shape()), "[3, 2, 2]");
  EXPECT_FLOAT_EQ(static_cast<float>(t.view().at({0, 0, 0})), 9);
  EXPECT_FLOAT_EQ(static_cast<float>(t.view().at({1, 0, 1})), 6.5);
  EXPECT_FLOAT_EQ(static_cast<float>(t.view().at({2, 1, 1})), 8);
  // A crop larger than the image is padded by black.
  p.shortest_edge = 0;
  p.crop_height = p.crop_width = 6;
  const Tensor padded = process_image(grey(4, 2, std::vector<int>(8, 10)), p);
  EXPECT_FLOAT_EQ(static_cast<float>(padded.view().at({0, 0, 0})), -1);
  EXPECT_FLOAT_EQ(static_cast<float>(padded.view().at({0, 2, 1})), 4);
}

}  // namespace
}  // namespace qkv::io
