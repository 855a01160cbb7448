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

.DEFAULT_GOAL := all
include make/settings.mk make/progress.mk make/compiler.mk make/cuda.mk

COMMIT := $(shell test -e .git && git describe --always --dirty --exclude='*' 2>/dev/null)
VERSION := $(shell cat VERSION)$(if $(COMMIT), ($(COMMIT)))

.PHONY: all demo demo-pairs deps clean
.DELETE_ON_ERROR:
.SECONDARY:
all: $(BUILD)/built

# ---- sources ----

FOLDERS := util collective kernels tokenizer model dataset doctor inference formats checkpoint report training generating cli
LIBRARY := model.c $(foreach folder,$(FOLDERS),$(wildcard $(folder)/*.c))
CPU_KERNELS := $(wildcard kernels/cpu/*.c)
CPU_OBJECTS := $(foreach build,$(CPU_BUILDS),$(CPU_KERNELS:%.c=$(BUILD)/%.$(build).o))
LIBRARY_OBJECTS := $(LIBRARY:%.c=$(BUILD)/%.o) $(BUILD)/formats/modeling.o $(CPU_OBJECTS) $(CUDA_OBJECTS) $(EMULATOR_OBJECTS)

# ---- programs ----

MPI_LIBRARIES := $(MPI_KINDS:%=$(BIN)/inkling-%.so)
$(BUILD)/built: $(BIN)/train $(BIN)/generate $(MPI_LIBRARIES)
	@touch $@
	@$(if $(filter-out all,$(MAKECMDGOALS)),,echo "built $(BIN)/train and $(BIN)/generate; try: make demo, or $(BIN)/train TEXT")
	@$(if $(CUDA_LEFT_OUT),echo "without the CUDA backend ($(strip $(CUDA_LEFT_OUT)))")

$(BIN)/train $(BIN)/generate: $(BIN)/%: $(BUILD)/%.o $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))
$(MPI_LIBRARIES): $(BIN)/inkling-%.so: collective/mpi/library.c collective/messenger.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(call run,$(WITH_CC) $(MPICC_$*) -std=c11 $(CPPFLAGS) -O2 -fPIC -shared -I. $(WARNINGS) $< -o $@)

# What makes texts to train on. Without libraries.
DATA_UTIL := $(filter-out util/json.c,$(wildcard util/*.c))
DATA_PROGRAMS := $(BUILD)/stories $(BUILD)/pairs
$(BUILD)/stories: $(patsubst %.c,$(BUILD)/%.o,$(wildcard data/stories/*.c data/*.c) $(DATA_UTIL))
$(BUILD)/pairs: $(patsubst %.c,$(BUILD)/%.o,$(wildcard data/pairs/*.c data/*.c cli/option*.c cli/console.c) $(DATA_UTIL))
$(DATA_PROGRAMS):
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ -lm)

# ---- objects ----

$(BUILD)/%.o: %.c $(BUILD)/flags | check-libraries
	@mkdir -p $(@D)
	$(call run,$(CC) $(ALL_CFLAGS) -c $< -o $@)
define compile_kernels
$(BUILD)/kernels/cpu/%.$(1).o: kernels/cpu/%.c $(BUILD)/flags | check-libraries
	@mkdir -p $$(@D)
	$$(call run,$$(CC) $$(ALL_CFLAGS) $(call BUILD_FLAGS,$(1)) -c $$< -o $$@)
endef
$(foreach build,$(CPU_BUILDS),$(eval $(call compile_kernels,$(build))))
$(BUILD)/%.cu.o: %.cu $(BUILD)/cuda-flags
	@mkdir -p $(@D)
	$(call run,$(COMPILE_CUDA))

# How the kernels of an instruction set, CPU_BUILD, are compiled: for tests/vectorized.sh.
.PHONY: kernel-flags
kernel-flags:
	@echo '$(filter-out -MMD -MP,$(ALL_CFLAGS)) $(call BUILD_FLAGS,$(CPU_BUILD))'

VERSION_DEFINES = -DINKLING_VERSION='"$(VERSION)"' -DINKLING_COMMIT='"$(or $(COMMIT),unknown)"'
VERSIONED := $(addprefix $(BUILD)/,train.o generate.o scripts/option_pages.o bench/bench_kernels.o)
$(VERSIONED): private DEFINES += $(VERSION_DEFINES)
$(VERSIONED): $(BUILD)/version

# The Python file that goes with models of our own class, as a string.
$(BUILD)/formats/modeling.c: scripts/modeling_inkling.py Makefile
	@mkdir -p $(@D)
	@(printf '%s\n' 'extern const char class_modeling[];' 'const char class_modeling[] ='; \
		sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $<; echo ';') > $@
$(BUILD)/formats/modeling.o: $(BUILD)/formats/modeling.c $(BUILD)/flags
	$(call run,$(CC) $(ALL_CFLAGS) -c $< -o $@)

# Files that change when what they hold does: everything is rebuilt for other flags, the programs for another version, the list
# of backends (and so what is linked) for other instruction sets and with or without CUDA.
$(BUILD)/kernels/backends.o: private DEFINES += $(BACKENDS_DEFINES)
$(BUILD)/kernels/backends.o: $(BUILD)/backends
define remade_for # FILE,CONTENT
$(BUILD)/$(1): $(if $(call differ,$(shell cat $(BUILD)/$(1) 2>/dev/null),$(2)),FORCE) | remember
	@mkdir -p $$(@D); printf '%s\n' $(call quoted,$(subst $$,$$$$,$(2))) > $$@
endef
$(eval $(call remade_for,flags,$(strip $(CC) $(ALL_CFLAGS) $(LIBS))))
$(eval $(call remade_for,cuda-flags,$(strip $(CXX) $(COMPILE_CUDA))))
$(eval $(call remade_for,backends,$(strip $(BACKENDS_DEFINES) $(CUDA_LIBS))))
$(eval $(call remade_for,version,$(VERSION)))

# ---- demos ----

deps:
	@CC="$(CC)" scripts/install-deps.sh
demo: deps
	@$(MAKE) --no-print-directory train generate $(BUILD)/stories
	@scripts/demo.sh $(BUILD)/stories
demo-pairs: deps
	@$(MAKE) --no-print-directory train generate $(BUILD)/pairs
	@scripts/demo_pairs.sh $(BUILD)/pairs

clean:
	rm -rf $(BUILD) train generate inkling-*.so

include make/install.mk tests/tests.mk
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
