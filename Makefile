# The front door. `make run` and `make test` need nothing but a Debian with make: they install what is
# missing, build, and do their job. The build itself is CMake's (CMakePresets.json).

PRESET ?= release
# 1 makes warnings errors. Not for users: a newer compiler warns about more.
QKV_WERROR ?=

TREE := build/$(PRESET)
CROSS := $(if $(filter arm64%,$(PRESET)),arm)
# CMAKE_ARGS: more for CMake, e.g. -DQKV_WITH_NPZ=OFF.
CONFIGURE = cmake --preset $(PRESET) $(if $(filter 1 ON,$(QKV_WERROR)),-DQKV_WERROR=ON) $(CMAKE_ARGS) >/dev/null
# The Python module comes with the release build, where Python's headers and PyPI are to be had.
PYTHON = $(if $(filter release,$(PRESET)),$$(scripts/python-env $(TREE)),-DQKV_BUILD_PYTHON=OFF)
# `make test` sees to Debian's Python itself, unless QKV_PYTHON names another one, or none (0).
DEBIAN_PYTHON = $(if $(QKV_PYTHON),,$(if $(filter release,$(PRESET)),python))
SOURCES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.inc')

.PHONY: help
help:
	@echo 'make run      build, and see attention on four pixels, number by number'
	@echo 'make test     build, and run all tests'
	@echo 'make build    leave the program at build/qkv'
	@echo 'make bench    build, and run the benchmarks'
	@echo 'make format   rewrite the sources in the style of .clang-format'
	@echo 'make lint     check the format and the layering;  make tidy: clang-tidy (slow)'
	@echo 'make install  install to PREFIX (/usr/local)'
	@echo 'PRESET=release|dev|asan|tsan|static|arm64 chooses the build; trees are in build/<preset>/'

.PHONY: run test build bench
run: build
	@build/qkv explain pixels --hints

build:
	@scripts/install-deps build $(CROSS)
	@$(CONFIGURE) $(PYTHON)
	@cmake --build --preset $(PRESET) --target qkv qkv_cli qkv_core
	@ln -sfn $(PRESET)/bin/qkv build/qkv

test:
	@scripts/install-deps build test $(CROSS) $(DEBIAN_PYTHON)
	@$(CONFIGURE) $(PYTHON)
	@cmake --build --preset $(PRESET) --target all qkv_tests
	@ctest --preset $(PRESET) -j $(shell nproc) $(CTEST_ARGS)
	@sed -n 's/^\[  SKIPPED \] \(.*\) (.*ms)$$/skipped: \1/p' $(TREE)/Testing/Temporary/LastTest.log
	@if grep -qs QKV_BUILD_PYTHON:BOOL=ON $(TREE)/CMakeCache.txt; then .venv/bin/python -m pytest; fi

bench:
	@scripts/install-deps build bench
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target qkv_bench
	@$(TREE)/bin/qkv_bench $(BENCH_ARGS)

.PHONY: format lint tidy
format:
	@scripts/install-deps lint
	@clang-format-14 -i $(SOURCES)

lint:
	@scripts/install-deps build test lint
	@clang-format-14 --dry-run -Werror $(SOURCES)
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target qkv_layering -- --quiet
	@$(TREE)/bin/qkv_layering --gtest_brief=1

# Slow (seconds a file), hence no part of lint: all of our sources, or those in FILES.
FILES ?= $(filter-out %.h %.inc,$(SOURCES))
tidy:
	@scripts/install-deps build test bench tidy
	@cmake --preset tidy >/dev/null
	@printf '%s\n' $(FILES) | grep -Ev '^(tests/consumer|python|bench/probe)/' | \
	  xargs -P $(shell nproc) -n 1 clang-tidy-14 --quiet -p build/tidy

.PHONY: install clean
PREFIX ?= /usr/local
install: build
	cmake --install $(TREE) --prefix $(PREFIX)

clean:
	rm -rf build
