# Flags, as interface targets: qkv_library_options for what decides the bits of the result,
# qkv_warnings for everything that we compile.

add_library(qkv_library_options INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  # -O3 comes with Release. Two things never come: -march=native (the library chooses its kernels when
  # it runs, and has to run elsewhere) and -ffast-math (it is exact attention).
  # -ffp-contract=off: a compiler may otherwise fuse a*b+c where the machine has FMA, so that the bits
  # would depend on the compiler and its version. Kernels that want FMA call it by name.
  target_compile_options(qkv_library_options INTERFACE -ffp-contract=off)
endif()

# Tests: what they call is fast, they themselves need not be, and -O1 compiles them in two thirds of the
# time.
add_library(qkv_test_options INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(qkv_test_options INTERFACE $<$<CONFIG:Release>:-O1>)
endif()

add_library(qkv_warnings INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(qkv_warnings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wextra-semi -Wvla
    -Wundef -Wimplicit-fallthrough
    # GCC 12 sees overlapping copies in std::string's own operator+ (its bug 105651).
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
    $<$<BOOL:${QKV_WERROR}>:-Werror>)
elseif(MSVC)
  target_compile_options(qkv_warnings INTERFACE /W4 $<$<BOOL:${QKV_WERROR}>:/WX>)
endif()

# Sanitizers are for the whole build, dependencies that we compile included: hence no target.
if(QKV_SANITIZE)
  add_compile_options(-fsanitize=${QKV_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's instrumentation makes it warn about the standard library's own code.
    target_compile_options(qkv_warnings INTERFACE -Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${QKV_SANITIZE})
endif()
