#include "qkv/npy.h"

#include <unistd.h>

#include <bit>
#include <string>
#include <vector>

#include "io/test_files.h"

namespace qkv::io {
namespace {

using namespace std::string_literals;

std::string little_endian_text(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

// A file with that header, right or wrong.
std::string npy(const std::string& header, const std::string& data, int major = 1) {
  return "\x93NUMPY"s + static_cast<char>(major) + '\0' +
         little_endian_text(header.size(), major == 1 ? 2 : 4) + header + data;
}

std::string dictionary(const std::string& descr, const std::string& shape,
                       const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

class NpyTest : public FileTest {
 protected:
  FileTensor load(const std::string& content, FileAccess access = FileAccess::copy) {
    return load_npy(file("x.npy", content), access);
  }
  void refused(const std::string& content, std::initializer_list<std::string_view> fragments) {
    expect_error(ErrorKind::value, fragments, [&] { load(content); });
    expect_error(ErrorKind::value, {"x.npy"}, [&] { load(content, FileAccess::map); });
  }
};

TEST_F(NpyTest, EveryDtypeComesBack) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::i32, DType::i64, DType::u8, DType::boolean}) {
    for (const Dims& shape :
         {Dims{}, Dims{0}, Dims{3}, Dims{2, 3}, Dims{2, 0, 3}, Dims{1, 2, 1, 3, 1, 2, 1, 2}}) {
      Tensor tensor(dtype, shape);
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        MutableTensorView(tensor.view().data(), dtype, {tensor.size()}).set({i}, double(i % 2));
      }
      save_npy(path("x.npy"), tensor);
      for (const FileAccess access : {FileAccess::map, FileAccess::copy}) {
        const FileTensor read = load_npy(path("x.npy"), access);
        EXPECT_EQ(read.view.dtype(), dtype);
        EXPECT_EQ(read.view.shape(), shape);
        EXPECT_EQ(bytes_of(read.view), bytes_of(tensor));
      }
    }
  }
}

TEST_F(NpyTest, WritesWhatNumPyWrites) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  save_npy(path("x.npy"), TensorView::of(std::span(values), {2, 3}));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.resize(128 - 10 - 1, ' ');
  EXPECT_EQ(content_of(path("x.npy")),
            npy(header + "\n", bytes_of(TensorView::of(std::span(values)))));
}

TEST_F(NpyTest, ElementsStartAtAMultipleOf64) {
  // Extents of growing length push the header over the edge of a block.
  for (std::int64_t extent = 1, digits = 0; digits < 18; extent *= 10, ++digits) {
    save_npy(path("x.npy"), TensorView(nullptr, DType::f64, {0, extent / 8 + 1}));
    const std::string content = content_of(path("x.npy"));
    EXPECT_EQ(content.size() % 64, 0u);
    EXPECT_EQ(content.back(), '\n');
    EXPECT_EQ(load_npy(path("x.npy")).view.shape(), (Dims{0, extent / 8 + 1}));
  }
}

TEST_F(NpyTest, StridedViewsAreWrittenInOrder) {
  Tensor tensor(DType::i32, {4, 5, 6});
  for (std::int32_t i = 0; auto& value : tensor.as<std::int32_t>()) value = i++;
  const TensorView all = tensor.view();
  const auto* middle = tensor.as<std::int32_t>().data() + 59;
  for (const TensorView& view :
       {all.transpose(0, 2), all.slice(1, 1, 4), all.select(2, 3), all.permute({1, 2, 0}),
        all.select(0, 1).select(0, 2).broadcast_to({3, 6}),
        TensorView(middle, DType::i32, {2, 10}, {-30, -1})}) {
    save_npy(path("x.npy"), view);
    const FileTensor read = load_npy(path("x.npy"));
    ASSERT_EQ(read.view.shape(), view.shape());
    EXPECT_EQ(bytes_of(read.view), bytes_of(Tensor::copy_of(view)));
  }
}

TEST_F(NpyTest, AStridedViewLargerThanTheBufferIsWhole) {
  Tensor tensor(DType::f64, {300, 400});
  for (double i = 0; auto& value : tensor.as<double>()) value = i++;
  const TensorView view = tensor.view().transpose(0, 1);
  save_npy(path("x.npy"), view);
  EXPECT_EQ(bytes_of(load_npy(path("x.npy")).view), bytes_of(Tensor::copy_of(view)));
}

TEST_F(NpyTest, FortranOrderHasTheSameElementsAtTheSameIndices) {
  const std::string data("\0\1\2\3\4\5", 6);
  const FileTensor read = load(npy(dictionary("|u1", "(2, 3)", "True"), data));
  EXPECT_EQ(read.view.shape(), (Dims{2, 3}));
  EXPECT_EQ(read.view.strides(), (Dims{1, 2}));
  EXPECT_EQ(read.view.at({1, 0}), 1);
  EXPECT_EQ(read.view.at({0, 2}), 4);
  EXPECT_EQ(load(npy(dictionary("|u1", "(3, 0)", "True"), "")).view.size(), 0);
}

TEST_F(NpyTest, ReadsAllVersionsAndSpellings) {
  const std::string data(12, '\1');
  for (const int major : {1, 2, 3}) {
    EXPECT_EQ(load(npy(dictionary("<f4", "(3,)"), data, major)).view.shape(), (Dims{3}));
  }
  for (const std::string header :
       {"{\"descr\": \"=f4\", \"fortran_order\": False, \"shape\": (3,)}",
        "{'shape':(3L,),'fortran_order':False,'descr':'<f4'}",
        "  {'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, ), }   \n\n"}) {
    EXPECT_EQ(load(npy(header, data)).view.size(), 3) << header;
  }
  EXPECT_EQ(load(npy(dictionary("<u1", "()"), "x")).view.rank(), 0);
}

TEST_F(NpyTest, TheViewOutlivesTheFile) {
  const std::vector<float> values = {1, 2, 3};
  save_npy(path("x.npy"), TensorView::of(std::span(values)));
  const FileTensor read = load_npy(path("x.npy"));
  save_npy(path("x.npy"), TensorView(nullptr, DType::f32, {0}));  // replaced, not rewritten
  std::filesystem::remove(path("x.npy"));
  EXPECT_EQ(read.view.at({2}), 3);
}

TEST_F(NpyTest, OutputMayBeTheInput) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  save_npy(path("x.npy"), TensorView::of(std::span(values), {2, 3}));
  save_npy(path("x.npy"), load_npy(path("x.npy")).view.transpose(0, 1));
  EXPECT_EQ(load_npy(path("x.npy")).view.at({2, 1}), 6);
}

TEST_F(NpyTest, BoolsAreWrittenAsZeroOrOne) {
  const FileTensor read = load(npy(dictionary("|b1", "(3,)"), "\0\2\xff"s));
  save_npy(path("y.npy"), read.view);
  EXPECT_TRUE(content_of(path("y.npy")).ends_with("\0\1\1"s));
}

TEST_F(NpyTest, RefusesWhatItCannotWrite) {
  const Tensor tensor(DType::bf16, {2});
  expect_error(ErrorKind::value, {"x.npy", "bf16", "safetensors"},
               [&] { save_npy(path("x.npy"), tensor); });
  expect_error(ErrorKind::value, {"x.npy", "none"}, [&] { save_npy(path("x.npy"), {}); });
  EXPECT_EQ(files(), 0u);
}

TEST_F(NpyTest, RefusesMagicAndVersion) {
  refused("", {"magic", "empty"});
  refused("PK\3\4 is not the one", {"magic", "PK"});
  const std::string header = dictionary("<f4", "(1,)");
  for (const int major : {0, 4, 255}) refused(npy(header, "1234", major), {"version", "1.0"});
  std::string minor = npy(header, "1234");
  minor[7] = 1;
  refused(minor, {"version", "1.1"});
}

TEST_F(NpyTest, RefusesHeaders) {
  const std::string right = dictionary("<f4", "(1,)");
  std::string longest = right;
  longest.resize(10'000, ' ');
  EXPECT_EQ(load(npy(longest, "1234")).view.size(), 1);
  refused(npy(longest + " ", "1234"), {"header", "10000 bytes", "10001"});
  std::string huge = npy(right, "1234", 2);
  huge.replace(8, 4, "\xff\xff\xff\xff");
  refused(huge, {"header", "4294967295"});
  refused("\x93NUMPY\1\0\x40\0{}"s, {"header", "64 bytes", "2 before the end"});

  const std::string descr = "'descr': '<f4'", order = "'fortran_order': False",
                    shape = "'shape': (1,)";
  const auto dict = [](const std::string& inner) { return npy("{" + inner + "}", "1234"); };
  refused(dict(""), {"'descr'", "none"});
  refused(dict(descr + "," + shape), {"'fortran_order'"});
  refused(dict(descr + "," + order), {"'shape'"});
  refused(dict(descr + "," + order + "," + shape + ",'x': 1"), {"alone", "'x'"});
  refused(dict(descr + "," + order + "," + shape + "," + shape), {"'shape' twice"});
  refused(dict(descr + " " + order + "," + shape), {"','"});
  refused(dict("," + descr + "," + order + "," + shape), {"a key"});
  refused(dict("descr: '<f4'," + order + "," + shape), {"a key"});
  refused(dict("'descr' '<f4'," + order + "," + shape), {"':'"});
  refused(dict("'descr': 'x"), {"a string that ends"});
  refused(dict("'descr': '\\x3cf4'," + order + "," + shape), {"escapes"});
  refused(dict(descr + ",'fortran_order': 0," + shape), {"True or False"});
  refused(dict(descr + ",'fortran_order': Falsey," + shape), {"','"});
  refused(npy(right + "x", "1234"), {"nothing after"});
  refused(npy("[]", ""), {"a dictionary"});
  refused(npy(std::string(9'000, '{'), ""), {"a key"});
  refused(npy(std::string("\0\0\0", 3), ""), {"\\x00"});
}

TEST_F(NpyTest, RefusesShapes) {
  const auto shaped = [](const std::string& shape) {
    return npy(dictionary("<f4", shape), "1234");
  };
  refused(shaped("(1)"), {"','"});
  refused(shaped("(1 1)"), {"','"});
  refused(shaped("(,)"), {"extent"});
  refused(shaped("(1,,1)"), {"extent"});
  refused(shaped("(1, 1"), {"extent"});
  refused(shaped("[1]"), {"a tuple"});
  refused(shaped("1"), {"a tuple"});
  refused(shaped("(01,)"), {"extent"});
  refused(shaped("(1.0,)"), {"','"});
  refused(shaped("(+1,)"), {"extent"});
  refused(shaped("(0x1,)"), {"','"});
  refused(shaped("((1,),)"), {"extent"});
  refused(shaped("(-1,)"), {"negative"});
  refused(shaped("(1, -1)"), {"negative"});
  refused(shaped("(9223372036854775808,)"), {"2^63"});
  refused(shaped("(99999999999999999999999999,)"), {"2^63"});
  refused(shaped("(4611686018427387904, 4)"), {"2^63"});
  refused(shaped("(2305843009213693952,)"), {"2^63"});
  refused(shaped("(0, 4611686018427387904, 4)"), {"2^63"});  // also when nothing is in it
  refused(shaped("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), {"8 dimensions", "9"});
  std::string many = "(";
  for (int i = 0; i < 3'000; ++i) many += "1, ";
  refused(shaped(many + ")"), {"8 dimensions", "3000"});
}

TEST_F(NpyTest, RefusesDtypes) {
  const auto typed = [](const std::string& descr) {
    return npy(dictionary(descr, "(1,)"), "1234");
  };
  for (const std::string object : {"|O", "O", "<O8", "|O4"}) refused(typed(object), {"pickle"});
  for (const std::string big : {">f4", ">i8", ">f2"}) refused(typed(big), {big, "big-endian"});
  for (const std::string other :
       {"|i1", "<i2", "<u2", "<u4", "<u8", "<c8", "<f16", "<U1", "|S4", "|V4", "<M8[ns]", "f4",
        "|f4", "", "<", "<f", "<f44", "float32"}) {
    refused(typed(other), {"descr", "'" + other + "'", "<f4 <f8 <f2 <i4 <i8 |u1 |b1"});
  }
  refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234"),
          {"structured"});
}

TEST_F(NpyTest, RefusesTooMuchAndTooLittleData) {
  refused(npy(dictionary("<f4", "(2,)"), "1234567"), {"data", "8 bytes", "7 bytes"});
  refused(npy(dictionary("<f4", "(2,)"), "123456789"), {"data", "8 bytes", "9 bytes"});
  refused(npy(dictionary("<f4", "()"), ""), {"4 bytes", "0 bytes"});
  refused(npy(dictionary("|u1", "(0,)"), "x"), {"0 bytes", "1 bytes"});
  refused(npy(dictionary("|u1", "(9223372036854775807,)"), "x"), {"data"});
}

TEST_F(NpyTest, MessagesAreFitForATerminal) {
  const std::string long_name(5'000, 'k');
  refused(npy("{'\x1b[31m': 1}", ""), {"'\\x1b[31m'"});
  try {
    load(npy("{'" + long_name + "': 1}", ""));
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 400u);
  }
}

TEST_F(NpyTest, SurvivesTruncationAndFlippedBits) {
  const Tensor tensor(DType::i32, {2, 3});
  save_npy(path("right.npy"), tensor);
  const std::string right = content_of(path("right.npy"));
  const auto read = [](const std::filesystem::path& path) {
    bytes_of(load_npy(path, FileAccess::copy).view);
  };
  expect_prefixes_refused(path("x.npy"), right, read);
  // The padding is mostly spaces, whose flips are refused as well.
  expect_flips_survived(path("x.npy"), right, 128, read);
}

// A file with holes takes no room on the disk, and writing to /dev/null reads none of it.
TEST_F(NpyTest, MoreThan2To31Elements) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 17;
  const std::string head = npy(dictionary("|u1", "(2, " + std::to_string(kCount) + ")"), "");
  const auto large = file("large.npy", head);
  const auto size = static_cast<std::int64_t>(head.size()) + 2 * kCount;
  if (::truncate(large.c_str(), size) != 0) GTEST_SKIP() << "no file of 4 GiB here";
  std::fstream(large, std::ios::in | std::ios::out | std::ios::binary).seekp(size - 1).put('\7');
  const FileTensor read = load_npy(large);
  EXPECT_EQ(read.view.size(), 2 * kCount);
  EXPECT_EQ(read.view.at({1, kCount - 1}), 7);
  save_npy("/dev/null", read.view);
}

}  // namespace
}  // namespace qkv::io
