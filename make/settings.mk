# Settings: those of the command line are kept in the build directory until they are given again; the environment wins over
# what is kept and is not kept itself.

#? Settings, remembered by the build directory until they are given again (CC= for the default)
#? CC=clang CFLAGS=-O2 | compiler (gcc) and optimization (-O3)
#? CPPFLAGS=-I... LDFLAGS=-L... PKG_CONFIG=... | libraries in other places
#? CARRY=DIR | jansson, PCRE2, utf8proc and cmocka of scripts/gpu_carry.sh
#? WERROR=1 | warnings are errors
#? ISA="v3 v2" | CPU instruction sets: v4, v3, v2, generic (all of the architecture)
#? CUDA=1 | CUDA backend also where no GPU is found
#? NO_CUDA=1 | no CUDA backend
#? CUDA_ARCH="80 90" NVCC=FILE | CUDA backend for these GPUs, or all (the one that is here, else 80 and 90)
#? NO_MPI=1 | one process only
#? MPICC="mpicc ..." | MPIs for several processes (all that are found)
#? For one make
#? -jN V=1 | how many commands at a time (one a core); show the commands
#? BUILD=DIR BIN=DIR | another build directory (build); where the programs are put (.)
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
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

# BUILD_SETTINGS is the file that keeps them. Builds below (sanitize, fuzz, the emulator) read the file of the outer build and
# write none: $(NESTED). An empty name turns it off.
SETTINGS := CC CFLAGS CPPFLAGS LDFLAGS PKG_CONFIG CARRY WERROR ISA CUDA NO_CUDA NVCC CUDA_ARCH NO_MPI MPICC
BUILD_SETTINGS ?= $(BUILD)/settings.mk
NESTED = BUILD_SETTINGS=$(BUILD_SETTINGS)
ifeq ($(origin CC),default)
undefine CC
endif
-include $(BUILD_SETTINGS)

# The settings, not empty, that come from the file, the command line, ...
of_origin = $(foreach setting,$(SETTINGS),\
	$(if $(filter $(1),$(origin $(setting))),$(if $(value $(setting)),$(setting))))
REMEMBERED := $(strip $(call of_origin,file))

# Of two that contradict each other, the one that is given now.
ifeq ($(origin CUDA) $(origin NO_CUDA),command line file)
NO_CUDA :=
endif
# Tests and checks take the CUDA backend along, and so does every build after them.
ifneq ($(if $(ONLY),,$(filter test run-tests programs gpu-programs check-spills,$(MAKECMDGOALS))),)
CUDA ?= 1
endif


quoted = '$(subst ','\'',$(1))'
KEPT := $(foreach setting,$(call of_origin,file command),\
	$(call quoted,$(setting) ?= $(subst $(HASH),\$(HASH),$(value $(setting)))))

# What is kept is shown once, where nobody reads the output of make.
SILENT_GOALS := help clean format kernel-flags gpu-test-names
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
