# qkv_bench: src/**/*_bench.cc (beside their kernels) and bench/*_bench.cc.

set(bench_sources ${qkv_all_sources})
list(FILTER bench_sources INCLUDE REGEX "_bench\\.cc$")
file(GLOB more_bench_sources CONFIGURE_DEPENDS bench/*_bench.cc)
list(APPEND bench_sources ${more_bench_sources})
if(NOT bench_sources)
  return()
endif()

find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  message(STATUS "Google Benchmark not found: no benchmarks (Debian: libbenchmark-dev)")
  return()
endif()

add_executable(qkv_bench ${bench_sources})
set_target_properties(qkv_bench PROPERTIES CXX_EXTENSIONS OFF)
target_link_libraries(qkv_bench PRIVATE
  qkv_objects qkv_library_options qkv_warnings benchmark::benchmark_main)
