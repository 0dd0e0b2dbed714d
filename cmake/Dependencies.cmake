# What others wrote. Defines
#   qkv_private_headers    header-only, seen by the library's sources alone: fmt, nlohmann-json, Highway
#   qkv_cli_headers        header-only, seen by the program alone: CLI11
#   qkv_link_dependencies  what libqkv links: threads, OpenMP, libzip
#   qkv_image_dependencies  what the program links besides, to read photographs: libpng, libjpeg
# Nothing of it appears in include/qkv, so that who uses the shared library needs none of it.

add_library(qkv_private_headers INTERFACE)
add_library(qkv_cli_headers INTERFACE)

if(CMAKE_CROSSCOMPILING AND QKV_HOST_INCLUDE_DIR)
  # Header-only libraries of the build machine are as good for the target. Not its whole /usr/include
  # though, which would hide the target's libc: a folder with links to the wanted ones.
  set(host_headers "${CMAKE_CURRENT_BINARY_DIR}/host-headers")
  file(MAKE_DIRECTORY "${host_headers}")
  foreach(name fmt nlohmann hwy CLI)
    if(NOT EXISTS "${QKV_HOST_INCLUDE_DIR}/${name}")
      message(FATAL_ERROR "${QKV_HOST_INCLUDE_DIR}/${name} is missing (scripts/install-deps build)")
    endif()
    file(CREATE_LINK "${QKV_HOST_INCLUDE_DIR}/${name}" "${host_headers}/${name}" SYMBOLIC)
  endforeach()
  target_include_directories(qkv_private_headers SYSTEM INTERFACE "${host_headers}")
  set(fmt_headers "${QKV_HOST_INCLUDE_DIR}")
  target_include_directories(qkv_cli_headers SYSTEM INTERFACE "${host_headers}")
else()
  find_package(fmt REQUIRED)
  find_package(nlohmann_json REQUIRED)
  get_target_property(fmt_headers fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(qkv_private_headers SYSTEM INTERFACE ${fmt_headers})
  target_link_libraries(qkv_private_headers INTERFACE nlohmann_json::nlohmann_json)
  # Highway's headers, never its library: kernels are chosen by a table of ours (kernels/simd).
  find_path(QKV_HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
  mark_as_advanced(QKV_HWY_INCLUDE_DIR)
  target_include_directories(qkv_private_headers SYSTEM INTERFACE ${QKV_HWY_INCLUDE_DIR})
  if(QKV_BUILD_CLI)
    find_package(CLI11 REQUIRED)
    target_link_libraries(qkv_cli_headers INTERFACE CLI11::CLI11)
  endif()
endif()

# fmt's headers, never its library. Version 9 is compiled once, in src/base/fmt_once.cc; another version is
# used header-only, which takes longer to compile.
set(fmt_version "")
if(EXISTS "${fmt_headers}/fmt/core.h")
  file(STRINGS "${fmt_headers}/fmt/core.h" fmt_version REGEX "^#define FMT_VERSION [0-9]+")
endif()
if(NOT fmt_version MATCHES "FMT_VERSION 9[0-9][0-9][0-9][0-9]$")
  target_compile_definitions(qkv_private_headers INTERFACE FMT_HEADER_ONLY=1)
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
set(qkv_link_dependencies Threads::Threads)

if(QKV_THREADS STREQUAL "openmp")
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  list(APPEND qkv_link_dependencies OpenMP::OpenMP_CXX)
elseif(NOT QKV_THREADS STREQUAL "std")
  message(FATAL_ERROR "QKV_THREADS is '${QKV_THREADS}': expected openmp or std")
endif()

if(NOT DEFINED QKV_WITH_NPZ OR QKV_WITH_NPZ)
  find_package(LibZip QUIET)
endif()
option(QKV_WITH_NPZ "Read and write .npz (needs libzip)" ${LibZip_FOUND})
if(QKV_WITH_NPZ)
  if(NOT LibZip_FOUND)
    message(FATAL_ERROR "QKV_WITH_NPZ=ON, and libzip is not found (Debian: libzip-dev)")
  endif()
  list(APPEND qkv_link_dependencies LibZip::LibZip)
endif()

set(qkv_image_dependencies "")
foreach(format PNG JPEG)
  if(NOT DEFINED QKV_WITH_${format} OR QKV_WITH_${format})
    find_package(${format} QUIET)
  endif()
  option(QKV_WITH_${format} "Read .${format} photographs, in the program" ${${format}_FOUND})
  if(QKV_WITH_${format})
    if(NOT ${format}_FOUND)
      message(FATAL_ERROR "QKV_WITH_${format}=ON, and it is not found (Debian: libpng-dev, libjpeg-dev)")
    endif()
    list(APPEND qkv_image_dependencies ${format}::${format})
  endif()
endforeach()

# For comparison with our own kernels, which are as fast (docs/design.md): never asked for by default.
option(QKV_WITH_ONEDNN "Offer oneDNN's matrix product beside ours (needs libdnnl, and QKV_THREADS=openmp)" OFF)
if(QKV_WITH_ONEDNN)
  if(NOT QKV_THREADS STREQUAL "openmp")
    message(FATAL_ERROR "QKV_WITH_ONEDNN=ON, and QKV_THREADS is '${QKV_THREADS}': its threads are OpenMP's")
  endif()
  find_package(OneDnn QUIET)
  if(NOT OneDnn_FOUND)
    message(FATAL_ERROR "QKV_WITH_ONEDNN=ON, and oneDNN is not found (Debian: libdnnl-dev)")
  endif()
  list(APPEND qkv_link_dependencies OneDnn::OneDnn)
endif()
