#pragma once

// Errors of libzip. Only to be included in a build with it.

#include <zip.h>

#include <new>
#include <string_view>

#include "io/report.h"

namespace qkv::io {

// libzip's error, which owns its text once that was asked for.
struct ZipError {
  zip_error_t value;
  ZipError() noexcept { zip_error_init(&value); }
  ~ZipError() { zip_error_fini(&value); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;
};

[[noreturn]] inline void refuse_zip(std::string_view where, std::string_view subject,
                                    std::string_view expected, zip_error_t* error) {
  if (zip_error_code_zip(error) == ZIP_ER_MEMORY) throw std::bad_alloc();
  refuse(where, subject, expected, zip_error_strerror(error));
}

}  // namespace qkv::io
