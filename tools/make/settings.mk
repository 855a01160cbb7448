# Settings. The build directory remembers those given on the command line until they are given again. Environment variables
# override remembered settings and are not remembered.

#? Settings (the build directory remembers them; CC= restores the default)
#? CC=clang CFLAGS=-O2 | C compiler (gcc) and optimization (-O3)
#? CPPFLAGS=-I... LDFLAGS=-L... PKG_CONFIG=... | where to look for libraries
#? WERROR=1 | treat warnings as errors
#? ISA="v3 v2" | CPU instruction sets to compile for: v4, v3, v2; on ARM dotprod, neon; generic (all)
#? CUDA=1 | compile the CUDA backend even without a GPU
#? NO_CUDA=1 | leave out the CUDA backend
#? CUDA_ARCH="80 90" NVCC=FILE | GPU architectures, or all (this machine's GPU, else 80 and 90)
#? NO_MPI=1 | leave out MPI
#? NO_STATIC=1 | link jansson, PCRE2 and utf8proc as shared libraries even if static ones are installed
#? MPICC="mpicc ..." | MPI compilers (all that are found)
#? Settings for one command
#? -jN V=1 | N jobs at a time (one per core); print the commands
#? BUILD=DIR BIN=DIR | build directory (build); directory for the programs (.)
#? NO_INSTALL=1 | install no packages

BUILD ?= build
$(if $(filter 1,$(words $(BUILD))),,$(error BUILD is "$(BUILD)": one name without blanks is needed))
BIN ?= .
comma := ,
HASH := \#
differ = $(if $(and $(findstring [$(1)],[$(2)]),$(findstring [$(2)],[$(1)])),,yes)

# All cores, unless -j is given, here or in the environment.
short_flags := $(filter-out -%,$(firstword $(MAKEFLAGS)))
ifeq ($(MAKELEVEL)$(filter clean,$(MAKECMDGOALS))$(filter -j% --job%,$(MAKEFLAGS) $(shell echo "$$MAKEFLAGS")),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
endif

# BUILD_SETTINGS is the file of remembered settings. Nested builds (sanitize, fuzz, the emulator) read the file of the outer
# build and write none: $(NESTED). An empty name turns remembering off.
SETTINGS := CC CFLAGS CPPFLAGS LDFLAGS PKG_CONFIG WERROR ISA CUDA NO_CUDA NVCC CUDA_ARCH NO_MPI NO_STATIC MPICC
BUILD_SETTINGS ?= $(BUILD)/settings.mk
NESTED = BUILD_SETTINGS=$(BUILD_SETTINGS)
ifeq ($(origin CC),default)
undefine CC
endif
-include $(BUILD_SETTINGS)

# The nonempty settings of an origin: file, command line, ...
of_origin = $(foreach setting,$(SETTINGS),\
	$(if $(filter $(1),$(origin $(setting))),$(if $(value $(setting)),$(setting))))
REMEMBERED := $(strip $(call of_origin,file))

# CUDA on the command line overrides a remembered NO_CUDA.
ifeq ($(origin CUDA) $(origin NO_CUDA),command line file)
NO_CUDA :=
endif
# Tests and checks include the CUDA backend, and so does every later build.
ifneq ($(if $(ONLY),,$(filter test run-tests programs gpu-tree check-kernels,$(MAKECMDGOALS))),)
CUDA ?= 1
endif

quoted = '$(subst ','\'',$(1))'
KEPT := $(foreach setting,$(call of_origin,file command),\
	$(call quoted,$(setting) ?= $(subst $(HASH),\$(HASH),$(value $(setting)))))

# The outermost make prints the remembered settings, unless a program reads its output.
SILENT_GOALS := help clean format kernel-flags
ifeq ($(MAKELEVEL)$(filter $(SILENT_GOALS),$(MAKECMDGOALS)),0)
shown = $(1)=$(if $(word 2,$(value $(1))),"$(value $(1))",$(value $(1)))
$(if $(REMEMBERED),$(info settings of the last build: $(foreach setting,$(REMEMBERED),$(call shown,$(setting))) \
(give them again to change them, e.g. $(firstword $(REMEMBERED))= for the default; make clean forgets them)))
endif

.PHONY: FORCE remember
FORCE:
remember:
ifeq ($(BUILD_SETTINGS),$(BUILD)/settings.mk)
	@mkdir -p $(BUILD)
	@printf '%s\n' '# Settings of the last build' $(KEPT) > $(BUILD_SETTINGS).new && \
		mv $(BUILD_SETTINGS).new $(BUILD_SETTINGS)
endif
