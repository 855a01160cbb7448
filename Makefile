# Inkling: ./train and ./generate.
#   make            build both            make demo      train on a sample corpus for a minute or two
#   make demo-pairs an encoder and a decoder that learn to write strings backwards, in less than half a minute
#   make test       the whole test suite  make sanitize  the same under ASan and UBSan
#   make fuzz [SECONDS=600] [ONLY="config tokenizer"]   every reader under libFuzzer (clang)
#   make format     clang-format          make lint      compilers' warnings, clang-tidy, cppcheck, shellcheck, layers
#   make vectorized that the marked loops of kernels/cpu become vector instructions, with gcc and with clang
#   make layers     that no folder uses a higher one, by #include or by symbol
#   make test-cuda-on-cpu [SANITIZE=address|race]   the CUDA kernels' tests on a machine without a GPU
#   make check-spills [CUDA_ARCH=all]               that no kernel keeps variables in memory for want of registers
#   make bench [BENCH="--only train,generate-15m"]  measures this machine's CPU; scripts/bench.py --help
#   make gpu-check [STAGE=parity|sanitize|speed]    everything that needs a real GPU: docs/gpu.md
# Settings: CC=clang, CFLAGS=-O2, NO_CUDA=1 (no CUDA backend),
#           NO_MPI=1, or MPICC="mpicc ..." (MPIs to train in several processes with; default: all that are found),
#           CUDA_ARCH="80 90" or all (which GPUs; default: the one that is here, else 80 and 90), WERROR=1 (warnings are
#           errors), CPPFLAGS and LDFLAGS (libraries in other places), CARRY=DIR (jansson, PCRE2, utf8proc and cmocka in
#           DIR/include and DIR/lib, as scripts/gpu_carry.sh puts them there).
#           The build directory remembers these until they are given again; an empty one (NO_CUDA=) is the default.
# For one make: NO_INSTALL=1 (never install packages), V=1 (show the commands), BUILD=DIR (another build directory).

BUILD ?= build
$(if $(filter 1,$(words $(BUILD))),,$(error BUILD is "$(BUILD)": one name without blanks is needed))
Q = $(if $(V),,@echo "  $@"; )
comma := ,
HASH := \#

# BUILD_SETTINGS is the file that keeps the settings of the command line. The environment wins over it and is not kept. The
# builds below (sanitize, fuzz, the emulator) read the file of the outer build and write none; an empty name turns it off.
SETTINGS := CC CFLAGS CPPFLAGS LDFLAGS PKG_CONFIG CARRY WERROR NO_CUDA NVCC CUDA_ARCH NO_MPI MPICC
BUILD_SETTINGS ?= $(BUILD)/settings.mk
ifeq ($(origin CC),default)
undefine CC
endif
-include $(BUILD_SETTINGS)
of_origin = $(foreach setting,$(SETTINGS),$(if $(filter $(1),$(origin $(setting))),$(if $(value $(setting)),$(setting))))
NESTED = BUILD_SETTINGS=$(BUILD_SETTINGS)
REMEMBERED := $(strip $(call of_origin,file))
KEPT := $(foreach setting,$(call of_origin,file command),'$(setting) ?= $(subst ','\'',$(subst $(HASH),\$(HASH),$(value $(setting))))')
ifeq ($(MAKELEVEL)$(filter clean format kernel-flags gpu-test-names,$(MAKECMDGOALS)),0)
shown = $(1)=$(if $(word 2,$(value $(1))),"$(value $(1))",$(value $(1)))
$(if $(REMEMBERED),$(info settings of the last build: $(foreach setting,$(REMEMBERED),$(call shown,$(setting))) \
(give them again to change them, e.g. $(firstword $(REMEMBERED))= for the default; make clean forgets them)))
endif

override CC := $(or $(CC),gcc)
override CFLAGS := $(or $(CFLAGS),-O3)
override PKG_CONFIG := $(or $(PKG_CONFIG),pkg-config)
ifneq ($(CARRY),)
override CPPFLAGS += -I$(CARRY)/include
override LDFLAGS += -L$(CARRY)/lib -Wl,-rpath,$(abspath $(CARRY)/lib)
endif
WARNINGS := -Wall -Wextra -Wshadow -Wconversion $(if $(WERROR),-Werror)
SANITIZERS := $(if $(filter 1 address,$(SANITIZE)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=all -g -DINKLING_SANITIZE)
# Fuzzing (make fuzz, with clang): coverage is counted, checksums are not compared.
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
SANITIZERS += $(if $(FUZZ),-fsanitize=fuzzer-no-link -Wno-pass-failed -DINKLING_FUZZ)
# The CPU kernels are compiled once for each of these instruction sets and elements (kernels/backends.c lists them again),
# everything else for any processor of the architecture. Floating-point exceptions need not be exact, so comparisons may
# become masks. The assembler may be too old for the instructions that multiply bf16.
CPU_BUILDS := $(if $(findstring x86_64,$(shell $(CC) -dumpmachine)),v4 v4_bf16 v3 v3_bf16 v2,generic generic_bf16)
isa_of = $(firstword $(subst _, ,$(1)))
BUILD_FLAGS = $(if $(SANITIZE),$(if $(FUZZ),-O0 -fno-sanitize=all,-O2)) -DCPU_BUILD=$(1) -DCPU_ISA=$(isa_of) -DCPU_BF16=$(if $(filter %_bf16,$(1)),1,0) \
	-fno-trapping-math $(if $(filter v%,$(1)),-march=x86-64-$(isa_of)) $(if $(filter v4%,$(1)),-mprefer-vector-width=512)
BF16_INSTRUCTIONS := $(shell printf 'tdpbf16ps %%tmm0, %%tmm1, %%tmm2\nvdpbf16ps %%zmm0, %%zmm1, %%zmm2\n' | $(CC) -x assembler -c -o /dev/null - 2>/dev/null && echo -DINKLING_BF16_INSTRUCTIONS)
DEFINES += $(BF16_INSTRUCTIONS)
# Not fast-math: NaN and infinity keep their meaning. Products may be fused into sums, and sqrtf sets no errno.
ARITHMETIC := -ffp-contract=fast -fno-math-errno
ALL_CFLAGS = -std=c11 $(CPPFLAGS) $(CFLAGS) $(ARITHMETIC) -pthread -fopenmp-simd -D_XOPEN_SOURCE=700 -I. $(WARNINGS) -MMD -MP $(SANITIZERS) $(DEFINES) $(PACKAGE_CFLAGS)
ALL_LDFLAGS = $(LDFLAGS) -pthread $(SANITIZERS) $(if $(CUDA_ON_CPU),-rdynamic)

# Libraries. jansson, PCRE2 and utf8proc are needed; they are linked statically where their archives are there, so that the programs
# are easy to move.
have_header = $(shell printf '$(HASH)include <$(1)>\n' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 && echo yes)
archives = $(wildcard $(patsubst -L%,%/lib$(1).a,$(filter -L%,$(LDFLAGS)))) $(shell $(CC) -print-file-name=lib$(1).a | grep /)
static_or_shared = $(if $(strip $(call archives,$(1))),-l:lib$(1).a,-l$(1))
HAVE_JANSSON := $(call have_header,jansson.h)
HAVE_PCRE2 := $(shell printf '$(HASH)define PCRE2_CODE_UNIT_WIDTH 8\n$(HASH)include <pcre2.h>\n' | $(CC) $(CPPFLAGS) -E - >/dev/null 2>&1 && echo yes)
HAVE_UTF8PROC := $(call have_header,utf8proc.h)
# libedit, for ./generate -i, is loaded where it is there; without its header the terminal edits as it does by itself.
DEFINES += $(if $(call have_header,histedit.h),-DINKLING_LIBEDIT)
# MPI, to train in several processes (collective/mpi): for each kind that an mpicc is found of, a library beside the programs.
override MPICC := $(or $(MPICC),mpicc mpicc.openmpi mpicc.mpich)
WITH_CC := OMPI_CC=$(CC) MPICH_CC=$(CC)
mpi_kind = $(shell printf '$(HASH)include <mpi.h>\n$(HASH)ifdef OPEN_MPI\nopenmpi\n$(HASH)else\nmpich\n$(HASH)endif\n' | $(WITH_CC) $(1) -E -P -x c - 2>/dev/null | grep -x 'openmpi\|mpich')
$(if $(NO_MPI),,$(foreach compiler,$(MPICC),$(if $(shell command -v $(compiler)),$(eval MPICC_$(call mpi_kind,$(compiler)) ?= $(compiler)))))
MPI_KINDS := $(foreach kind,openmpi mpich,$(if $(MPICC_$(kind)),$(kind)))
PACKAGE_CFLAGS := $(foreach package,jansson libpcre2-8 libutf8proc,$(shell $(PKG_CONFIG) --cflags $(package) 2>/dev/null))
LIBS := $(call static_or_shared,jansson) $(call static_or_shared,pcre2-8) $(call static_or_shared,utf8proc)
# CUDA: by nvcc where it is found, or on the CPU (tests/cuda_on_cpu), or not at all.
override NVCC := $(or $(NVCC),$(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null))
ifeq ($(NO_CUDA)$(CUDA_ON_CPU)$(or $(wildcard $(NVCC)),$(shell command -v $(NVCC))),)
$(if $(NVCC),$(error NVCC is "$(NVCC)", which is not there; NO_CUDA=1 builds without CUDA))
endif
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA := $(if $(CUDA_ON_CPU),cpu,$(if $(NO_CUDA),,$(if $(NVCC),nvcc)))
CUDA_SOURCES := $(if $(CUDA),kernels.cu $(wildcard kernels/*.cu))
ifneq ($(CUDA),)
DEFINES += -DINKLING_CUDA
endif
# NCCL, for several GPUs, is loaded where it is there; the emulator has a stand-in.
DEFINES += $(if $(CUDA),$(if $(filter cpu,$(CUDA))$(call have_header,nccl.h),-DINKLING_NCCL))
ifeq ($(CUDA),nvcc)
CUDA_KNOWN := 80 86 87 89 90 100 103 110 120 121
CUDA_PRESENT := $(if $(CUDA_ARCH),,$(filter $(CUDA_KNOWN),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)))
CUDA_TARGETS := $(if $(filter all,$(CUDA_ARCH)),80 86 89 90,$(or $(CUDA_ARCH),$(CUDA_PRESENT),80 90))
$(if $(filter-out $(CUDA_KNOWN),$(CUDA_TARGETS)),$(error CUDA_ARCH is "$(CUDA_ARCH)": give all, or a list of $(CUDA_KNOWN) (compute capabilities times ten)))
GENCODE := $(foreach a,$(CUDA_TARGETS),-gencode=arch=compute_$(a),code=sm_$(a)) \
	$(if $(CUDA_PRESENT),,-gencode=arch=compute_$(lastword $(CUDA_TARGETS)),code=compute_$(lastword $(CUDA_TARGETS)))
NVCC_WARNINGS := $(if $(WERROR),-Werror all-warnings) -Xcompiler -Wall,-Wextra,-Wno-unused-parameter
NVCC_FLAGS = -std=c++20 -O3 $(GENCODE) -I. $(NVCC_WARNINGS) -Xptxas -v \
	$(CPPFLAGS) -DINKLING_CUDA_LIBRARIES='"$(CUDA_HOME)/lib64"' $(DEFINES)
COMPILE_CUDA = $(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@ 2> $(@:.o=.log) || { cat $(@:.o=.log) >&2; exit 1; }
LIBS += -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/targets/x86_64-linux/lib -lcudart_static -lstdc++ -ldl -lrt -lpthread
endif
# CUDA on the CPU needs the headers of CUDA alone (tests/cuda_on_cpu/README.md).
CUDA_INCLUDE ?= $(patsubst %/cublasLt.h,%,$(firstword $(wildcard $(addsuffix /cublasLt.h,$(if $(CUDA_HOME),$(CUDA_HOME)/include) /usr/local/cuda/include /usr/include))))
ifeq ($(CUDA),cpu)
CXX ?= g++
EMULATOR_SANITIZERS := $(if $(filter address,$(SANITIZE)),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer,$(if $(filter race,$(SANITIZE)),-fsanitize=thread))
EMULATOR_CFLAGS = -std=c++20 -g -I. -Itests/cuda_on_cpu/nccl -isystem $(CUDA_INCLUDE) -isystem $(CUDA_INCLUDE)/cccl -Wall -Wextra $(if $(WERROR),-Werror) -Wno-unknown-pragmas -Wno-unused-parameter -MMD -MP $(DEFINES)
COMPILE_CUDA = $(CXX) -x c++ -include tests/cuda_on_cpu/emulator.h $(EMULATOR_CFLAGS) -O$(if $(SANITIZE),1,2) -ffp-contract=off -fno-strict-aliasing $(EMULATOR_SANITIZERS) -c $< -o $@
EMULATOR_SOURCES := $(filter-out $(if $(filter race,$(SANITIZE)),,%/race.cpp),$(wildcard tests/cuda_on_cpu/*.cpp))
EMULATOR_OBJECTS := $(EMULATOR_SOURCES:%.cpp=$(BUILD)/%.o)
LIBS += -lstdc++ -ldl
endif
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$(BUILD)/%.cu.o)
LIBS += -lm -ldl
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

LIBRARY := model.c $(wildcard model/*.c kernels/*.c util/*.c collective/*.c tokenizer/*.c dataset/*.c doctor/*.c inference/*.c formats/*.c checkpoint/*.c report/*.c training/*.c generating/*.c cli/*.c)
CPU_KERNELS := $(wildcard kernels/cpu/*.c)
CPU_OBJECTS := $(foreach build,$(CPU_BUILDS),$(CPU_KERNELS:%.c=$(BUILD)/%.$(build).o))
LIBRARY_OBJECTS := $(LIBRARY:%.c=$(BUILD)/%.o) $(BUILD)/formats/modeling.o $(CPU_OBJECTS) $(CUDA_OBJECTS) $(EMULATOR_OBJECTS)
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
TEST_HELPERS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/test_% tests/dump_% tests/failing_%,$(wildcard tests/*.c)))

.PHONY: all test demo demo-pairs sanitize format lint clean deps check-libraries
.DELETE_ON_ERROR:
.SECONDARY:
BIN ?= .
MPI_LIBRARIES := $(MPI_KINDS:%=$(BIN)/inkling-%.so)
all: $(BUILD)/built
$(BUILD)/built: $(BIN)/train $(BIN)/generate $(MPI_LIBRARIES)
	@touch $@
	@$(if $(filter-out all,$(MAKECMDGOALS)),,echo "built $(BIN)/train and $(BIN)/generate; try: make demo, or $(BIN)/train TEXT")

$(MPI_LIBRARIES): $(BIN)/inkling-%.so: collective/mpi/library.c collective/messenger.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(WITH_CC) $(MPICC_$*) -std=c11 $(CPPFLAGS) -O2 -fPIC -shared -I. $(WARNINGS) $< -o $@

$(BIN)/train $(BIN)/generate: $(BIN)/%: $(BUILD)/%.o $(LIBRARY_OBJECTS)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIBS)

# The same with allocations that fail when they are told to, for tests/failures.py.
WRAPPED := main malloc calloc realloc aligned_alloc strdup strndup realpath fopen fdopen open_memstream opendir scandir mkdtemp mmap pthread_create
FAILING := $(BUILD)/failing/train $(BUILD)/failing/generate
$(FAILING): $(BUILD)/failing/%: $(BUILD)/%.o $(BUILD)/tests/failing_allocations.o $(LIBRARY_OBJECTS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_LDFLAGS) $(WRAPPED:%=-Wl,--wrap=%) $^ -o $@ $(LIBS)

# What makes texts to train on. Without libraries.
DATA_UTIL := $(filter-out util/json.c,$(wildcard util/*.c))
DATA_PROGRAMS := $(BUILD)/stories $(BUILD)/pairs
$(BUILD)/stories: $(patsubst %.c,$(BUILD)/%.o,$(wildcard data/stories/*.c data/*.c) $(DATA_UTIL))
$(BUILD)/pairs: $(patsubst %.c,$(BUILD)/%.o,$(wildcard data/pairs/*.c data/*.c cli/option*.c cli/console.c) $(DATA_UTIL))
$(DATA_PROGRAMS):
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ -lm

VERSIONED := $(addprefix $(BUILD)/,train.o generate.o bench/bench_kernels.o)
$(VERSIONED): private DEFINES += -DINKLING_VERSION='"$(VERSION)"'
$(VERSIONED): $(BUILD)/version
$(BUILD)/%.o: %.c $(BUILD)/flags | check-libraries
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

# The Python file that goes with models of our own class, as a string.
$(BUILD)/formats/modeling.c: scripts/modeling_inkling.py Makefile
	@mkdir -p $(@D)
	@(printf '%s\n' 'extern const char class_modeling[];' 'const char class_modeling[] ='; \
		sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $<; echo ';') > $@
$(BUILD)/formats/modeling.o: $(BUILD)/formats/modeling.c $(BUILD)/flags
	$(Q)$(CC) $(ALL_CFLAGS) -c $< -o $@

.PHONY: kernel-flags
kernel-flags:
	@echo '$(filter-out -MMD -MP,$(ALL_CFLAGS)) $(call BUILD_FLAGS,$(CPU_BUILD))'
define compile_kernels
$(BUILD)/kernels/cpu/%.$(1).o: kernels/cpu/%.c $(BUILD)/flags | check-libraries
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(ALL_CFLAGS) $(call BUILD_FLAGS,$(1)) -c $$< -o $$@
endef
$(foreach build,$(CPU_BUILDS),$(eval $(call compile_kernels,$(build))))

$(BUILD)/%.cu.o: %.cu $(BUILD)/cuda-flags
	@mkdir -p $(@D)
	$(Q)$(COMPILE_CUDA)

$(BUILD)/tests/cuda_on_cpu/%.o: tests/cuda_on_cpu/%.cpp $(BUILD)/cuda-flags
	@mkdir -p $(@D)
	$(Q)$(CXX) $(EMULATOR_CFLAGS) -O3 $(if $(filter address,$(SANITIZE)),-DEMU_ASAN) -c $< -o $@

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(TEST_HELPERS) $(LIBRARY_OBJECTS)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ -lcmocka $(LIBS)

$(BUILD)/tests/test_emulator: $(patsubst %,$(BUILD)/tests/cuda_on_cpu/%.cu.o,test_emulator test_streams test_cublaslt planted_bugs) $(EMULATOR_OBJECTS)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIBS)

# Each reads what a reader may be given: from libFuzzer, or the files that are named.
$(FUZZERS): $(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/fuzz.o $(LIBRARY_OBJECTS)
	$(Q)$(CC) $(ALL_LDFLAGS) $(if $(FUZZ),-fsanitize=fuzzer) $^ -o $@ $(LIBS)
.PHONY: fuzz fuzz-programs
fuzz-programs: $(FUZZERS)
fuzz: remember
	@command -v clang >/dev/null || { echo "make: fuzzing needs clang (with libFuzzer, which comes with it)" >&2; exit 1; }
	@$(MAKE) --no-print-directory $(NESTED) CC=clang FUZZ=1 SANITIZE=1 NO_CUDA=1 CFLAGS=-O1 BUILD=$(BUILD)/fuzz fuzz-programs
	@tests/fuzz/run.sh $(BUILD)/fuzz $(or $(SECONDS),600) $(ONLY)

# Programs that print numbers, or need a real GPU: `make test` builds them and runs none.
$(BUILD)/bench_kernels: $(patsubst %.c,$(BUILD)/%.o,$(filter-out bench/bench_bpe.c bench/bench_gemm.c,$(wildcard bench/*.c))) $(LIBRARY_OBJECTS)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIBS)
$(BUILD)/bench_bpe $(BUILD)/bench_gemm: $(BUILD)/bench_%: $(BUILD)/bench/bench_%.o $(LIBRARY_OBJECTS)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIBS) -ldl
# Makes models of every architecture and shows what they compute, for scripts/check_transformers.py.
$(BUILD)/dump_model: $(BUILD)/tests/dump_model.o $(LIBRARY_OBJECTS)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIBS)
$(BUILD)/check_fragments: $(BUILD)/tests/check_fragments.cu.o $(EMULATOR_OBJECTS)
	$(Q)$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIBS)
# What scripts/gpu_check.sh runs on the card; a build directory of its own, because the other one may be of another machine.
GPU_FIRST := test_kernels_step test_kernels_attention test_decode
GPU_TESTS := $(GPU_FIRST) $(filter-out $(GPU_FIRST),$(basename $(notdir $(wildcard tests/test_kernels*.c tests/test_decode*.c tests/test_model*.c))) test_sample test_context)
.PHONY: gpu-programs gpu-test-names gpu-check
gpu-test-names:
	@echo $(GPU_TESTS)
gpu-programs: $(BIN)/train $(BUILD)/bench_kernels $(BUILD)/check_fragments $(GPU_TESTS:%=$(BUILD)/tests/%) $(BUILD)/stories
gpu-check:
	@CARRY="$(CARRY)" CPPFLAGS="$(CPPFLAGS)" LDFLAGS="$(LDFLAGS)" scripts/gpu_check.sh "$(or $(STAGE),all)"

# ptxas -v says of every kernel how many bytes it spills; c++filt makes its name readable.
.PHONY: check-spills
check-spills: $(CUDA_OBJECTS)
ifeq ($(CUDA),nvcc)
	@awk '/Compiling entry function/ { name = $$0 } /bytes spill/ { kernels++; if (!/ 0 bytes spill stores, 0 bytes spill loads/) { spilling++; print name; print } } END { printf "%d kernels, %d of them spill\n", kernels, spilling; exit spilling || !kernels }' \
		$(CUDA_OBJECTS:.o=.log) > $(BUILD)/spills; status=$$?; c++filt < $(BUILD)/spills; exit $$status
else
	@echo "make: nvcc was not found (or NO_CUDA=1)" >&2; exit 1
endif

# Files that change when what they hold does: everything is rebuilt for other flags, the programs for another version.
$(BUILD)/flags: CONTENT = $(CC) $(ALL_CFLAGS) $(LIBS)
$(BUILD)/version: CONTENT = $(VERSION)
$(BUILD)/cuda-flags: CONTENT = $(CXX) $(COMPILE_CUDA)
$(BUILD)/flags $(BUILD)/version $(BUILD)/cuda-flags: FORCE remember
	@mkdir -p $(@D)
	@echo "$(CONTENT)" | cmp -s - $@ || echo "$(CONTENT)" > $@
.PHONY: FORCE remember
FORCE:
remember:
ifeq ($(BUILD_SETTINGS),$(BUILD)/settings.mk)
	@mkdir -p $(BUILD)
	@printf '%s\n' '# Settings of the last build' $(KEPT) > $(BUILD_SETTINGS).new && mv $(BUILD_SETTINGS).new $(BUILD_SETTINGS)
endif

check-libraries:
ifneq ($(HAVE_JANSSON),yes)
	@echo "make: jansson is missing (its header jansson.h was not found). Run scripts/install-deps.sh" >&2; exit 1
endif
ifneq ($(HAVE_PCRE2),yes)
	@echo "make: PCRE2 is missing (its header pcre2.h was not found). Run scripts/install-deps.sh" >&2; exit 1
endif
ifneq ($(HAVE_UTF8PROC),yes)
	@echo "make: utf8proc is missing (its header utf8proc.h was not found). Run scripts/install-deps.sh" >&2; exit 1
endif

# The packages may have been installed just now, so what needs them runs in a make of its own.
deps:
	@CC="$(CC)" scripts/install-deps.sh

test: deps
	@$(MAKE) --no-print-directory run-tests
.PHONY: run-tests programs
programs: all $(FAILING) $(DATA_PROGRAMS) $(addprefix $(BUILD)/,bench_kernels bench_bpe bench_gemm dump_model $(if $(CUDA),check_fragments)) $(TESTS) $(FUZZERS)
run-tests: programs $(if $(SANITIZE),,build-cuda-on-cpu)
	@BIN=$(BIN) EMULATED=$(if $(SANITIZE),,$(EMULATED)) tests/run.sh $(BUILD)

# The CUDA kernels on the CPU: a build of its own in a directory of its own, for each kind of SANITIZE.
EMULATED := $(if $(CUDA_INCLUDE),$(BUILD)/cuda-on-cpu$(if $(SANITIZE),-$(SANITIZE)))
.PHONY: test-cuda-on-cpu build-cuda-on-cpu emulated-programs
test-cuda-on-cpu: deps build-cuda-on-cpu
	@$(if $(EMULATED),tests/cuda_on_cpu/run.sh $(EMULATED) $(SANITIZE))
build-cuda-on-cpu: remember
	@$(if $(EMULATED),$(MAKE) --no-print-directory $(NESTED) CUDA_ON_CPU=1 BUILD=$(EMULATED) BIN=$(EMULATED) $(if $(SANITIZE),CFLAGS=-O1) emulated-programs,echo "note: the CUDA kernels are not tested on the CPU: CUDA's headers are missing")
emulated-programs: $(BIN)/train $(BUILD)/stories $(BUILD)/bench_kernels $(BUILD)/check_fragments $(GPU_TESTS:%=$(BUILD)/tests/%) $(BUILD)/tests/test_emulator

sanitize: remember
	@$(MAKE) --no-print-directory $(NESTED) test BUILD=$(BUILD)/sanitize BIN=$(BUILD)/sanitize SANITIZE=1 NO_CUDA=1 CFLAGS="-O1"

.PHONY: bench
bench: deps
	@$(MAKE) --no-print-directory $(BUILD)/bench_kernels
	@scripts/bench.py --bench $(BUILD)/bench_kernels $(BENCH)

demo: deps
	@$(MAKE) --no-print-directory train generate $(BUILD)/stories
	@scripts/demo.sh $(BUILD)/stories

demo-pairs: deps
	@$(MAKE) --no-print-directory train generate $(BUILD)/pairs
	@scripts/demo_pairs.sh $(BUILD)/pairs

# The floors of the house (tests/layers.sh): by includes, and by the symbols of whatever has been compiled.
.PHONY: layers
layers: $(BIN)/train $(BIN)/generate
	@tests/layers.sh $(BUILD) && tests/layers.sh --self-test

.PHONY: vectorized
vectorized:
	@CC=$(CC) tests/vectorized.sh
	@case "$(CC)" in *clang*) ;; *) if command -v clang >/dev/null; then CC=clang tests/vectorized.sh; fi ;; esac

SOURCES = $(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')
format:
	@clang-format -i $(SOURCES)
# That no compiler warns, of those that are installed.
LINT_COMPILERS := $(foreach compiler,gcc-12 clang-14 clang-19,$(shell command -v $(compiler)))
LINT_FLAGS = $(filter-out -MMD -MP,$(ALL_CFLAGS)) -Werror -DINKLING_VERSION='""' -fsyntax-only
LINT_SOURCES = $(filter-out kernels/cpu/% collective/mpi/%,$(filter %.c,$(SOURCES)))
.PHONY: warnings
warnings:
	@for compiler in $(LINT_COMPILERS); do echo "  $$compiler"; \
		echo $(LINT_SOURCES) | xargs -n 8 -P $$(nproc) $$compiler $(LINT_FLAGS) || exit 1; \
		$(foreach build,$(wordlist 1,2,$(CPU_BUILDS)),echo $(CPU_KERNELS) | xargs -n 8 -P $$(nproc) $$compiler $(LINT_FLAGS) $(call BUILD_FLAGS,$(build)) || exit 1;) \
	done
lint: layers vectorized warnings
	clang-format --dry-run --Werror $(SOURCES)
	@awk '{ gsub(/[^ -~]+/, "?") } length > 120 { print FILENAME ":" FNR ": longer than 120 columns"; bad = 1 } END { exit bad }' $(SOURCES)
	@! git grep -nE 'json_object_([gs]etn|deln|iter_key_len|keylen)' -- '*.c' '*.h' || { echo "jansson 2.13 does not have it" >&2; exit 1; }
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 -I. --suppress=missingIncludeSystem $(filter %.c,$(SOURCES))
	clang-tidy --quiet --checks='-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling,-clang-analyzer-security.insecureAPI.strcpy,-clang-analyzer-valist.Uninitialized,-clang-analyzer-unix.Malloc' --warnings-as-errors='*' $(LIBRARY) $(CPU_KERNELS) train.c generate.c $(wildcard bench/*.c data/*.c data/*/*.c) -- -std=c11 -D_XOPEN_SOURCE=700 -fopenmp-simd -I. $(DEFINES) $(call BUILD_FLAGS,$(firstword $(CPU_BUILDS))) -DINKLING_VERSION='""'
	clang-tidy --quiet --checks='-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling' --warnings-as-errors='*' $(CPU_KERNELS) -- -std=c11 -D_XOPEN_SOURCE=700 -fopenmp-simd -I. $(DEFINES) $(call BUILD_FLAGS,$(word 2,$(CPU_BUILDS)))
	shellcheck scripts/*.sh tests/*.sh tests/fuzz/*.sh tests/cuda_on_cpu/*.sh data/*.sh .ci/run

clean:
	rm -rf $(BUILD) train generate inkling-*.so

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
