# Installs qkv, or builds and runs one of the consumer projects, as a test would:
#   cmake -D STEP=[static_](install|find_package|pkg_config)|add_subdirectory -D ... -P run.cmake
# BUILD_DIR is the build tree of qkv, VERSION what a consumer has to find.
cmake_minimum_required(VERSION 3.25)

set(work "${BUILD_DIR}/consumer")

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

function(build_with_cmake project folder)
  run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/${project}" -B "${work}/${folder}" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" ${ARGN})
  run("${CMAKE_COMMAND}" --build "${work}/${folder}")
  run_consumer("${work}/${folder}/consumer")
endfunction()

# Moves the tree after it was installed: nothing in it may remember where it was.
function(install_from build prefix)
  file(REMOVE_RECURSE "${prefix}.first" "${prefix}")
  run("${CMAKE_COMMAND}" --install "${build}" --prefix "${prefix}.first")
  file(RENAME "${prefix}.first" "${prefix}")
endfunction()

function(find_package_in prefix folder)
  file(REMOVE_RECURSE "${work}/${folder}")
  build_with_cmake(find_package ${folder}
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DQKV_EXPECTED_VERSION=${VERSION}")
endfunction()

function(pkg_config_in prefix folder)
  file(REMOVE_RECURSE "${work}/${folder}")
  file(MAKE_DIRECTORY "${work}/${folder}")
  set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
  set(ENV{LD_LIBRARY_PATH} "${prefix}/${LIBDIR}")
  run(make -C "${CMAKE_CURRENT_LIST_DIR}/pkg_config" "CXX=${CXX}" "OUT=${work}/${folder}/consumer")
  run_consumer("${work}/${folder}/consumer")
endfunction()

set(shared "${work}/shared")
set(static "${work}/static")
if(STEP STREQUAL "install")
  install_from("${BUILD_DIR}" "${shared}")
  run_consumer("${shared}/bin/qkv;--version")
  foreach(completion bash-completion/completions/qkv zsh/site-functions/_qkv
      fish/vendor_completions.d/qkv.fish)
    file(STRINGS "${shared}/share/${completion}" lines REGEX "worksheet")
    if(NOT lines)
      message(FATAL_ERROR "${completion} completes no command")
    endif()
  endforeach()
elseif(STEP STREQUAL "find_package")
  find_package_in("${shared}" find_package)
elseif(STEP STREQUAL "pkg_config")
  pkg_config_in("${shared}" pkg_config)
elseif(STEP STREQUAL "add_subdirectory")
  # Compiles the library a second time: as fast as can be (kernels for no SIMD at all), and as a static
  # library, which the next steps install and find. Its tree stays, so that only the first run takes long.
  build_with_cmake(add_subdirectory add_subdirectory "-DQKV_SOURCE_DIR=${SOURCE_DIR}"
    -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-DHWY_COMPILE_ONLY_EMU128 -DQKV_PCH=ON -DQKV_INSTALL=ON)
elseif(STEP STREQUAL "static_install")
  install_from("${work}/add_subdirectory" "${static}")
elseif(STEP STREQUAL "static_find_package")
  find_package_in("${static}" static_find_package)
elseif(STEP STREQUAL "static_pkg_config")
  pkg_config_in("${static}" static_pkg_config)
else()
  message(FATAL_ERROR "no step '${STEP}'")
endif()
