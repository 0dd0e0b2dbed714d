#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "qkv/export.h"

namespace qkv {

// What a caller can do about an error: pass another value, pass another dtype,
// or look at the file system.
enum class ErrorKind { value, type, io };

// The one error of the library. It is thrown at the edge (ops, blocks, io), before any output
// is written, and always says who refused, what was expected and what was found:
//
//   [attention_forward] key: expected shape [2, Hkv, Tk, 64], found [2, 8, 10, 32]
//
// Running out of memory stays std::bad_alloc.
class QKV_API Error : public std::runtime_error {
 public:
  // `where` is the operator or the file, `subject` the argument or field of it.
  Error(ErrorKind kind, std::string_view where, std::string_view subject, std::string_view expected,
        std::string_view found);

  ErrorKind kind() const noexcept { return kind_; }
  const std::string& where() const noexcept { return where_; }
  const std::string& subject() const noexcept { return subject_; }
  const std::string& expected() const noexcept { return expected_; }
  const std::string& found() const noexcept { return found_; }

 private:
  ErrorKind kind_;
  std::string where_, subject_, expected_, found_;
};

}  // namespace qkv
