# The package is tested, not only the code: install it, then build the projects in tests/consumer
# against it, and look at the library that came out.

foreach(step
    install find_package pkg_config
    add_subdirectory static_install static_find_package static_pkg_config)
  add_test(NAME package.${step} COMMAND "${CMAKE_COMMAND}"
    -D STEP=${step}
    -D BUILD_DIR=${CMAKE_CURRENT_BINARY_DIR}
    -D SOURCE_DIR=${CMAKE_CURRENT_SOURCE_DIR}
    -D VERSION=${PROJECT_VERSION}
    -D LIBDIR=${CMAKE_INSTALL_LIBDIR}
    -D GENERATOR=${CMAKE_GENERATOR}
    -D CXX=${CMAKE_CXX_COMPILER}
    -D LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}
    -P "${CMAKE_CURRENT_SOURCE_DIR}/tests/consumer/run.cmake")
  set_tests_properties(package.${step} PROPERTIES LABELS package)
endforeach()
set_tests_properties(package.install PROPERTIES FIXTURES_SETUP shared_package)
set_tests_properties(package.find_package package.pkg_config PROPERTIES
  FIXTURES_REQUIRED shared_package)
set_tests_properties(package.add_subdirectory PROPERTIES FIXTURES_SETUP subproject)
set_tests_properties(package.static_install PROPERTIES
  FIXTURES_REQUIRED subproject FIXTURES_SETUP static_package)
set_tests_properties(package.static_find_package package.static_pkg_config PROPERTIES
  FIXTURES_REQUIRED static_package)

add_test(NAME package.library COMMAND "${CMAKE_COMMAND}"
  -D LIBRARY=$<TARGET_FILE:qkv>
  -D NM=${CMAKE_NM}
  -D STRIP=${CMAKE_STRIP}
  -D WORK=${CMAKE_CURRENT_BINARY_DIR}/consumer
  -P "${CMAKE_CURRENT_SOURCE_DIR}/tests/check_library.cmake")
set_tests_properties(package.library PROPERTIES LABELS package)
