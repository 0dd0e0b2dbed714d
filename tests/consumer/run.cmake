# Installs qkv, or builds and runs one of the consumer projects, as a test would:
#   cmake -D STEP=install|find_package|add_subdirectory|pkg_config -D ... -P run.cmake
# BUILD_DIR is the build tree of qkv, VERSION what a consumer has to find.
cmake_minimum_required(VERSION 3.25)

set(work "${BUILD_DIR}/consumer")
set(prefix "${work}/prefix")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(output "${output}" PARENT_SCOPE)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
endfunction()

function(run_consumer program)
  run(${program})
  if(NOT output STREQUAL "qkv ${VERSION}\n")
    message(FATAL_ERROR "expected 'qkv ${VERSION}', found '${output}'")
  endif()
endfunction()

function(build_with_cmake)
  file(REMOVE_RECURSE "${work}/${STEP}")
  run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/${STEP}" -B "${work}/${STEP}" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" ${ARGV})
  run("${CMAKE_COMMAND}" --build "${work}/${STEP}")
  run_consumer("${work}/${STEP}/consumer")
endfunction()

if(STEP STREQUAL "install")
  file(REMOVE_RECURSE "${prefix}.first" "${prefix}")
  run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${prefix}.first")
  # Moved after it was installed: nothing in it may remember where it was.
  file(RENAME "${prefix}.first" "${prefix}")
  run_consumer("${prefix}/bin/qkv;--version")
elseif(STEP STREQUAL "find_package")
  build_with_cmake("-DCMAKE_PREFIX_PATH=${prefix}" "-DQKV_EXPECTED_VERSION=${VERSION}")
elseif(STEP STREQUAL "add_subdirectory")
  # Unoptimised: this compiles the library a second time, only to see that it does.
  build_with_cmake("-DQKV_SOURCE_DIR=${SOURCE_DIR}" -DCMAKE_BUILD_TYPE=Debug)
elseif(STEP STREQUAL "pkg_config")
  file(MAKE_DIRECTORY "${work}/${STEP}")
  file(REMOVE "${work}/${STEP}/consumer")
  set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
  set(ENV{LD_LIBRARY_PATH} "${prefix}/${LIBDIR}")
  run(make -C "${CMAKE_CURRENT_LIST_DIR}/pkg_config" "CXX=${CXX}" "OUT=${work}/${STEP}/consumer")
  run_consumer("${work}/${STEP}/consumer")
else()
  message(FATAL_ERROR "no step '${STEP}'")
endif()
