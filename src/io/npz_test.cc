#include "qkv/npz.h"

#include <string>
#include <thread>
#include <vector>

#include "io/test_files.h"

namespace qkv::io {
namespace {

using namespace std::string_literals;

class NpzTest : public FileTest {
 protected:
  void SetUp() override {
    if (!npz_supported()) GTEST_SKIP() << "built without libzip";
    FileTest::SetUp();
  }
};

TEST_F(NpzTest, EveryDtypeComesBack) {
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const DType dtype :
       {DType::f32, DType::f64, DType::f16, DType::i32, DType::i64, DType::u8, DType::boolean}) {
    for (const Dims& shape : {Dims{}, Dims{3}, Dims{0, 3}, Dims{70, 80}}) {
      Tensor tensor(dtype, shape);
      const MutableTensorView flat(tensor.view().data(), dtype, {tensor.size()});
      for (std::int64_t i = 0; i < tensor.size(); ++i) flat.set({i}, double(i % 2));
      named.push_back({std::string(name_of(dtype)) + to_string(shape), tensor.view()});
      tensors.push_back(std::move(tensor));
    }
  }
  for (const bool compressed : {true, false}) {
    save_npz(path("x.npz"), named, compressed);
    for (const FileAccess access : {FileAccess::map, FileAccess::copy}) {
      const NpzFile file(path("x.npz"), {.access = access});
      ASSERT_EQ(file.names().size(), named.size());
      for (std::size_t i = 0; i < named.size(); ++i) {
        EXPECT_EQ(file.names()[i], named[i].name);
        const FileTensor read = file.read(named[i].name);
        EXPECT_EQ(read.view.dtype(), named[i].view.dtype());
        EXPECT_EQ(read.view.shape(), named[i].view.shape());
        EXPECT_EQ(bytes_of(read.view), bytes_of(named[i].view));
      }
    }
  }
}

TEST_F(NpzTest, StridedViewsOfAnySizeAreWrittenInOrder) {
  Tensor tensor(DType::f64, {300, 400});
  for (double i = 0; auto& value : tensor.as<double>()) value = i++;
  const TensorView view = tensor.view().transpose(0, 1);
  for (const bool compressed : {true, false}) {
    save_npz(path("x.npz"), {{"t", view}}, compressed);
    EXPECT_EQ(bytes_of(load_npz(path("x.npz")).at("t").view), bytes_of(view));
  }
}

TEST_F(NpzTest, TheSameArraysGiveTheSameBytes) {
  const Tensor tensor(DType::f32, {10});
  save_npz(path("a.npz"), {{"t", tensor}});
  save_npz(path("b.npz"), {{"t", tensor}});
  EXPECT_EQ(content_of(path("a.npz")), content_of(path("b.npz")));
}

TEST_F(NpzTest, StoredMembersAreViewsOfTheFile) {
  const Tensor tensor(DType::f32, {10});
  save_npz(path("stored.npz"), {{"t", tensor}}, false);
  FileTensor kept;
  {
    const NpzFile file(path("stored.npz"));
    kept = file.read("t");
    EXPECT_EQ(kept.view.data(), file.read("t").view.data());
  }
  std::filesystem::remove(path("stored.npz"));
  EXPECT_EQ(kept.view.at({9}), 0);

  save_npz(path("deflated.npz"), {{"t", tensor}}, true);
  const NpzFile file(path("deflated.npz"));
  const FileTensor a = file.read("t"), b = file.read("t");
  EXPECT_NE(a.view.data(), b.view.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.view.data()) % 64, 0u);
}

TEST_F(NpzTest, NamesAreKeys) {
  const Tensor tensor(DType::f32, {1});
  std::vector<NamedTensor> named;
  for (const std::string name :
       {"../x", "/etc/passwd", "a.npy", "a", "", "d/", "c:\\x", "\xc3\xa9", "\n", "x y", "CON"}) {
    named.push_back({name, tensor});
  }
  save_npz(path("x.npz"), named);
  const auto read = load_npz(path("x.npz"));
  EXPECT_EQ(read.size(), named.size());
  for (const NamedTensor& wanted : named) EXPECT_TRUE(read.contains(wanted.name)) << wanted.name;
  EXPECT_EQ(files(), 1u);  // nothing was unpacked anywhere
}

TEST_F(NpzTest, AnEmptyArchiveIsFine) {
  save_npz(path("x.npz"), {});
  EXPECT_EQ(content_of(path("x.npz")), "PK\5\6"s + std::string(18, '\0'));
  EXPECT_TRUE(load_npz(path("x.npz")).empty());
}

TEST_F(NpzTest, RefusesANameThatIsNotThere) {
  save_npz(path("x.npz"), {});
  const NpzFile file(path("x.npz"));
  EXPECT_FALSE(file.contains("t"));
  expect_error(ErrorKind::value, {"x.npz", "'t'", "none"}, [&] { file.read("t"); });
}

TEST_F(NpzTest, RefusesWhatItCannotWrite) {
  const Tensor tensor(DType::f32, {1}), brain(DType::bf16, {1});
  const auto fails = [&](const std::vector<NamedTensor>& tensors, std::string_view fragment) {
    expect_error(ErrorKind::value, {"x.npz", fragment}, [&] { save_npz(path("x.npz"), tensors); });
  };
  fails({{"a", tensor}, {"a", tensor}}, "'a' twice");
  fails({{"\xff", tensor}}, "UTF-8");
  fails({{"a\0b"s, tensor}}, "UTF-8");
  fails({{std::string(65'532, 'n'), tensor}}, "65531");
  fails({{"a", brain}}, "bf16");
  fails({{"a", TensorView()}}, "none");
  EXPECT_EQ(files(), 0u);
  save_npz(path("x.npz"), {{std::string(65'531, 'n'), tensor}});
  EXPECT_EQ(load_npz(path("x.npz")).size(), 1u);
}

TEST_F(NpzTest, ReadsFromSeveralThreads) {
  Tensor tensor(DType::i32, {50'000});
  for (std::int32_t i = 0; auto& value : tensor.as<std::int32_t>()) value = i++;
  save_npz(path("x.npz"), {{"a", tensor}, {"b", tensor}});
  const NpzFile file(path("x.npz"));
  std::vector<std::thread> threads;
  std::vector<std::string> read(4);
  for (std::size_t i = 0; i < read.size(); ++i) {
    threads.emplace_back([&, i] { read[i] = bytes_of(file.read(i % 2 ? "a" : "b").view); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& bytes : read) EXPECT_EQ(bytes, bytes_of(tensor));
}

TEST_F(NpzTest, LimitsArePerArchiveAndPerMember) {
  const Tensor zeros(DType::u8, {1'000'000});  // about 1000 : 1
  save_npz(path("x.npz"), {{"a", zeros}, {"b", zeros}});
  EXPECT_EQ(load_npz(path("x.npz")).size(), 2u);
  EXPECT_EQ(load_npz(path("x.npz"), {.max_inflated_bytes = 2'000'256}).size(), 2u);
  expect_error(ErrorKind::value, {"x.npz", "2000255", "max_inflated_bytes", "'b.npy'"},
               [&] { load_npz(path("x.npz"), {.max_inflated_bytes = 2'000'255}); });
  expect_error(ErrorKind::value, {"x.npz", "'a.npy'", "100 times", "max_ratio"},
               [&] { load_npz(path("x.npz"), {.max_ratio = 100}); });
  // A stored member is as large as the file shows: no limit is needed.
  save_npz(path("x.npz"), {{"a", zeros}}, false);
  EXPECT_EQ(load_npz(path("x.npz"), {.max_inflated_bytes = 0, .max_ratio = 0}).size(), 1u);
}

TEST_F(NpzTest, SurvivesTruncationAndFlippedBits) {
  const Tensor a(DType::f32, {2, 1}), b(DType::u8, {3});
  const auto read = [](const std::filesystem::path& path) {
    for (const auto& [name, tensor] : load_npz(path, {.access = FileAccess::copy})) {
      bytes_of(tensor.view);
    }
  };
  for (const bool compressed : {true, false}) {
    save_npz(path("right.npz"), {{"a", a}, {"b", b}}, compressed);
    const std::string right = content_of(path("right.npz"));
    expect_prefixes_refused(path("x.npz"), right, read);
    expect_flips_survived(path("x.npz"), right, right.size(), read);
  }
}

TEST(Npz, WithoutLibzipSaysSo) {
  if (npz_supported()) GTEST_SKIP() << "built with libzip";
  const auto says_so = [](const std::function<void()>& fn) {
    expect_error(ErrorKind::value, {"x.npz", "libzip"}, fn);
  };
  says_so([] { NpzFile("x.npz"); });
  says_so([] { load_npz("x.npz"); });
  says_so([] { save_npz("x.npz", {}); });
}

}  // namespace
}  // namespace qkv::io
