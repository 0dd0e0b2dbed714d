# What libqkv promises about itself: under 5 MB, and, when it is shared, no exported name but qkv's.
#   cmake -D LIBRARY=... -D NM=... -D STRIP=... -D WORK=... -P check_library.cmake
cmake_minimum_required(VERSION 3.25)

set(limit 5000000)
cmake_path(GET LIBRARY FILENAME name)
file(MAKE_DIRECTORY "${WORK}")
execute_process(COMMAND "${STRIP}" --strip-unneeded -o "${WORK}/stripped-${name}" "${LIBRARY}"
  COMMAND_ERROR_IS_FATAL ANY)
file(SIZE "${WORK}/stripped-${name}" size)
message(STATUS "${name}: ${size} bytes stripped")
if(size GREATER_EQUAL limit)
  message(FATAL_ERROR "${name} is ${size} bytes when stripped: expected fewer than ${limit}")
endif()

if(NOT name MATCHES "\\.so")
  return()
endif()
execute_process(COMMAND "${NM}" -D --defined-only -C "${LIBRARY}" OUTPUT_VARIABLE symbols
  COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "," symbols "${symbols}")
string(REGEX REPLACE "\n$" "" symbols "${symbols}")
string(REPLACE "\n" ";" symbols "${symbols}")
set(foreign "")
foreach(symbol IN LISTS symbols)
  if(NOT symbol MATCHES "^[0-9a-f]+ . (typeinfo for |typeinfo name for |vtable for )?qkv::")
    list(APPEND foreign "${symbol}")
  endif()
endforeach()
if(foreign)
  list(JOIN foreign "\n  " foreign)
  message(FATAL_ERROR "${name} exports names that are not its own:\n  ${foreign}")
endif()
