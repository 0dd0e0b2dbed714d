#include "qkv/safetensors.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "io/test_files.h"

namespace qkv::io {
namespace {

using namespace std::string_literals;

// A file with that header, right or wrong.
std::string safetensors(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(std::uint64_t{header.size()} >> (8 * i));
  return out + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

class SafetensorsTest : public FileTest {
 protected:
  SafetensorsFile open(const std::string& content, FileAccess access = FileAccess::copy) {
    return SafetensorsFile(file("x.safetensors", content), access);
  }
  void refused(const std::string& content, std::initializer_list<std::string_view> fragments) {
    expect_error(ErrorKind::value, fragments, [&] { open(content); });
    expect_error(ErrorKind::value, {"x.safetensors"}, [&] { open(content, FileAccess::map); });
  }
  // One entry "t" that is right but for what the caller changes.
  void refused_entry(const std::string& dtype, const std::string& shape, const std::string& offsets,
                     std::initializer_list<std::string_view> fragments) {
    refused(safetensors("{" + entry("t", dtype, shape, offsets) + "}", "12345678"), fragments);
  }
};

TEST_F(SafetensorsTest, EveryDtypeComesBack) {
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const DType dtype : {DType::u8, DType::f32, DType::f64, DType::boolean, DType::f16,
                            DType::bf16, DType::i32, DType::i64}) {
    for (const Dims& shape : {Dims{}, Dims{3}, Dims{0, 3}, Dims{2, 3}}) {
      Tensor tensor(dtype, shape);
      const MutableTensorView flat(tensor.view().data(), dtype, {tensor.size()});
      for (std::int64_t i = 0; i < tensor.size(); ++i) flat.set({i}, double(i % 2));
      named.push_back({std::string(name_of(dtype)) + to_string(shape), tensor.view()});
      tensors.push_back(std::move(tensor));
    }
  }
  save_safetensors(path("x"), named);
  for (const FileAccess access : {FileAccess::map, FileAccess::copy}) {
    const SafetensorsFile file(path("x"), access);
    EXPECT_EQ(file.names().size(), named.size());
    for (const NamedTensor& wanted : named) {
      ASSERT_TRUE(file.contains(wanted.name));
      const TensorView read = file.tensor(wanted.name);
      EXPECT_EQ(read.dtype(), wanted.view.dtype());
      EXPECT_EQ(read.shape(), wanted.view.shape());
      EXPECT_EQ(file.shape(wanted.name), wanted.view.shape());
      EXPECT_EQ(bytes_of(read), bytes_of(wanted.view));
      // Wider elements come first, hence each is aligned.
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.data()) % size_of(read.dtype()), 0u);
    }
  }
}

TEST_F(SafetensorsTest, WritesTheBytesOfTheFormat) {
  const std::vector<std::uint8_t> bytes = {1, 2, 3};
  const std::vector<float> floats = {1};
  save_safetensors(
      path("x"),
      {{"b", TensorView::of(std::span(bytes))}, {"w", TensorView::of(std::span(floats), {1, 1})}},
      {{"k", "v"}});
  std::string header = R"({"__metadata__":{"k":"v"},)" + entry("w", "F32", "[1, 1]", "[0,4]") +
                       "," + entry("b", "U8", "[3]", "[4,7]") + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(content_of(path("x")), safetensors(header, "\0\0\x80\x3f\1\2\3"s));
  save_safetensors(path("x"), {});
  EXPECT_EQ(content_of(path("x")), safetensors("{}      ", ""));
  EXPECT_TRUE(SafetensorsFile(path("x")).names().empty());
}

TEST_F(SafetensorsTest, NamesAndMetadataMayBeAnyText) {
  const Tensor tensor(DType::f32, {1});
  std::vector<NamedTensor> named;
  std::map<std::string, std::string> metadata;
  for (const std::string& text : {""s, "a\"b\\c"s, "\n\t\x01\x1f\x7f"s, "\xc3\xa9\xf0\x9f\x98\x80"s,
                                  "nul\0inside"s, "../../etc"s, "{}[]:,"s}) {
    named.push_back({text, tensor});
    metadata[text] = text;
  }
  save_safetensors(path("x"), named, metadata);
  const SafetensorsFile file(path("x"));
  EXPECT_EQ(file.metadata(), metadata);
  for (std::size_t i = 0; i < named.size(); ++i) EXPECT_EQ(file.names()[i], named[i].name);
}

TEST_F(SafetensorsTest, StridedViewsAreWrittenInOrder) {
  Tensor tensor(DType::bf16, {3, 4});
  for (std::int64_t i = 0; i < 12; ++i) tensor.view().set({i / 4, i % 4}, double(i));
  const TensorView view = tensor.view().transpose(0, 1);
  save_safetensors(path("x"), {{"t", view}});
  EXPECT_EQ(bytes_of(SafetensorsFile(path("x")).tensor("t")), bytes_of(view));
}

TEST_F(SafetensorsTest, ViewsLiveAsLongAsTheOwner) {
  const std::vector<float> values = {1, 2};
  save_safetensors(path("x"), {{"t", TensorView::of(std::span(values))}});
  FileTensor kept;
  {
    const SafetensorsFile file(path("x"));
    kept = {file.tensor("t"), file.owner()};
  }
  std::filesystem::remove(path("x"));
  EXPECT_EQ(kept.view.at({1}), 2);
}

TEST_F(SafetensorsTest, ReadsWhatIsUnusualAndRight) {
  // The order of the header is not that of the data; no padding; unaligned data; zero-size tensors.
  const SafetensorsFile file = open(safetensors(
      "{" + entry("z", "F32", "[0,7]", "[1,1]") + "," + entry("b", "F16", "[]", "[1,3]") +
          ",\n \"a\" : {\"data_offsets\":[0,1], \"shape\":[1], \"dtype\":\"U8\"}  ,"
          "\"__metadata__\":{}}\n ",
      "xyz"));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"z", "b", "a"}));
  EXPECT_EQ(bytes_of(file.tensor("b")), "yz");
  EXPECT_EQ(file.tensor("z").size(), 0);
  EXPECT_TRUE(file.metadata().empty());
}

TEST_F(SafetensorsTest, OtherDtypesAreListedAndRefusedWhenAskedFor) {
  const SafetensorsFile file = open(safetensors("{" + entry("t", "F8_E4M3", "[2]", "[0,2]") + "," +
                                                    entry("n", "F4", "[4]", "[2,4]") + "," +
                                                    entry("u", "U8", "[1]", "[4,5]") + "}",
                                                "12345"));
  EXPECT_EQ(file.names().size(), 3u);
  EXPECT_EQ(file.dtype_name("t"), "F8_E4M3");
  EXPECT_EQ(file.shape("n"), (Dims{4}));
  EXPECT_EQ(bytes_of(file.tensor("u")), "5");
  expect_error(ErrorKind::value, {"x.safetensors", "'t'", "F32", "F8_E4M3"},
               [&] { file.tensor("t"); });
}

TEST_F(SafetensorsTest, RefusesANameThatIsNotThere) {
  const SafetensorsFile file = open(safetensors("{}", ""));
  EXPECT_FALSE(file.contains("t"));
  for (const auto& ask : std::vector<std::function<void()>>{
           [&] { file.tensor("t"); }, [&] { file.shape("t"); }, [&] { file.dtype_name("t"); }}) {
    expect_error(ErrorKind::value, {"x.safetensors", "'t'", "none"}, ask);
  }
}

TEST_F(SafetensorsTest, RefusesWhatItCannotWrite) {
  const Tensor tensor(DType::f32, {1});
  const auto fails = [&](const std::vector<NamedTensor>& tensors,
                         const std::map<std::string, std::string>& metadata,
                         std::string_view fragment) {
    expect_error(ErrorKind::value, {fragment},
                 [&] { save_safetensors(path("x"), tensors, metadata); });
  };
  fails({{"a", tensor}, {"a", tensor}}, {}, "'a' twice");
  fails({{"__metadata__", tensor}}, {}, "reserved");
  fails({{"\xff", tensor}}, {}, "UTF-8");
  fails({{"a", TensorView()}}, {}, "none");
  fails({}, {{"k", "\xc0\x80"}}, "UTF-8");
  fails({}, {{"\xed\xa0\x80", "v"}}, "UTF-8");
  std::string too_long;
  too_long.resize(100'000'000, 'v');
  fails({}, {{"k", too_long}}, "100000000");
  const TensorView huge(tensor.view().data(), DType::f32, {std::int64_t{1} << 62}, {0});
  fails({{"a", huge}}, {}, "2^63");
  EXPECT_EQ(files(), 0u);
}

TEST_F(SafetensorsTest, RefusesHeaderLengths) {
  refused("1234567", {"header length", "8 bytes", "7"});
  refused("\x03\0\0\0\0\0\0\0{}"s, {"header length", "at most 2", "3"});
  refused("\xff\xff\xff\xff\xff\xff\xff\xff{}"s, {"18446744073709551615"});
  refused("\xf9\xff\xff\xff\xff\xff\xff\xff{}"s, {"18446744073709551609"});  // + 8 wraps to 1
  // A file of 200 MB, with holes.
  const auto large = file("large", "\x01\xe1\xf5\x05\0\0\0\0{"s);
  ASSERT_EQ(::truncate(large.c_str(), 200'000'000), 0);
  expect_error(ErrorKind::value, {"at most 100000000", "100000001"},
               [&] { SafetensorsFile{large}; });
}

TEST_F(SafetensorsTest, RefusesWhatIsNotTheJsonOfAHeader) {
  const auto header = [](const std::string& text) { return safetensors(text, ""); };
  for (const std::string text : {"", " {}", "[]", "null", "\xef\xbb\xbf{}", "x"}) {
    refused(header(text), {"header", "'{'"});
  }
  for (const std::string& text : {"{"s, "{}x"s, "{}\0"s, "{,}"s, "{\"a\"}"s, "{'a':1}"s, "{}{}"s,
                                  "{\"\xff\":1}"s, "{\"\xc0\x80\":1}"s, "{\"\xed\xa0\x80\":1}"s,
                                  "{\"\\ud800\":1}"s, "{\"a\n\":1}"s, "{/**/}"s}) {
    refused(header(text), {"header", "JSON"});
  }
  refused(header(R"({"a":1})"), {"'a'", "an object", "1"});
  refused(header(R"({"a":null})"), {"'a'", "null"});
  refused(header(R"({"a":"b"})"), {"'a'", "'b'"});
  refused(header(R"({"a":[]})"), {"'a'", "an array"});
  refused(header(R"({"a":{}})"), {"'a'", "dtype"});
  refused(header(R"({"a":{"dtype":"F32","shape":[0]}})"), {"data_offsets"});
  refused(header(R"({"a":{"dtype":"F32","data_offsets":[0,0]}})"), {"shape"});
  refused(header(R"({"__metadata__":1})"), {"__metadata__"});
  refused(header(R"({"__metadata__":{"a":1}})"), {"__metadata__", "a string"});
  refused(header(R"({"__metadata__":{"a":{}}})"), {"__metadata__", "an object"});
}

TEST_F(SafetensorsTest, RefusesKeysGivenTwice) {
  const std::string t = entry("t", "U8", "[0]", "[0,0]");
  refused(safetensors("{" + t + "," + t + "}", ""), {"'t' twice"});
  refused(safetensors("{" + t + "," + entry("\\u0074", "U8", "[0]", "[0,0]") + "}", ""),
          {"'t' twice"});
  refused(safetensors(R"({"__metadata__":{},"__metadata__":{}})", ""), {"twice"});
  refused(safetensors(R"({"__metadata__":{"a":"1","a":"2"}})", ""), {"'a' twice"});
  refused(safetensors(R"({"t":{"dtype":"U8","dtype":"F32","shape":[0],"data_offsets":[0,0]}})", ""),
          {"'t'", "'dtype' twice"});
  refused(safetensors(R"({"t":{"dtype":"U8","x":1,"shape":[0],"data_offsets":[0,0]}})", ""),
          {"'t'", "'x'", "alone"});
}

TEST_F(SafetensorsTest, RefusesDeepJsonWithoutRecursing) {
  constexpr std::size_t kDepth = 5'000'000;
  refused(safetensors("{\"a\":" + std::string(kDepth, '['), ""), {"an array"});
  refused(safetensors("{\"t\":{\"shape\":" + std::string(kDepth, '['), ""), {"an array"});
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"a\":{";
  refused(safetensors(objects, ""), {"an object"});
}

TEST_F(SafetensorsTest, RefusesShapes) {
  refused_entry("F32", "[-2]", "[0,8]", {"'t'", "'shape'", "-2"});
  refused_entry("F32", "[2.0]", "[0,8]", {"'shape'", "2.0"});
  refused_entry("F32", "[2e0]", "[0,8]", {"'shape'", "2e0"});
  refused_entry("F32", "[1e999]", "[0,8]", {"1e999"});
  refused_entry("F32", "[\"2\"]", "[0,8]", {"'shape'"});
  refused_entry("F32", "[null]", "[0,8]", {"null"});
  refused_entry("F32", "[true]", "[0,8]", {"boolean"});
  refused_entry("F32", "[[2]]", "[0,8]", {"an array"});
  refused_entry("F32", "2", "[0,8]", {"'shape'", "2"});
  refused_entry("F32", "{}", "[0,8]", {"'shape'", "an object"});
  refused_entry("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]", {"8 dimensions", "more"});
  refused_entry("F32", "[9223372036854775808]", "[0,8]", {"2^63"});
  refused_entry("F32", "[18446744073709551618]", "[0,8]", {"'shape'", "18446744073709551618"});
  refused_entry("F32", "[4611686018427387904,4]", "[0,8]", {"shape", "2^60"});
  refused_entry("F32", "[0,4611686018427387904,4]", "[0,0]", {"shape", "2^60"});
  refused_entry("F4", "[3]", "[0,2]", {"whole number of bytes"});
}

TEST_F(SafetensorsTest, RefusesDtypes) {
  for (const std::string name : {"f32", "F31", "", "FLOAT", "F32 ", "O", "I128"}) {
    refused_entry(name, "[2]", "[0,8]", {"'t'", "'dtype'", "'" + name + "'"});
  }
  refused(safetensors(R"({"t":{"dtype":5,"shape":[0],"data_offsets":[0,0]}})", ""),
          {"'dtype'", "a string", "5"});
}

TEST_F(SafetensorsTest, RefusesOffsets) {
  refused_entry("F32", "[2]", "[-8,0]", {"'t'", "'data_offsets'", "-8"});
  refused_entry("F32", "[2]", "[0.0,8]", {"'data_offsets'", "0.0"});
  refused_entry("F32", "[2]", "[0,8.5]", {"'data_offsets'", "8.5"});
  refused_entry("F32", "[2]", "[0]", {"two numbers", "1"});
  refused_entry("F32", "[2]", "[]", {"two numbers", "0"});
  refused_entry("F32", "[2]", "[0,8,8]", {"two numbers", "more"});
  refused_entry("F32", "[2]", "[8,0]", {"begin before end", "[8, 0]"});
  refused_entry("F32", "[2]", "[0,4]", {"8 bytes", "which are 4"});
  refused_entry("F32", "[3]", "[0,12]", {"data", "12 bytes", "8 bytes"});
  refused_entry("F32", "[1]", "[0,4]", {"data", "4 bytes", "8 bytes"});  // bytes after the last
  refused_entry("F32", "[1]", "[4,8]", {"'t'", "begin at 0", "a hole"});
  refused_entry("U8", "[9223372036854775807]", "[0,9223372036854775807]", {"2^60"});
  refused_entry("U8", "[8]", "[9223372036854775800,9223372036854775808]", {"2^63"});
  refused_entry("U8", "[0]", "[9223372036854775807,9223372036854775807]", {"a hole"});
}

TEST_F(SafetensorsTest, RefusesTensorsThatDoNotTileTheData) {
  const auto two = [](const std::string& a, const std::string& b, const std::string& size_b) {
    return safetensors("{" + entry("a", "U8", "[4]", a) + "," + entry("b", "U8", size_b, b) + "}",
                       "12345678");
  };
  EXPECT_EQ(open(two("[0,4]", "[4,8]", "[4]")).names().size(), 2u);
  EXPECT_EQ(open(two("[4,8]", "[0,4]", "[4]")).names().size(), 2u);
  refused(two("[0,4]", "[3,8]", "[5]"), {"'b'", "overlap"});
  refused(two("[0,4]", "[0,4]", "[4]"), {"overlap"});
  refused(two("[0,4]", "[5,8]", "[3]"), {"'b'", "a hole"});
  refused(two("[0,4]", "[4,7]", "[3]"), {"data", "7 bytes", "8 bytes"});
  refused(two("[0,4]", "[4,9]", "[5]"), {"data", "9 bytes", "8 bytes"});
  refused(two("[0,4]", "[2,2]", "[0]"), {"'b'", "overlap"});
}

TEST_F(SafetensorsTest, MessagesAreFitForATerminal) {
  try {
    open(safetensors("{\"" + std::string(1'000'000, 'n') + "\x1b[31m", ""));
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_LT(message.size(), 1'000u);
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
  }
}

TEST_F(SafetensorsTest, SurvivesTruncationAndFlippedBits) {
  const Tensor a(DType::f32, {2, 1}), b(DType::u8, {3}), c(DType::boolean, {0});
  save_safetensors(path("right"), {{"a", a}, {"b", b}, {"c", c}}, {{"k", "v"}});
  const std::string right = content_of(path("right"));
  const auto read = [](const std::filesystem::path& path) {
    const SafetensorsFile file(path, FileAccess::copy);
    for (const std::string& name : file.names()) bytes_of(file.tensor(name));
  };
  expect_prefixes_refused(path("x"), right, read);
  expect_flips_survived(path("x"), right, right.size() - 11, read);
}

TEST_F(SafetensorsTest, MoreThan2To31Elements) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 17;
  const std::string n = std::to_string(kCount);
  const std::string head =
      safetensors("{" + entry("t", "U8", "[" + n + "]", "[0," + n + "]") + "}", "");
  const auto large = file("large", head);
  const auto size = static_cast<std::int64_t>(head.size()) + kCount;
  if (::truncate(large.c_str(), size) != 0) GTEST_SKIP() << "no file of 2 GiB here";
  std::fstream(large, std::ios::in | std::ios::out | std::ios::binary).seekp(size - 1).put('\7');
  const SafetensorsFile file(large);
  EXPECT_EQ(file.tensor("t").at({kCount - 1}), 7);
  save_safetensors("/dev/null", {{"t", file.tensor("t")}});
}

}  // namespace
}  // namespace qkv::io
