#pragma once

#include "qkv/export.h"

// The version of qkv, following Semantic Versioning. These three lines are the only place where it
// is written: CMake, the SOVERSION, pkg-config and `qkv --version` all read them from here.
#define QKV_VERSION_MAJOR 0
#define QKV_VERSION_MINOR 1
#define QKV_VERSION_PATCH 0

#define QKV_VERSION_STRINGIFY_(x) #x
#define QKV_VERSION_STRINGIFY(x) QKV_VERSION_STRINGIFY_(x)

// "major.minor.patch" of the headers.
#define QKV_VERSION_STRING                 \
  QKV_VERSION_STRINGIFY(QKV_VERSION_MAJOR) \
  "." QKV_VERSION_STRINGIFY(QKV_VERSION_MINOR) "." QKV_VERSION_STRINGIFY(QKV_VERSION_PATCH)

namespace qkv {

// "major.minor.patch" of the library that is linked; it differs from QKV_VERSION_STRING when a
// program was compiled with the headers of another version.
QKV_API const char* version() noexcept;

}  // namespace qkv
