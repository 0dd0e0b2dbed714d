#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <unordered_set>

#include "io/element_stream.h"
#include "io/file_writer.h"
#include "io/inflate.h"
#include "io/npy_format.h"
#include "io/report.h"
#include "qkv/npz.h"

#if QKV_WITH_NPZ
#include "io/zip_error.h"
#endif

namespace qkv {

#if QKV_WITH_NPZ

namespace {

using io::Bytes;
using io::in_quotes;
using io::refuse;

// libzip is C: it calls us to read a member and to write the archive, and no exception may pass
// through it. The first one is kept here, and thrown again when libzip has returned.
struct Failure {
  std::exception_ptr exception;

  template <typename Fn>
  zip_int64_t run(Fn&& fn) noexcept {
    try {
      return fn();
    } catch (...) {
      if (!exception) exception = std::current_exception();
      return -1;
    }
  }
};

// What libzip is told about an error: that there was one. The rest is in Failure.
zip_int64_t report_error(void* data, zip_uint64_t length, int system_error) {
  io::ZipError error;
  zip_error_set(&error.value, ZIP_ER_READ, system_error);
  return zip_error_to_data(&error.value, data, length);
}

// One member on its way into the archive: the .npy preamble, then the elements in pieces.
class Member {
 public:
  Member(std::string preamble, const TensorView& view, Failure& failure)
      : preamble_(std::move(preamble)), view_(view), stream_(view), failure_(failure) {}

  static zip_int64_t call(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    return static_cast<Member*>(self)->handle(data, length, command);
  }

 private:
  zip_int64_t handle(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        return failure_.run([&] {
          stream_ = io::ElementStream(view_);
          piece_ = io::as_bytes(preamble_);
          return 0;
        });
      case ZIP_SOURCE_READ: return failure_.run([&] { return read(data, length); });
      case ZIP_SOURCE_STAT: return stat(static_cast<zip_stat_t*>(data));
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE: return 0;  // owned by save_npz
      case ZIP_SOURCE_ERROR: return report_error(data, length, EIO);
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              -1);
      default: return -1;
    }
  }

  zip_int64_t read(void* to, std::uint64_t length) {
    if (piece_.empty()) piece_ = stream_.next();
    const std::size_t count = std::min<std::uint64_t>(length, piece_.size());
    if (count != 0) std::memcpy(to, piece_.data(), count);
    piece_ = piece_.subspan(count);
    return static_cast<zip_int64_t>(count);
  }

  zip_int64_t stat(zip_stat_t* status) const {
    zip_stat_init(status);
    status->valid = ZIP_STAT_SIZE;  // known in advance: libzip decides on ZIP64 by it
    status->size =
        preamble_.size() + static_cast<std::uint64_t>(view_.size()) * size_of(view_.dtype());
    return sizeof(zip_stat_t);
  }

  std::string preamble_;
  TensorView view_;
  io::ElementStream stream_;
  Bytes piece_;
  Failure& failure_;
};

// The archive as libzip writes it, over a FileWriter.
class Archive {
 public:
  Archive(io::FileWriter& out, Failure& failure) : out_(out), failure_(failure) {}

  static zip_int64_t call(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    return static_cast<Archive*>(self)->handle(data, length, command);
  }

 private:
  zip_int64_t handle(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_STAT: return -1;  // with ENOENT below: there is no archive yet
      case ZIP_SOURCE_ERROR: return report_error(data, length, ENOENT);
      case ZIP_SOURCE_WRITE:
        return failure_.run([&] {
          out_.write(Bytes(static_cast<const std::byte*>(data), length));
          return static_cast<zip_int64_t>(length);
        });
      case ZIP_SOURCE_SEEK_WRITE: return failure_.run([&] { return seek(data, length); });
      case ZIP_SOURCE_TELL_WRITE: return static_cast<zip_int64_t>(out_.position());
      // The file is FileWriter's business: it begins and ends outside of libzip.
      case ZIP_SOURCE_BEGIN_WRITE:
      case ZIP_SOURCE_COMMIT_WRITE:
      case ZIP_SOURCE_ROLLBACK_WRITE:
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE: return 0;
      case ZIP_SOURCE_SUPPORTS:
        // All that libzip wants of a writable source; the reading ones are never called.
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS,
            ZIP_SOURCE_BEGIN_WRITE, ZIP_SOURCE_COMMIT_WRITE, ZIP_SOURCE_ROLLBACK_WRITE,
            ZIP_SOURCE_WRITE, ZIP_SOURCE_SEEK_WRITE, ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_REMOVE, -1);
      default: return -1;
    }
  }

  zip_int64_t seek(void* data, zip_uint64_t length) {
    io::ZipError error;
    end_ = std::max(end_, out_.position());
    const zip_int64_t offset =
        zip_source_seek_compute_offset(out_.position(), end_, data, length, &error.value);
    if (offset < 0) return -1;
    out_.seek(static_cast<std::uint64_t>(offset));
    return 0;
  }

  io::FileWriter& out_;
  Failure& failure_;
  std::uint64_t end_ = 0;
};

struct Discard {
  void operator()(zip_t* archive) const noexcept { zip_discard(archive); }
};
using ZipPointer = std::unique_ptr<zip_t, Discard>;

[[noreturn]] void throw_failure(const Failure& failure, std::string_view where,
                                zip_error_t* error) {
  if (failure.exception) std::rethrow_exception(failure.exception);
  io::refuse_zip(where, "archive", "libzip to write it", error);
}

void add_member(zip_t* archive, const std::string& name, Member& member, bool compressed,
                const Failure& failure, std::string_view where) {
  const auto check = [&](bool good) {
    if (!good) throw_failure(failure, where, zip_get_error(archive));
  };
  zip_source_t* source = zip_source_function(archive, &Member::call, &member);
  check(source != nullptr);
  const zip_int64_t added = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (added < 0) zip_source_free(source);
  check(added >= 0);
  const auto index = static_cast<zip_uint64_t>(added);
  constexpr int kLevel = 6;  // as NumPy
  check(zip_set_file_compression(archive, index, compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE,
                                 compressed ? kLevel : 0) == 0);
  // 1 January 1980, as NumPy: the same arrays give the same file.
  check(zip_file_set_dostime(archive, index, 0, 0x21, 0) == 0);
}

void write_archive(io::FileWriter& out, const std::vector<NamedTensor>& tensors,
                   std::deque<Member>& members, Failure& failure, bool compressed) {
  io::ZipError error;
  Archive target(out, failure);
  zip_source_t* source = zip_source_function_create(&Archive::call, &target, &error.value);
  if (source == nullptr) throw_failure(failure, out.name(), &error.value);
  ZipPointer archive(zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error.value));
  if (archive == nullptr) {
    zip_source_free(source);
    throw_failure(failure, out.name(), &error.value);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    add_member(archive.get(), tensors[i].name + ".npy", members[i], compressed, failure,
               out.name());
  }
  if (zip_close(archive.get()) != 0) {
    throw_failure(failure, out.name(), zip_get_error(archive.get()));
  }
  static_cast<void>(archive.release());  // zip_close has freed it
}

void check_names(const std::vector<NamedTensor>& tensors, std::string_view where) {
  constexpr std::size_t kLongest = 65'535 - 4;  // of a zip member, less ".npy"
  std::unordered_set<std::string_view> seen;
  for (const NamedTensor& tensor : tensors) {
    const std::string& name = tensor.name;
    if (!io::is_utf8(name) || name.find('\0') != std::string::npos || name.size() > kLongest) {
      refuse(where, "name of an array", fmt::format("at most {} bytes of UTF-8", kLongest),
             in_quotes(name));
    }
    if (!seen.insert(name).second) {
      refuse(where, "names of the arrays", "each once", fmt::format("{} twice", in_quotes(name)));
    }
  }
}

}  // namespace

void save_npz(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
              bool compressed) {
  const std::string where = path.string();
  check_names(tensors, where);
  Failure failure;
  std::deque<Member> members;  // libzip keeps pointers to them
  for (const NamedTensor& tensor : tensors) {
    const std::string subject = fmt::format("{}: {}", where, in_quotes(tensor.name));
    members.emplace_back(io::npy_preamble(tensor.view, subject), tensor.view, failure);
  }
  io::FileWriter out(path);
  if (tensors.empty()) {
    // libzip would remove the file instead. An end record alone, as NumPy writes.
    const std::string_view empty("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    out.write(io::as_bytes(empty));
  } else {
    write_archive(out, tensors, members, failure, compressed);
  }
  out.commit();
}

#else  // without libzip

void save_npz(const std::filesystem::path& path, const std::vector<NamedTensor>&, bool) {
  io::require_npz_support(path.string());
}

#endif

}  // namespace qkv
