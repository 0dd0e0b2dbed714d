# qkv_tests: src/**/*_test.cc (beside what they test) and tests/*_test.cc, linked with the library's
# objects so that they reach what libqkv.so hides.

if(CMAKE_CROSSCOMPILING AND EXISTS "${QKV_GTEST_SOURCE_DIR}/CMakeLists.txt")
  # No GoogleTest compiled for the target: Debian ships its sources.
  set(INSTALL_GTEST OFF)
  add_subdirectory("${QKV_GTEST_SOURCE_DIR}" "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL SYSTEM)
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
set(cli_tests "")
if(QKV_BUILD_CLI)
  file(GLOB cli_tests CONFIGURE_DEPENDS cli/*_test.cc)
endif()

list(APPEND test_sources ${cross_cutting_tests} ${cli_tests})
if(QKV_TESTS_MATCHING)
  # The test files that match, and of what tests share (tests/<name>.cc) what these include.
  set(shared_sources ${test_sources})
  list(FILTER shared_sources EXCLUDE REGEX "_test\\.cc$")
  list(REMOVE_ITEM test_sources ${shared_sources})
  set(kept "")
  set(includes "")
  foreach(source IN LISTS test_sources)
    file(STRINGS "${source}" lines REGEX "${QKV_TESTS_MATCHING}")
    if(lines)
      file(STRINGS "${source}" lines REGEX "^#include \"tests/")
      list(APPEND kept "${source}")
      list(APPEND includes ${lines})
    endif()
  endforeach()
  foreach(source IN LISTS shared_sources)
    cmake_path(GET source STEM name)
    if(includes MATCHES "tests/${name}\\.h")
      list(APPEND kept "${source}")
    endif()
  endforeach()
  set(test_sources ${kept})
endif()

add_executable(qkv_tests ${test_sources})
if(QKV_PCH)
  target_precompile_headers(qkv_tests PRIVATE
    <algorithm> <cmath> <map> <memory> <string> <vector> <fmt/format.h> <gmock/gmock.h> <gtest/gtest.h>
    <nlohmann/json.hpp>)
endif()
# What the kernels are compared with has as much to compute.
file(GLOB oracles RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" tests/*_oracle.cc)
set_source_files_properties(${oracles} PROPERTIES
  COMPILE_OPTIONS "${QKV_KERNEL_OPTIONS}" SKIP_PRECOMPILE_HEADERS ON)
set_target_properties(qkv_tests PROPERTIES CXX_EXTENSIONS OFF)
target_include_directories(qkv_tests PRIVATE .)
target_link_libraries(qkv_tests PRIVATE
  qkv_objects qkv_image_objects qkv_library_options qkv_test_options qkv_warnings GTest::gmock_main)
if(QKV_BUILD_EXPLAIN)
  target_link_libraries(qkv_tests PRIVATE qkv_explain_objects)
endif()
if(QKV_BUILD_CLI)
  target_sources(qkv_tests PRIVATE $<TARGET_OBJECTS:qkv_cli_objects>)
  target_link_libraries(qkv_tests PRIVATE qkv_cli_headers)
endif()
target_compile_definitions(qkv_tests PRIVATE
  QKV_TEST_PERCENT=${QKV_TEST_PERCENT})
# Where this folder is, for the few files that ask: the others are then compiled alike in any folder, and
# ccache knows them.
foreach(source IN LISTS test_sources)
  file(STRINGS "${source}" asks REGEX "QKV_(SOURCE_DIR|CMAKE_VERSION)")
  if(asks)
    set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_DEFINITIONS
      QKV_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}" QKV_CMAKE_VERSION="${PROJECT_VERSION}")
  endif()
endforeach()
# Threads that wait would spin, on cores that the other tests could use.
set(test_environment OMP_WAIT_POLICY=passive)
if(QKV_TEST_SHARDS)
  # To start a process costs more than most tests. `make test` lists what they skip.
  math(EXPR last_shard "${QKV_TEST_SHARDS} - 1")
  foreach(shard RANGE ${last_shard})
    add_test(NAME tests.${shard} COMMAND qkv_tests)
    set_tests_properties(tests.${shard} PROPERTIES
      TIMEOUT 1200
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${QKV_TEST_SHARDS};GTEST_SHARD_INDEX=${shard};${test_environment}")
  endforeach()
else()
  # PRE_TEST: list the tests when ctest starts, not while linking (a crash at start-up then fails a test
  # and not the build). A GTEST_SKIP shows as ***Skipped.
  gtest_discover_tests(qkv_tests DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES
    TIMEOUT 600 ENVIRONMENT "${test_environment}")
endif()

# What is tuned otherwise on another CPU, as it would be there (QKV_CPU: src/base/cpu.h).
if(NOT CMAKE_CROSSCOMPILING)
  foreach(cpu sapphire zen4 zen5 other)
    add_test(NAME tests.tuned_for_${cpu}
      COMMAND qkv_tests "--gtest_filter=FusedKernels.*:Plan.*:Pixel*:Prepared*:*PanelTargets.*")
    set_tests_properties(tests.tuned_for_${cpu} PROPERTIES
      TIMEOUT 1200 ENVIRONMENT "QKV_CPU=${cpu};${test_environment}")
  endforeach()
endif()

# The check of layers alone, for `make lint`, which should not have to build the rest.
add_executable(qkv_layering EXCLUDE_FROM_ALL tests/layering_test.cc)
set_target_properties(qkv_layering PROPERTIES CXX_EXTENSIONS OFF)
target_compile_features(qkv_layering PRIVATE cxx_std_20)
target_compile_definitions(qkv_layering PRIVATE QKV_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(qkv_layering PRIVATE qkv_test_options qkv_warnings GTest::gmock_main)

# Each public header compiles alone, with nothing but include/ in sight: once, for users.
if(NOT QKV_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  file(GLOB public_headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/include" include/qkv/*.h)
  set(header_checks "")
  foreach(header IN LISTS public_headers)
    set(check "${CMAKE_CURRENT_BINARY_DIR}/header-checks/${header}.cc")
    file(CONFIGURE OUTPUT "${check}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND header_checks "${check}")
  endforeach()
  add_library(qkv_header_checks OBJECT ${header_checks})
  set_target_properties(qkv_header_checks PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(qkv_header_checks PRIVATE qkv::qkv qkv_warnings)
endif()

# The program as a shell sees it. (Emulated, it would have the emulator's signals.)
if(QKV_BUILD_CLI AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME cli COMMAND bash "${CMAKE_CURRENT_SOURCE_DIR}/tests/cli/run" $<TARGET_FILE:qkv_cli>)
endif()

foreach(source IN LISTS example_sources)
  cmake_path(GET source STEM name)
  add_test(NAME example.${name} COMMAND example_${name})
endforeach()

if(QKV_INSTALL AND NOT CMAKE_CROSSCOMPILING AND NOT QKV_SANITIZE)
  include(PackageTests)
endif()
