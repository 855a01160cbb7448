# Tests, checks and benchmarks. `make test` builds all programs and runs the suite; what it needs is installed first.

# Only the programs must run on a small stack.
$(BUILD)/tests/%.o: private FRAMES :=
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
# make keeps the objects of the tests.
.SECONDARY: $(TESTS:%=%.o)
TEST_HELPERS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/test_% tests/dump_% tests/failing_%,$(wildcard tests/*.c)))
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
# For tests/failures.py. The linker of macOS cannot wrap functions.
FAILING := $(if $(MACOS),,$(BUILD)/failing/train $(BUILD)/failing/generate)
# Programs that print numbers or need a real GPU: `make test` builds but does not run them.
PRINTING_PROGRAMS := $(addprefix $(BUILD)/,bench_kernels bench_bpe bench_gemm dump_model $(if $(CUDA_BY),check_fragments))

# ---- the suite ----

.PHONY: test run-tests programs sanitize
#? Tests
#? make test [ONLY="pool programs"] [FULL=1] | run all tests, or these
# With ONLY, only these tests are built. An unknown name is an error that lists similar names.
ifneq ($(and $(ONLY),$(filter test sanitize run-tests,$(MAKECMDGOALS))),)
ONLY_TESTS := $(shell tests/run.sh --check $(ONLY) 2>&1)
$(if $(findstring no test is called,$(ONLY_TESTS)),$(error $(ONLY_TESTS)))
ONLY_NEEDS := $(if $(filter-out test_%,$(ONLY_TESTS)),programs) $(patsubst %,$(BUILD)/tests/%,$(filter test_%,$(ONLY_TESTS)))
endif
# `deps` may have just installed packages, so a new make looks for them.
test test-matrix test-cuda-on-cpu: DEPS = tests
test: deps
	@$(MAKE) --no-print-directory run-tests
run-tests: $(or $(ONLY_NEEDS),programs build-cuda-on-cpu)
	@BIN=$(BIN) ONLY="$(ONLY)" FULL=$(FULL) EMULATED=$(if $(ONLY),,$(EMULATED)) tests/run.sh $(BUILD)
#? make test-matrix [ONLY="init kept"] | run the tests that train on each instruction set, dtype, 1 and 2 threads, other seeds
.PHONY: test-matrix
test-matrix: deps
	@$(MAKE) --no-print-directory programs
	@BIN=$(BIN) ONLY="$(ONLY)" tests/matrix.sh $(BUILD)
programs: all $(BIN)/inkling $(OPTION_PAGES) $(FAILING) $(DATA_PROGRAMS) $(PRINTING_PROGRAMS) $(TESTS) $(FUZZERS)
#? make sanitize [ONLY=...] [FULL=1] | run the tests under AddressSanitizer and UBSan, with one MPI
# Its programs have the CUDA kernels for the CPU, too, and without FULL=1 only two instruction sets.
sanitize: remember
	@$(MAKE) --no-print-directory $(NESTED) test BUILD=$(BUILD)/sanitize BIN=$(BUILD)/sanitize SANITIZE=address \
		$(if $(CUDA_INCLUDE),CUDA_ON_CPU=1,NO_CUDA=1) CFLAGS="-O1" MPICC=$(firstword $(MPICC)) \
		$(if $(FULL),,$(if $(X86),ISA="v3 v2"))

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(TEST_HELPERS) $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ -lcmocka $(ALL_LIBS))

# The programs with allocations that fail on request.
WRAPPED := main malloc calloc realloc aligned_alloc strdup strndup realpath fopen fdopen open_memstream opendir scandir \
	mkdtemp mmap pthread_create
$(FAILING): $(BUILD)/failing/%: $(BUILD)/%.o $(BUILD)/tests/failing_allocations.o $(LIBRARY_OBJECTS)
	@mkdir -p $(@D)
	$(call run,$(CC) $(ALL_LDFLAGS) $(WRAPPED:%=-Wl,--wrap=%) $^ -o $@ $(ALL_LIBS))

# Benchmarks.
BENCH_KERNELS := $(filter-out tests/bench/bench_bpe.c tests/bench/bench_gemm.c,$(wildcard tests/bench/*.c))
$(BUILD)/bench_kernels: $(BENCH_KERNELS:%.c=$(BUILD)/%.o) $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))
$(BUILD)/bench_bpe $(BUILD)/bench_gemm: $(BUILD)/bench_%: $(BUILD)/tests/bench/bench_%.o $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS) -ldl)
# Makes a model of every architecture and prints its outputs, for scripts/measure/check_transformers.py.
$(BUILD)/dump_model: $(BUILD)/tests/dump_model.o $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))
$(BUILD)/check_fragments: $(BUILD)/tests/check_fragments.cu.o $(EMULATOR_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))

# ---- 64-bit ARM ----

#? make test-aarch64 [FULL=1] | cross-compile for 64-bit ARM and run tests in qemu as three processors (Debian)
.PHONY: test-aarch64
test-aarch64: remember
	+@$(SKIPPED)FULL=$(FULL) tests/aarch64.sh $(BUILD)/aarch64 $(LIBRARY_SOURCES)

# ---- Windows ----

#? make test-windows [FULL=1] | build for Windows and run the program in wine; FULL=1: also unit tests and tests of the programs
.PHONY: test-windows
test-windows: windows $(BIN)/inkling $(BUILD)/stories $(if $(FULL),$(BUILD)/pairs $(BUILD)/talks)
	+@$(SKIPPED)FULL=$(FULL) BIN=$(BIN) MAKE="$(MAKE)" tests/windows.sh $(BUILD) $(LIBRARY_SOURCES)

# ---- fuzzing ----

# Each program feeds one parser with inputs from libFuzzer, or with the files that are named.
$(FUZZERS): $(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/fuzz.o $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $(if $(FUZZ),-fsanitize=fuzzer) $^ -o $@ $(ALL_LIBS))
#? make fuzz [SECONDS=600] [ONLY="config tokenizer"] | fuzz all parsers with libFuzzer (clang)
.PHONY: fuzz fuzz-programs
fuzz-programs: $(FUZZERS)
fuzz: remember
	@command -v clang >/dev/null || { echo "make: fuzzing needs clang (with libFuzzer, which comes with it)" >&2; exit 1; }
	@$(MAKE) --no-print-directory $(NESTED) CC=clang FUZZ=1 SANITIZE=1 NO_CUDA=1 CFLAGS=-O1 BUILD=$(BUILD)/fuzz fuzz-programs
	@tests/fuzz/run.sh $(BUILD)/fuzz $(or $(SECONDS),600) $(ONLY)

# ---- CUDA ----

# The CUDA kernels on the CPU: a separate build directory, but for a build that has them itself.
EMULATED := $(if $(CUDA_ON_CPU),$(BUILD),$(if $(CUDA_INCLUDE),$(BUILD)/cuda-on-cpu$(if $(SANITIZE),-$(SANITIZE))))
#? make test-cuda-on-cpu [SANITIZE=race] [FULL=1] | test the CUDA kernels without a GPU
.PHONY: test-cuda-on-cpu build-cuda-on-cpu emulated-programs
test-cuda-on-cpu: deps build-cuda-on-cpu
	@$(if $(EMULATED),FULL=$(FULL) tests/cuda_on_cpu/run.sh $(EMULATED) $(SANITIZE),echo "skipped: CUDA's headers are missing")
ifeq ($(EMULATED),$(BUILD))
build-cuda-on-cpu: emulated-programs
else ifneq ($(EMULATED),)
build-cuda-on-cpu: remember
	@$(MAKE) --no-print-directory $(NESTED) CUDA_ON_CPU=1 BUILD=$(EMULATED) BIN=$(EMULATED) $(if $(SANITIZE),CFLAGS=-O1) \
		$(if $(X86),ISA="v3 v2") emulated-programs
else
build-cuda-on-cpu:
endif
emulated-programs: gpu-programs $(BUILD)/tests/test_emulator

$(BUILD)/tests/cuda_on_cpu/%.o: tests/cuda_on_cpu/%.cpp $(BUILD)/cuda-flags
	@mkdir -p $(@D)
	$(call run,$(CXX) $(EMULATOR_CFLAGS) -O3 $(if $(filter address,$(SANITIZE)),-DEMU_ASAN) -c $< -o $@)
EMULATOR_TESTS := $(patsubst %,$(BUILD)/tests/cuda_on_cpu/%.cu.o,test_emulator test_streams test_cublaslt test_wgmma planted_bugs)
$(BUILD)/tests/test_emulator: $(EMULATOR_TESTS) $(EMULATOR_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))

# What scripts/gpu_contact.sh runs on a GPU.
GPU_SOURCES := $(wildcard tests/test_kernels*.c tests/test_decode*.c tests/test_model*.c)
GPU_TESTS := $(basename $(notdir $(GPU_SOURCES))) test_sample test_context
.PHONY: gpu-programs gpu-tree gpu-check gpu-tarball
gpu-programs: $(BIN)/train $(BIN)/generate $(BUILD)/bench_kernels $(BUILD)/check_fragments $(GPU_TESTS:%=$(BUILD)/tests/%) $(BUILD)/stories
gpu-tree: $(if $(CUDA_BY),gpu-programs)
	@$(if $(CUDA_BY),,echo "make: nvcc was not found (or NO_CUDA=1)" >&2; exit 1)
	@scripts/gpu_pack.sh $(BUILD) $(BUILD)/gpu $(GPU_TESTS)
GPU_BUILD = $(MAKE) --no-print-directory $(NESTED) NO_INSTALL=1 NO_MPI=1 gpu-tree
#? make gpu-check [STEPS="kernels speed"] | run all checks that need a GPU (docs/gpu.md)
# CUDA_ON_CPU=1 tries the script on the emulator.
gpu-check: remember
	+@$(SKIPPED)$(GPU_BUILD) BUILD=$(BUILD)/gpu-check BIN=$(BUILD)/gpu-check
	@$(if $(CUDA_ON_CPU),EMULATED=1 QUICK=1) OUT=$(BUILD)/gpu-check/results $(if $(STEPS),STEPS="$(STEPS)") \
		$(BUILD)/gpu-check/gpu/gpu_contact.sh
#? make gpu-tarball [CUDA_ARCH=all] | pack these checks for a machine that has a GPU but no compiler
# Every program holds all kernels. A dictionary as large as the tree stores them once.
gpu-tarball: remember
	+@$(SKIPPED)$(GPU_BUILD) BUILD=$(BUILD)/gpu-tarball BIN=$(BUILD)/gpu-tarball CUDA_ARCH="$(or $(CUDA_ARCH),all)"
	@tar -C $(BUILD)/gpu-tarball/gpu -c . | xz --lzma2=preset=1,dict=256MiB >$(BUILD)/gpu.tar.xz
	@ls -l $(BUILD)/gpu.tar.xz

# The registers and instructions of the kernels, and how often they are launched, against committed limits.
#? make check-kernels [CUDA_ARCH=all] | check that no CUDA kernel spills registers or has become slower
.PHONY: check-kernels
check-kernels: $(CUDA_OBJECTS) build-cuda-on-cpu
ifeq ($(CUDA_BY),nvcc)
	@python3 tests/kernel_limits.py $(BUILD) $(or $(EMULATED),-) $(if $(FULL),--all)
else
	@echo "make: nvcc was not found (or NO_CUDA=1)" >&2; exit 1
endif

# ---- benchmarks ----

#? Measure
#? make bench [BENCH="--only train,generate-15m"] | measure this machine's CPU (scripts/measure/bench.py --help)
.PHONY: bench
bench: deps
	@$(MAKE) --no-print-directory $(BUILD)/bench_kernels
	@scripts/measure/bench.py --bench $(BUILD)/bench_kernels $(BENCH)

# ---- sources ----

# tests/layers.sh checks includes, and the symbols of what has been compiled.
#? Sources
#? make layers | check that no folder uses a higher layer, by include or by symbol
#? make vectorized [FULL=1] | check that the marked loops of src/kernels/cpu are vectorized (FULL=1: by clang, too)
.PHONY: layers vectorized
layers: $(BIN)/train $(BIN)/generate $(BIN)/inkling $(OPTION_PAGES)
	@tests/layers.sh $(BUILD) && tests/layers.sh --self-test
vectorized:
	@CC=$(CC) tests/vectorized.sh
	@$(if $(FULL),CC=clang tests/vectorized.sh)

#? make check-macos | compile and link the programs for macOS, with zig (nothing is run)
.PHONY: check-macos
check-macos:
	+@$(SKIPPED)MAKE="$(MAKE)" tests/macos.sh $(BUILD)

#? make format | format the sources with clang-format
#? make lint | compiler warnings, clang-tidy, cppcheck, shellcheck, layers, vectorized
.PHONY: format lint warnings
SOURCES = $(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')
C_SOURCES = $(filter-out src/windows/%,$(filter %.c,$(SOURCES)))
format:
	@clang-format -i $(SOURCES)

# No installed compiler may warn.
LINT_COMPILERS := $(foreach compiler,gcc-12 clang-14 clang-19,$(shell command -v $(compiler)))
LINT_FLAGS = $(filter-out -MMD -MP,$(ALL_CFLAGS)) $(BACKENDS_DEFINES) -Werror $(VERSION_DEFINES) -fsyntax-only
LINT_SOURCES = $(filter-out src/kernels/cpu/% src/base/collective/mpi/%,$(C_SOURCES))
in_parts = xargs -n 8 -P $$(nproc)
warnings:
	@for compiler in $(LINT_COMPILERS); do echo "  $$compiler"; \
		echo $(LINT_SOURCES) | $(in_parts) $$compiler $(LINT_FLAGS) || exit 1; \
		$(foreach build,$(wordlist 1,2,$(CPU_BUILDS)),\
		echo $(CPU_KERNELS) | $(in_parts) $$compiler $(LINT_FLAGS) $(call BUILD_FLAGS,$(build)) || exit 1;) \
	done

TIDY_OFF := -clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling
TIDY_OFF_IN_C := $(TIDY_OFF),-clang-analyzer-security.insecureAPI.strcpy,-clang-analyzer-valist.Uninitialized,-clang-analyzer-unix.Malloc
TIDY_SOURCES = $(LIBRARY) $(CPU_KERNELS) train.c generate.c inkling.c tools/option_pages.c $(wildcard tests/bench/*.c tools/*.c tools/*/*.c)
TIDY_FLAGS = -std=c11 -D_XOPEN_SOURCE=700 -fopenmp-simd -I. -Isrc $(DEFINES) $(BACKENDS_DEFINES) $(VERSION_DEFINES)
lint: layers vectorized warnings
	clang-format --dry-run --Werror $(SOURCES)
	@awk '{ gsub(/[^ -~]+/, "?") } \
		length > 120 { print FILENAME ":" FNR ": longer than 120 columns"; bad = 1 } END { exit bad }' $(SOURCES)
	@! git grep -nE 'json_object_([gs]etn|deln|iter_key_len|keylen)' -- '*.c' '*.h' || \
		{ echo "jansson 2.13 does not have it" >&2; exit 1; }
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -I. -Isrc \
		--suppress=missingIncludeSystem --suppress=unknownMacro:src/kernels/backends.c $(C_SOURCES)
	clang-tidy --quiet --checks='$(TIDY_OFF_IN_C)' --warnings-as-errors='*' $(TIDY_SOURCES) \
		-- $(TIDY_FLAGS) $(call BUILD_FLAGS,$(firstword $(CPU_BUILDS)))
	clang-tidy --quiet --checks='$(TIDY_OFF)' --warnings-as-errors='*' $(CPU_KERNELS) \
		-- $(TIDY_FLAGS) $(call BUILD_FLAGS,$(word 2,$(CPU_BUILDS)))
	shellcheck scripts/*.sh scripts/measure/*.sh tests/*.sh tests/fuzz/*.sh tests/cuda_on_cpu/*.sh data/*.sh .ci/run
