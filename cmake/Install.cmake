# cmake --install, and the two ways to find what it installed: find_package(qkv) and pkg-config.

include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/qkv")

install(TARGETS qkv EXPORT qkvTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/qkv DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(QKV_BUILD_CLI)
  install(TARGETS qkv_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Completions, made by the program when it is installed: they are its own flags. (A program for
# another CPU needs an emulator for that.)
if(QKV_BUILD_CLI AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
  set(completions "${CMAKE_CURRENT_BINARY_DIR}/completions")
  file(MAKE_DIRECTORY "${completions}")
  foreach(shell bash zsh fish)
    install(CODE "execute_process(
      COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:qkv_cli>\" completion ${shell}
      OUTPUT_FILE \"${completions}/qkv.${shell}\" COMMAND_ERROR_IS_FATAL ANY)")
  endforeach()
  install(FILES "${completions}/qkv.bash" RENAME qkv
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES "${completions}/qkv.zsh" RENAME _qkv
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES "${completions}/qkv.fish"
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# A static libqkv leaves its own dependencies to whoever links it; a shared one does not.
set(package_needs_threads OFF)
set(package_needs_openmp OFF)
set(package_needs_libzip OFF)
set(package_needs_onednn OFF)
set(pc_libs "")
set(pc_cflags "")
set(pc_private_libs "${CMAKE_THREAD_LIBS_INIT}")
if(QKV_THREADS STREQUAL "openmp")
  string(APPEND pc_private_libs " ${OpenMP_CXX_FLAGS}")
endif()
foreach(library IN LISTS CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  # For programs linked by a C compiler: the C++ runtime, as far as C does not bring it itself.
  if(library MATCHES "^(stdc\\+\\+|c\\+\\+|m)$")
    string(APPEND pc_private_libs " -l${library}")
  endif()
endforeach()
if(QKV_WITH_NPZ)
  # Not Requires.private: pkg-config would ask for libzip.pc where the shared libqkv needs none.
  string(APPEND pc_private_libs " -lzip")
endif()
if(QKV_WITH_ONEDNN)
  string(APPEND pc_private_libs " -ldnnl")
endif()
string(STRIP "${pc_private_libs}" pc_private_libs)

if(qkv_type STREQUAL "STATIC_LIBRARY")
  set(package_needs_threads ON)
  string(COMPARE EQUAL "${QKV_THREADS}" openmp package_needs_openmp)
  set(package_needs_libzip ${QKV_WITH_NPZ})
  set(package_needs_onednn ${QKV_WITH_ONEDNN})
  # There is no shared library beside it, so what is private elsewhere is always needed.
  set(pc_libs " ${pc_private_libs}")
  set(pc_cflags " -DQKV_STATIC")
  set(pc_private_libs "")
endif()

# The prefix is relative to the file, so that an installed tree can be moved.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR libdir_is_absolute)
if(libdir_is_absolute)
  set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
    BASE_DIRECTORY "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" OUTPUT_VARIABLE up)
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  set(pc_${dir} "${CMAKE_INSTALL_${dir}}")
  cmake_path(IS_ABSOLUTE pc_${dir} is_absolute)
  if(NOT is_absolute)
    set(pc_${dir} "\${prefix}/${pc_${dir}}")
  endif()
endforeach()

configure_file(cmake/qkv.pc.in qkv.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/qkv.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

configure_package_config_file(cmake/qkvConfig.cmake.in qkvConfig.cmake
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break what the last one promised.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(qkvConfigVersion.cmake COMPATIBILITY ${compatibility})
install(EXPORT qkvTargets NAMESPACE qkv:: DESTINATION "${package_dir}")
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/qkvConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/qkvConfigVersion.cmake"
  DESTINATION "${package_dir}")
if(package_needs_libzip)
  install(FILES cmake/FindLibZip.cmake DESTINATION "${package_dir}")
endif()
if(package_needs_onednn)
  install(FILES cmake/FindOneDnn.cmake DESTINATION "${package_dir}")
endif()
