# The CUDA backend: compiled by nvcc, emulated on the CPU (CUDA_ON_CPU=1, tests/cuda_on_cpu), or left out.

# nvcc compiles it if the machine has a GPU or on request, because it takes longer than everything else together.
# find_cuda.sh sets CUDA_NVCC, CUDA_CODE, CUDA_PTX, CUDA_LEFT_OUT, CUDA_NOTE, CUDA_ERROR.
define newline


endef
ifeq ($(CUDA_ON_CPU)$(NO_CUDA),)
$(eval $(subst |,$(newline),$(shell CUDA=$(if $(filter 1,$(CUDA)),$(if $(filter command,$(origin CUDA)),asked,1)) \
	CUDA_ARCH=$(call quoted,$(CUDA_ARCH)) NVCC=$(call quoted,$(NVCC)) tools/make/find_cuda.sh | tr '\n' '|')))
$(if $(CUDA_ERROR),$(error $(CUDA_ERROR)))
endif
override NVCC := $(or $(CUDA_NVCC),$(NVCC),$(shell command -v nvcc))
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_BY := $(if $(CUDA_ON_CPU),cpu,$(if $(CUDA_NVCC),nvcc))
# Attention by wgmma, which only cards of compute capability 9.0 have.
WGMMA := $(if $(filter cpu,$(CUDA_BY))$(filter 90,$(CUDA_CODE)),-DINKLING_WGMMA)
CUDA_SOURCES := $(if $(CUDA_BY),kernels.cu $(filter-out $(if $(WGMMA),,%_hopper.cu),$(wildcard src/kernels/cuda/*.cu)))
CUDA_OBJECTS := $(CUDA_SOURCES:%.cu=$(BUILD)/%.cu.o)
# NCCL, for several GPUs, is loaded at run time if it is installed; the emulator has a stand-in.
CUDA_DEFINES := $(if $(CUDA_BY),-DINKLING_CUDA $(if $(filter cpu,$(CUDA_BY))$(call have_header,nccl.h),-DINKLING_NCCL))

ifeq ($(CUDA_BY),nvcc)
GENCODE := $(foreach a,$(CUDA_CODE),-gencode=arch=compute_$(a),code=sm_$(a)) \
	$(foreach a,$(CUDA_PTX),-gencode=arch=compute_$(a),code=compute_$(a)) $(if $(word 2,$(CUDA_CODE)),--threads=0)
NVCC_WARNINGS := $(if $(WERROR),-Werror all-warnings) -Xcompiler -Wall,-Wextra,-Wno-unused-parameter
NVCC_FLAGS = -std=c++20 -O3 $(GENCODE) -I. -Isrc $(NVCC_WARNINGS) -Xptxas -v \
	$(CPPFLAGS) -DINKLING_CUDA_LIBRARIES='"$(CUDA_HOME)/lib64"' -DINKLING_CUDA_CODE='"$(CUDA_CODE)"' $(CUDA_DEFINES) $(WGMMA)
# ptxas says C7510 to C7515 where it makes products by wgmma wait for each other.
COMPILE_CUDA = $(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@ 2> $(@:.o=.log) && \
	! grep -q '(C751[0-5])' $(@:.o=.log) || { cat $(@:.o=.log) >&2; exit 1; }
HOPPER_CODE := arch=compute_90a,code=sm_90a
$(BUILD)/src/kernels/cuda/attention_hopper.cu.o: private GENCODE := -gencode=$(HOPPER_CODE)
$(BUILD)/tests/check_fragments.cu.o: private GENCODE := $(subst arch=compute_90$(comma)code=sm_90,$(HOPPER_CODE),$(GENCODE))
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/targets/x86_64-linux/lib -lcudart_static -lstdc++ -ldl -lrt -lpthread
endif

# The emulator needs only the headers of CUDA (tests/cuda_on_cpu/README.md).
CUDA_INCLUDE_PLACES := $(if $(CUDA_HOME),$(CUDA_HOME)/include) /usr/local/cuda/include /opt/cuda/include /usr/include
CUDA_INCLUDE ?= $(patsubst %/cublasLt.h,%,$(firstword $(wildcard $(addsuffix /cublasLt.h,$(CUDA_INCLUDE_PLACES)))))
ifeq ($(CUDA_BY),cpu)
CXX ?= g++
EMULATOR_SANITIZERS := $(if $(filter address,$(SANITIZE)),\
	-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer,\
	$(if $(filter race,$(SANITIZE)),-fsanitize=thread))
EMULATOR_CFLAGS = -std=c++20 -g -I. -Isrc -Itests/cuda_on_cpu/nccl -isystem $(CUDA_INCLUDE) -isystem $(CUDA_INCLUDE)/cccl \
	-Wall -Wextra $(if $(WERROR),-Werror) -Wno-unknown-pragmas -Wno-unused-parameter -MMD -MP $(CUDA_DEFINES) $(WGMMA)
COMPILE_CUDA = $(CXX) -x c++ -include tests/cuda_on_cpu/emulator.h $(EMULATOR_CFLAGS) -O$(if $(SANITIZE),1,2) \
	-ffp-contract=fast $(HAS_FMA) -fno-strict-aliasing $(EMULATOR_SANITIZERS) -c $< -o $@
# A card fuses multiplications and additions.
HAS_FMA := $(if $(shell grep -m 1 -w -o fma /proc/cpuinfo 2>/dev/null),-mfma)
EMULATOR_SOURCES := $(filter-out $(if $(filter race,$(SANITIZE)),,%/race.cpp),$(wildcard tests/cuda_on_cpu/*.cpp))
EMULATOR_OBJECTS := $(EMULATOR_SOURCES:%.cpp=$(BUILD)/%.o)
CUDA_LIBS := -lstdc++ -ldl
endif
