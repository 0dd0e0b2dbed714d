// Archives that no honest program writes, made by hand field by field.

#include <functional>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "io/npy_format.h"
#include "io/test_files.h"
#include "io/zip_directory.h"
#include "qkv/npz.h"

namespace qkv::io {
namespace {

using namespace std::string_literals;

template <typename T>
std::string le(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}
std::string u16(std::uint64_t value) { return le(static_cast<std::uint16_t>(value)); }
std::string u32(std::uint64_t value) { return le(static_cast<std::uint32_t>(value)); }
std::string u64(std::uint64_t value) { return le(value); }

// The fields that a member's two headers share.
struct Fields {
  std::string name;
  std::uint16_t flags = 0, method = ZipEntry::kStored;
  std::uint32_t crc = 0;
  std::uint64_t compressed_size = 0, size = 0;
  std::string extra;
};

struct Member {
  Fields local, central;
  std::string data;
  std::string after;               // a data descriptor, or junk
  std::uint64_t offset_shift = 0;  // central offset less the true one
};

struct Archive {
  std::vector<Member> members;
  std::uint16_t disk = 0, more_entries = 0, more_entries_here = 0;
  std::int64_t directory_shift = 0, directory_growth = 0;
  std::string before_end{}, comment{}, trailing{};
};

std::string shared_fields(const Fields& f) {
  return u16(f.flags) + u16(f.method) + u16(0) + u16(0x21) + u32(f.crc) + u32(f.compressed_size) +
         u32(f.size) + u16(f.name.size()) + u16(f.extra.size());
}

std::string build(const Archive& archive) {
  std::string out, directory;
  for (const Member& member : archive.members) {
    const std::uint64_t offset = out.size() + member.offset_shift;
    out += "PK\3\4" + u16(20) + shared_fields(member.local) + member.local.name +
           member.local.extra + member.data + member.after;
    directory += "PK\1\2" + u16(20) + u16(20) + shared_fields(member.central) + u16(0) + u16(0) +
                 u16(0) + u32(0) + u32(offset) + member.central.name + member.central.extra;
  }
  const auto count = archive.members.size();
  const std::uint64_t at = out.size() + static_cast<std::uint64_t>(archive.directory_shift);
  const std::uint64_t size =
      directory.size() + static_cast<std::uint64_t>(archive.directory_growth);
  return out + directory + archive.before_end + "PK\5\6" + u16(archive.disk) + u16(0) +
         u16(count + archive.more_entries + archive.more_entries_here) +
         u16(count + archive.more_entries) + u32(size) + u32(at) + u16(archive.comment.size()) +
         archive.comment + archive.trailing;
}

// The .npy file of the bytes 1 2 3.
std::string small_npy() {
  static constexpr std::uint8_t kValues[] = {1, 2, 3};
  const TensorView view(kValues, DType::u8, {3});
  return npy_preamble(view, "test") + bytes_of(view);
}

Member stored(const std::string& name, const std::string& content = small_npy()) {
  Fields f;
  f.name = name;
  f.crc = crc32(as_bytes(content));
  f.compressed_size = f.size = content.size();
  Member member;
  member.local = member.central = f;
  member.data = content;
  return member;
}

// Deflated in one block without compression, which every inflater knows.
Member deflated(const std::string& name, const std::string& content = small_npy()) {
  Member member = stored(name, content);
  member.data = "\1" + u16(content.size()) + u16(~content.size()) + content;
  for (Fields* f : {&member.local, &member.central}) {
    f->method = ZipEntry::kDeflated;
    f->compressed_size = member.data.size();
  }
  return member;
}

class NpzAttackTest : public FileTest {
 protected:
  void SetUp() override {
    if (!npz_supported()) GTEST_SKIP() << "built without libzip";
    FileTest::SetUp();
  }

  std::map<std::string, FileTensor> load(const std::string& content) {
    return load_npz(file("x.npz", content), {.access = FileAccess::copy});
  }
  void refused(const Archive& archive, std::initializer_list<std::string_view> fragments) {
    expect_error(ErrorKind::value, fragments, [&] { load(build(archive)); });
    expect_error(ErrorKind::value, {"x.npz"}, [&] { load_npz(path("x.npz")); });
  }
  // One member, right but for what `change` does to it.
  void refused_member(Member member, const std::function<void(Member&)>& change,
                      std::initializer_list<std::string_view> fragments) {
    change(member);
    refused({.members = {stored("first"), member, stored("last")}}, fragments);
  }
  void accepted(const Archive& archive) {
    for (const auto& [name, tensor] : load(build(archive))) {
      EXPECT_EQ(bytes_of(tensor.view), "\1\2\3") << name;
    }
  }
};

TEST_F(NpzAttackTest, WhatTheTestsStartFromIsRight) {
  accepted({.members = {stored("a.npy"), deflated("b.npy"), stored("c")}});
}

TEST_F(NpzAttackTest, LocalAndCentralHeaderSayTheSame) {
  for (const Member& member : {stored("m"), deflated("m")}) {
    const auto local = [&](auto change, std::string_view what) {
      refused_member(member, [&](Member& m) { change(m.local); }, {"local header of 'm'", what});
    };
    local([](Fields& f) { f.name = "n"; }, "name");
    local([](Fields& f) { f.name = "mm"; }, "name");
    local([](Fields& f) { f.method ^= 8; }, "method");
    local([](Fields& f) { f.flags ^= 1 << 11; }, "flags");
    local([](Fields& f) { f.flags ^= 1; }, "flags");
    local([](Fields& f) { f.flags ^= 8; }, "flags");
    local([](Fields& f) { f.crc ^= 1; }, "CRC");
    local([](Fields& f) { f.crc = 0; }, "CRC");
    local([](Fields& f) { f.size += 1; }, "size");
    local([](Fields& f) { f.size = 0; }, "size");
    local([](Fields& f) { f.compressed_size -= 1; }, "size");
    local([](Fields& f) { f.compressed_size = 0xffffffff; }, "more bytes");  // no ZIP64 field
    local([](Fields& f) { f.extra = u16(1) + u16(9); }, "more bytes");       // cut off
  }
}

TEST_F(NpzAttackTest, EncryptionAndOtherMethods) {
  for (const int bit : {0, 6, 13}) {
    refused_member(stored("m"), [&](Member& m) { m.local.flags = m.central.flags = 1u << bit; },
                   {"'m'", "encrypted"});
  }
  for (const std::uint16_t method : {1, 9, 12, 14, 93, 95, 99}) {
    refused_member(stored("m"), [&](Member& m) { m.local.method = m.central.method = method; },
                   {"'m'", "method 0 (stored) or 8 (deflated)", std::to_string(method)});
  }
}

TEST_F(NpzAttackTest, DataIsWhatTheCrcSays) {
  for (const Member& member : {stored("m"), deflated("m")}) {
    refused_member(member, [](Member& m) { m.data.back() ^= 1; }, {"'m'"});
    refused_member(member, [](Member& m) { m.local.crc = m.central.crc ^= 1; }, {"'m'"});
  }
  refused_member(deflated("m"), [](Member& m) { m.data[0] = 7; },
                 {"'m'"});  // a kind of block that is none
}

TEST_F(NpzAttackTest, SizesThatLie) {
  const auto both = [](Member& m, auto change) {
    change(m.local);
    change(m.central);
  };
  refused_member(stored("m"), [&](Member& m) { both(m, [](Fields& f) { f.size += 1; }); },
                 {"one size"});
  // More than declared: inflating stops there.
  refused_member(deflated("m"), [&](Member& m) { both(m, [](Fields& f) { f.size -= 1; }); },
                 {"'m'"});
  refused_member(deflated("m"), [&](Member& m) { both(m, [](Fields& f) { f.size = 0; }); },
                 {"'m'"});
  // Fewer than declared.
  refused_member(deflated("m"), [&](Member& m) { both(m, [](Fields& f) { f.size += 1; }); },
                 {"'m'"});
  refused_member(deflated("m"), [&](Member& m) { both(m, [](Fields& f) { f.size = 100'000; }); },
                 {"'m'"});
  // More than deflate can make of it, or than the limit.
  refused_member(deflated("m"), [&](Member& m) { both(m, [](Fields& f) { f.size = 1 << 20; }); },
                 {"'m'", "1032 times"});
  refused_member(deflated("m"), [&](Member& m) { both(m, [](Fields& f) { f.size = 0xfffffffe; }); },
                 {"'m'"});
  // Data that ends inside the deflate stream, or outside of the archive.
  refused_member(deflated("m"),
                 [&](Member& m) { both(m, [](Fields& f) { f.compressed_size -= 1; }); }, {"'m'"});
  for (const Member& member : {stored("m"), deflated("m")}) {
    refused_member(member,
                   [&](Member& m) {
                     both(m, [&](Fields& f) {
                       f.compressed_size = 0xfffffffe;
                       if (f.method == ZipEntry::kStored) f.size = f.compressed_size;
                     });
                   },
                   {"'m'", "bytes of data"});
  }
}

// Zeros that inflate a thousandfold, declared as little: nothing past the declared size is kept.
TEST_F(NpzAttackTest, ABombThatDeclaresLittle) {
  const Tensor zeros(DType::u8, {10'000'000});
  save_npz(path("bomb.npz"), {{"m", zeros}});
  std::string content = content_of(path("bomb.npz"));
  const ZipEntry entry = read_zip_directory(as_bytes(content), "test").at(0);
  const std::string lie = u32(200);
  content.replace(entry.header_offset + 22, 4, lie);
  content.replace(content.rfind("PK\1\2") + 24, 4, lie);
  expect_error(ErrorKind::value, {"x.npz", "m.npy"}, [&] { load(content); });
}

TEST_F(NpzAttackTest, NoByteBelongsToTwoMembers) {
  // Both name the first local header: the same name twice. Then one inside the data of another.
  Member second = stored("a");
  second.offset_shift = 0 - static_cast<std::uint64_t>(30 + 1 + second.data.size());
  refused({.members = {stored("a"), second}}, {"overlap"});

  const Member inner = stored("inner");
  const std::string inner_file = build({.members = {inner}});
  Member outer = stored("outer", inner_file.substr(0, 30 + 5 + inner.data.size()));
  Member pointer = inner;
  const std::uint64_t outer_size = 30 + 5 + outer.data.size();
  pointer.offset_shift = 0 - (outer_size - (30 + 5));
  refused({.members = {outer, pointer}}, {"overlap"});

  // The directory is no member's data either.
  refused_member(stored("m"), [](Member& m) { m.offset_shift = 1'000'000; },
                 {"local header of 'm'"});
  refused_member(stored("m"), [](Member& m) { m.offset_shift = 1; }, {"local header of 'm'"});
}

TEST_F(NpzAttackTest, NamesAreUniqueText) {
  refused({.members = {stored("a.npy"), stored("a.npy")}}, {"'a' twice"});
  refused({.members = {stored("a.npy"), stored("a")}}, {"'a' twice"});
  refused({.members = {stored("a\xff.npy")}}, {"UTF-8"});
  refused({.members = {stored("a\0b.npy"s)}}, {"UTF-8"});
  accepted({.members = {stored("a.npy"), stored("A.npy"), stored("./a.npy"), stored("../a.npy")}});
}

TEST_F(NpzAttackTest, TheDirectoryHasOneReading) {
  const std::vector<Member> members = {stored("a"), deflated("b")};
  refused({.members = members, .disk = 1}, {"one part"});
  refused({.members = members, .more_entries = 1}, {"central directory"});
  refused({.members = members, .more_entries = static_cast<std::uint16_t>(-1)},
          {"1 members alone"});
  refused({.members = members, .more_entries_here = 1}, {"one part"});
  refused({.members = members, .directory_shift = 1}, {"central directory"});
  refused({.members = members, .directory_shift = -1}, {"central directory"});
  refused({.members = members, .directory_growth = 1}, {"central directory"});
  refused({.members = members, .directory_growth = -1}, {"central directory"});
  refused({.members = members, .directory_shift = 1, .directory_growth = -1},
          {"central directory"});
  refused({.members = members, .before_end = "x"}, {"central directory"});
  refused({.members = members, .comment = "hello"}, {"end record"});
  refused({.members = members, .trailing = "x"}, {"end record"});
  // A second, whole archive in the comment of the first: each is the right one to some reader.
  refused({.members = members, .comment = build({.members = {stored("evil")}})}, {"x.npz"});
}

TEST_F(NpzAttackTest, MembersAreCheckedLikeNpyFiles) {
  refused({.members = {stored("a.npy", "not one")}}, {"x.npz: 'a.npy'", "magic"});
  refused({.members = {stored("a.npy", "")}}, {"magic", "empty"});
  refused({.members = {deflated("a.npy", "")}}, {"magic", "empty"});
  refused({.members = {stored("a.npy", small_npy() + "x")}}, {"data", "4 bytes"});
  const std::string object = "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }";
  refused({.members = {deflated("a.npy", "\x93NUMPY\1\0"s + u16(object.size()) + object + "x")}},
          {"pickle"});
}

// --- what honest writers do that looks odd -------------------------------------------------

std::string zip64_field(std::initializer_list<std::uint64_t> numbers) {
  std::string out = u16(1) + u16(8 * numbers.size());
  for (const std::uint64_t number : numbers) out += u64(number);
  return out;
}

// NumPy: sizes of the local header in a ZIP64 field, those of the directory not.
TEST_F(NpzAttackTest, Zip64LocalHeaders) {
  for (Member member : {stored("m"), deflated("m")}) {
    const Fields& right = member.central;
    member.local.size = member.local.compressed_size = 0xffffffff;
    member.local.extra = zip64_field({right.size, right.compressed_size});
    accepted({.members = {member, stored("last")}});
    for (const int lie : {0, 1}) {
      Member wrong = member;
      wrong.local.extra =
          zip64_field({right.size + (lie == 0), right.compressed_size + (lie == 1)});
      refused({.members = {wrong}}, {"local header of 'm'", "size"});
    }
    Member twice = member;
    twice.local.extra += member.local.extra;
    refused({.members = {twice}}, {"one ZIP64 field", "two"});
  }
}

// Large members and offsets: ZIP64 in the directory.
TEST_F(NpzAttackTest, Zip64CentralHeaders) {
  Member member = deflated("m");
  const Fields right = member.central;
  member.central.size = member.central.compressed_size = 0xffffffff;
  member.central.extra = zip64_field({right.size, right.compressed_size});
  accepted({.members = {member}});
  Member wrong = member;
  wrong.central.extra = zip64_field({right.size});
  refused({.members = {wrong}}, {"central header of 'm'", "8 more bytes"});
  wrong.central.extra = zip64_field({~std::uint64_t{0}, right.compressed_size});
  refused({.members = {wrong}}, {"'m'"});
  wrong.central.extra = zip64_field({right.size, ~std::uint64_t{0}});
  refused({.members = {wrong}}, {"'m'"});
}

TEST_F(NpzAttackTest, Zip64EndRecord) {
  const std::vector<Member> members = {stored("a"), stored("b")};
  const std::string plain = build({.members = members});
  const std::uint64_t end = plain.size() - 22, start = plain.find("PK\1\2");
  const std::string saturated = u16(0xffff) + u16(0xffff) + u32(0xffffffff) + u32(0xffffffff);
  const auto with = [&](std::uint64_t count, std::uint64_t size, std::uint64_t offset,
                        std::uint64_t at, const std::string& numbers) {
    return plain.substr(0, end) + "PK\6\6" + u64(44) + u16(45) + u16(45) + u32(0) + u32(0) +
           u64(count) + u64(count) + u64(size) + u64(offset) + "PK\6\7" + u32(0) + u64(at) +
           u32(1) + "PK\5\6" + u16(0) + u16(0) + numbers + u16(0);
  };
  const std::uint64_t size = end - start, most = ~std::uint64_t{0};
  EXPECT_EQ(load(with(2, size, start, end, saturated)).size(), 2u);
  EXPECT_EQ(load(with(2, size, start, end, u16(2) + u16(2) + u32(size) + u32(start))).size(), 2u);
  const auto fails = [&](const std::string& content) {
    expect_error(ErrorKind::value, {"x.npz"}, [&] { load(content); });
  };
  fails(with(3, size, start, end, saturated));
  fails(with(most, size, start, end, saturated));
  fails(with(2, size + 1, start, end, saturated));
  fails(with(2, size, start + 1, end, saturated));
  fails(with(2, most, start + 1, end, saturated));
  fails(with(2, size, most, end, saturated));
  fails(with(2, size, start, end + 1, saturated));
  // Two end records that differ.
  fails(with(2, size, start, end, u16(1) + u16(1) + u32(size) + u32(start)));
  fails(with(2, size, start, end, u16(2) + u16(2) + u32(size - 1) + u32(start)));
  fails(with(2, size, start, end, u16(2) + u16(2) + u32(size) + u32(start + 1)));
  fails("PK\5\6" + u32(0) + u32(0xffffffff) + u32(0xffffffff) + u32(0xffffffff) + u16(0));
}

// Writers that cannot go back: CRC and sizes follow the data, in four forms.
TEST_F(NpzAttackTest, DataDescriptors) {
  for (const bool magic : {true, false}) {
    for (const bool wide : {true, false}) {
      Member member = deflated("m");
      const Fields right = member.central;
      member.local.flags = member.central.flags = 8;
      member.local.crc = 0;
      member.local.size = member.local.compressed_size = 0;
      const auto descriptor = [&](std::uint32_t crc, std::uint64_t a, std::uint64_t b) {
        return (magic ? "PK\7\10" : "") + u32(crc) + (wide ? u64(a) + u64(b) : u32(a) + u32(b));
      };
      member.after = descriptor(right.crc, right.compressed_size, right.size);
      accepted({.members = {member, stored("last")}});
      for (const std::string& wrong :
           {descriptor(right.crc ^ 1, right.compressed_size, right.size),
            descriptor(right.crc, right.compressed_size + 1, right.size),
            descriptor(right.crc, right.compressed_size, right.size + 1), ""s}) {
        member.after = wrong;
        refused({.members = {member, stored("last")}}, {"data descriptor of 'm'"});
      }
    }
  }
}

}  // namespace
}  // namespace qkv::io
