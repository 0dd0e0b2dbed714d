# The front door. `make run` and `make test` need nothing but a Debian with make: they install what is
# missing, build, and do their job. The build itself is CMake's (CMakePresets.json).

PRESET ?= release
# 1 makes warnings errors. Not for users: a newer compiler warns about more.
QKV_WERROR ?=

TREE := build/$(PRESET)
CONFIGURE = cmake --preset $(PRESET) $(if $(filter 1 ON,$(QKV_WERROR)),-DQKV_WERROR=ON) --log-level=WARNING
SOURCES = $(shell git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.inc')

.PHONY: help
help:
	@echo 'make run      build, and run the example of the four pixels'
	@echo 'make test     build, and run all tests'
	@echo 'make build    leave the program at build/qkv'
	@echo 'make bench    build, and run the benchmarks'
	@echo 'make format   rewrite the sources in the style of .clang-format'
	@echo 'make lint     check the format and the layering;  make tidy: clang-tidy (slow)'
	@echo 'make install  install to PREFIX (/usr/local)'
	@echo 'PRESET=release|dev|asan|tsan|static|arm64 chooses the build; trees are in build/<preset>/'

.PHONY: run test build bench
run: build
	@cmake --build --preset $(PRESET) --target example_pixels
	@$(TREE)/examples/pixels

build:
	@scripts/install-deps build
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target qkv qkv_cli
	@ln -sfn $(PRESET)/bin/qkv build/qkv

test:
	@scripts/install-deps build test
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET)
	@ln -sfn $(PRESET)/bin/qkv build/qkv
	@ctest --preset $(PRESET) $(CTEST_ARGS)

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
	@scripts/install-deps lint
	@clang-format-14 --dry-run -Werror $(SOURCES)

.PHONY: clean
clean:
	rm -rf build
