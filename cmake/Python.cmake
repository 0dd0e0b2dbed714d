# qkv._core, the extension module behind the Python package in python/ (nanobind), and the package as
# it can be imported from this tree: <build>/python/qkv, the sources linked and the module beside them.
# Two ways in: scripts/python-env (make build, make test) and scikit-build-core (pip install .).

find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
if(NOT nanobind_ROOT)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
endif()
find_package(nanobind CONFIG REQUIRED)

file(GLOB python_sources CONFIGURE_DEPENDS python/src/*.cc bench/probe/*.cc)

# NOMINSIZE: nanobind would compile our objects for size, the probes included.
nanobind_add_module(qkv_core NB_STATIC NB_SUPPRESS_WARNINGS NOMINSIZE ${python_sources})
set_target_properties(qkv_core PROPERTIES
  OUTPUT_NAME _core
  CXX_EXTENSIONS OFF
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/python/qkv")
# Not bench itself: the program in it is called as the standard header <compare> is.
target_include_directories(qkv_core PRIVATE . python/src)
target_link_libraries(qkv_core PRIVATE qkv_objects qkv_explain_objects qkv_library_options qkv_warnings)

file(GLOB_RECURSE package_files CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/python"
  python/qkv/*.py python/qkv/*.pyi python/qkv/py.typed)
foreach(file IN LISTS package_files)
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/python/${folder}")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}/python/${file}"
    "${CMAKE_CURRENT_BINARY_DIR}/python/${file}" SYMBOLIC)
endforeach()

# The wheel: scikit-build-core takes the .py files itself.
install(TARGETS qkv_core LIBRARY DESTINATION qkv COMPONENT python EXCLUDE_FROM_ALL)
