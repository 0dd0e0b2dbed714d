# Cross-compiles for 64-bit ARM on Debian (scripts/install-deps arm), and runs what it built in qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# Libraries of the target only. The header-only ones are taken from the build machine, one by one
# (cmake/Dependencies.cmake), and GoogleTest is compiled from the sources that Debian ships.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(QKV_HOST_INCLUDE_DIR /usr/include)
set(QKV_GTEST_SOURCE_DIR /usr/src/googletest)

# -L: where the emulated programs find their libc and libstdc++.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
