# What people type. CMake presets (CMakePresets.json) do the work.

BUILD := build
SOURCES := $(shell git ls-files '*.h' '*.cc' 2>/dev/null)

.PHONY: help demo test bench bundle format lint deps

help:
	@echo "make demo     install what is needed, build, plan, cut simulated GPUs, share one, serve"
	@echo "make test     install, build with sanitizers, run all tests and checks"
	@echo "make bench    build optimised and run the benchmarks"
	@echo "make bundle   a folder, build/bundle, to copy to GPU hosts that have none of the packages"
	@echo "make format   clang-format all sources"
	@echo "make lint     formatting, includes, clang-tidy with clang-19"
	@echo "make deps     only install the Debian packages"

deps:
	@tools/install_deps.sh

demo: deps
	@cmake --preset release >/dev/null
	@cmake --build --preset release
	@tools/demo.sh $(BUILD)/release

test: deps
	python3 tools/check_includes.py
	cmake --preset check
	cmake --build --preset check
	cmake --preset tsan
	cmake --build --preset tsan --target gate_test
	$(BUILD)/tsan/src/gate/gate_test --gtest_brief=1
	ctest --preset check

bench: deps
	@cmake --preset bench >/dev/null
	@cmake --build --preset bench
	@for b in $(BUILD)/bench/bench/*_bench; do echo "== $$b"; $$b || exit 1; done
	@echo "== bench/server/router_cost.py"; bench/server/router_cost.py $(BUILD)/bench
	@echo "== bench/server/same_load.py"; bench/server/same_load.py $(BUILD)/bench
	@echo "== bench/server/overload.py"; bench/server/overload.py $(BUILD)/bench

bundle:
	@tools/install_deps.sh --bundle
	@cmake --preset release >/dev/null
	@cmake --build --preset release
	@tools/bundle.sh $(BUILD)/release $(BUILD)/bundle

format:
	@tools/install_deps.sh --lint
	clang-format-19 -i $(SOURCES)

lint:
	@tools/install_deps.sh --lint
	python3 tools/check_includes.py
	clang-format-19 --dry-run -Werror $(SOURCES)
	cmake --preset tidy >/dev/null
	cmake --build --preset tidy
