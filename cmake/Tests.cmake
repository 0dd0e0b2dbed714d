# qkv_tests: src/**/*_test.cc (beside what they test) and tests/*_test.cc, linked with the library's
# objects so that they reach what libqkv.so hides.

if(CMAKE_CROSSCOMPILING AND EXISTS "${QKV_GTEST_SOURCE_DIR}/CMakeLists.txt")
  # No GoogleTest compiled for the target: Debian ships its sources.
  set(INSTALL_GTEST OFF)
  add_subdirectory("${QKV_GTEST_SOURCE_DIR}" "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL SYSTEM)
  add_library(GTest::gmock_main ALIAS gmock_main)
else()
  find_package(GTest QUIET)
endif()
if(NOT TARGET GTest::gmock_main)
  message(STATUS "GoogleTest not found: no tests (Debian: libgtest-dev libgmock-dev)")
  return()
endif()
include(GoogleTest)

set(test_sources ${qkv_all_sources})
list(FILTER test_sources INCLUDE REGEX "_test\\.cc$")
file(GLOB cross_cutting_tests CONFIGURE_DEPENDS tests/*.cc)
file(GLOB cli_tests CONFIGURE_DEPENDS cli/*_test.cc)

add_executable(qkv_tests ${test_sources} ${cross_cutting_tests} ${cli_tests})
set_target_properties(qkv_tests PROPERTIES CXX_EXTENSIONS OFF)
target_include_directories(qkv_tests PRIVATE .)
target_link_libraries(qkv_tests PRIVATE qkv_objects qkv_library_options qkv_warnings GTest::gmock_main)
target_compile_definitions(qkv_tests PRIVATE
  QKV_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}"
  QKV_CMAKE_VERSION="${PROJECT_VERSION}")
# PRE_TEST: list the tests when ctest starts, not while linking (a crash at start-up, or an emulator
# that is not there, then fails a test and not the build). A GTEST_SKIP shows as ***Skipped.
gtest_discover_tests(qkv_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)

foreach(source IN LISTS example_sources)
  cmake_path(GET source STEM name)
  add_test(NAME example.${name} COMMAND example_${name})
endforeach()
