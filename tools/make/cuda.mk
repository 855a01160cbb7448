# The CUDA backend: compiled by nvcc, emulated on the CPU (CUDA_ON_CPU=1, tests/cuda_on_cpu), or left out.

override NVCC := $(or $(NVCC),$(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null))
ifeq ($(NO_CUDA)$(CUDA_ON_CPU)$(or $(wildcard $(NVCC)),$(shell command -v $(NVCC))),)
$(if $(NVCC),$(error NVCC is "$(NVCC)", which is not there; NO_CUDA=1 builds without CUDA))
endif
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
ifeq ($(MAKELEVEL) $(origin CUDA) $(CUDA) $(NVCC),0 command line 1 )
$(error CUDA=1 needs nvcc, which was not found: give NVCC=FILE)
endif

# nvcc compiles it if the machine has a GPU or on request, because it takes longer than everything else together.
GPU := $(if $(CUDA_ON_CPU)$(NO_CUDA),,$(shell { nvidia-smi --query-gpu=compute_cap --format=csv,noheader || nvidia-smi -L; } \
	2>/dev/null | sed -n -e 's/^\([0-9]*\)\.\([0-9]\)$$/\1\2/p' -e 's/^GPU.*/unknown/p' | head -n 1))
CUDA_BY := $(if $(CUDA_ON_CPU),cpu,$(if $(NO_CUDA),,$(if $(NVCC),$(if $(GPU)$(filter 1,$(CUDA))$(CUDA_ARCH),nvcc))))
CUDA_LEFT_OUT := $(if $(CUDA_BY)$(NO_CUDA),,$(if $(NVCC),no GPU was found; make CUDA=1 compiles it,\
	$(if $(GPU),there is a GPU but no nvcc: install the CUDA toolkit and type make again)))
CUDA_SOURCES := $(if $(CUDA_BY),kernels.cu $(wildcard src/kernels/cuda/*.cu))
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$(BUILD)/%.cu.o)
# NCCL, for several GPUs, is loaded at run time if it is installed; the emulator has a stand-in.
CUDA_DEFINES := $(if $(CUDA_BY),-DINKLING_CUDA $(if $(filter cpu,$(CUDA_BY))$(call have_header,nccl.h),-DINKLING_NCCL))

ifeq ($(CUDA_BY),nvcc)
CUDA_KNOWN := 80 86 87 89 90 100 103 110 120 121
CUDA_PRESENT := $(if $(CUDA_ARCH),,$(filter $(CUDA_KNOWN),$(GPU)))
CUDA_TARGETS := $(if $(filter all,$(CUDA_ARCH)),80 86 89 90,$(or $(CUDA_ARCH),$(CUDA_PRESENT),80 90))
$(if $(filter-out $(CUDA_KNOWN),$(CUDA_TARGETS)),$(error CUDA_ARCH is "$(CUDA_ARCH)": give all, or a list of $(CUDA_KNOWN) \
(compute capabilities times ten)))
LAST_TARGET := $(lastword $(CUDA_TARGETS))
# PTX of the last target serves newer GPUs.
GENCODE := $(foreach a,$(CUDA_TARGETS),-gencode=arch=compute_$(a),code=sm_$(a)) \
	$(if $(CUDA_PRESENT),,-gencode=arch=compute_$(LAST_TARGET),code=compute_$(LAST_TARGET))
NVCC_WARNINGS := $(if $(WERROR),-Werror all-warnings) -Xcompiler -Wall,-Wextra,-Wno-unused-parameter
NVCC_FLAGS = -std=c++20 -O3 $(GENCODE) -I. -Isrc $(NVCC_WARNINGS) -Xptxas -v \
	$(CPPFLAGS) -DINKLING_CUDA_LIBRARIES='"$(CUDA_HOME)/lib64"' $(CUDA_DEFINES)
COMPILE_CUDA = $(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@ 2> $(@:.o=.log) || \
	{ cat $(@:.o=.log) >&2; exit 1; }
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/targets/x86_64-linux/lib -lcudart_static -lstdc++ -ldl -lrt -lpthread
endif

# The emulator needs only the headers of CUDA (tests/cuda_on_cpu/README.md).
CUDA_INCLUDE_PLACES := $(if $(CUDA_HOME),$(CUDA_HOME)/include) /usr/local/cuda/include /usr/include
CUDA_INCLUDE ?= $(patsubst %/cublasLt.h,%,$(firstword $(wildcard $(addsuffix /cublasLt.h,$(CUDA_INCLUDE_PLACES)))))
ifeq ($(CUDA_BY),cpu)
CXX ?= g++
EMULATOR_SANITIZERS := $(if $(filter address,$(SANITIZE)),\
	-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer,\
	$(if $(filter race,$(SANITIZE)),-fsanitize=thread))
EMULATOR_CFLAGS = -std=c++20 -g -I. -Isrc -Itests/cuda_on_cpu/nccl -isystem $(CUDA_INCLUDE) -isystem $(CUDA_INCLUDE)/cccl \
	-Wall -Wextra $(if $(WERROR),-Werror) -Wno-unknown-pragmas -Wno-unused-parameter -MMD -MP $(CUDA_DEFINES)
COMPILE_CUDA = $(CXX) -x c++ -include tests/cuda_on_cpu/emulator.h $(EMULATOR_CFLAGS) -O$(if $(SANITIZE),1,2) \
	-ffp-contract=fast $(HAS_FMA) -fno-strict-aliasing $(EMULATOR_SANITIZERS) -c $< -o $@
# A card fuses multiplications and additions.
HAS_FMA := $(if $(shell grep -m 1 -w -o fma /proc/cpuinfo 2>/dev/null),-mfma)
EMULATOR_SOURCES := $(filter-out $(if $(filter race,$(SANITIZE)),,%/race.cpp),$(wildcard tests/cuda_on_cpu/*.cpp))
EMULATOR_OBJECTS := $(EMULATOR_SOURCES:%.cpp=$(BUILD)/%.o)
CUDA_LIBS := -lstdc++ -ldl
endif
