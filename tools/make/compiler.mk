# The compiler, its flags, and the libraries that are linked.

override CC := $(or $(CC),$(if $(shell command -v gcc),gcc,cc))
override CFLAGS := $(or $(CFLAGS),-O3)
override PKG_CONFIG := $(or $(PKG_CONFIG),pkg-config)

DEFINES :=

# COMPILED_LIBRARIES=1, for other machines than this one: jansson, PCRE2 and utf8proc are compiled (tools/make/static.mk) from
# the sources that scripts/library_sources.sh fetched, and no installed ones are used.
LIBRARY_SOURCES := $(BUILD)/library-sources
LIBRARY_HEADERS := $(foreach library,jansson pcre2 utf8proc,-isystem $(LIBRARY_SOURCES)/$(library))
LIBRARY_DEFINES := -DPCRE2_STATIC -DUTF8PROC_STATIC
ifdef COMPILED_LIBRARIES
override CPPFLAGS += $(LIBRARY_HEADERS) $(LIBRARY_DEFINES)
override PKG_CONFIG := false
endif

# ---- flags ----

WARNINGS := -Wall -Wextra -Wshadow -Wconversion $(if $(WERROR),-Werror)
# The stack of a thread may be as small as 128 KiB (ulimit -s).
FRAMES := $(if $(SANITIZE),,-Wframe-larger-than=32768)
SANITIZERS := $(if $(filter 1 address,$(SANITIZE)),\
	-fsanitize=address$(comma)undefined -fno-sanitize-recover=all -g -DINKLING_SANITIZE)
# Fuzzing (make fuzz, with clang): coverage is counted, checksums are not compared.
SANITIZERS += $(if $(FUZZ),-fsanitize=fuzzer-no-link -Wno-pass-failed -DINKLING_FUZZ)
# Homebrew on ARM installs where Apple's compiler does not look.
HOMEBREW := $(wildcard /opt/homebrew)
SEARCHED_CPPFLAGS = $(CPPFLAGS) $(HOMEBREW:%=-isystem %/include)
SEARCHED_LDFLAGS = $(LDFLAGS) $(PACKAGE_LDFLAGS) $(HOMEBREW:%=-L%/lib)
# Not fast-math: NaN and infinity keep their meaning. Multiplications and additions may be fused, and sqrtf sets no errno.
ARITHMETIC := -ffp-contract=fast -fno-math-errno
# On macOS _XOPEN_SOURCE alone hides the functions that are not POSIX.
ALL_CFLAGS = -std=c11 $(SEARCHED_CPPFLAGS) $(CFLAGS) $(ARITHMETIC) -pthread -fopenmp-simd \
	-D_XOPEN_SOURCE=700 -D_DARWIN_C_SOURCE -I. -Isrc $(WARNINGS) $(FRAMES) -MMD -MP \
	$(SANITIZERS) $(DEFINES) $(PACKAGE_CFLAGS)
ALL_LDFLAGS = $(SEARCHED_LDFLAGS) -pthread $(SANITIZERS) $(if $(CUDA_ON_CPU),-rdynamic)

# ---- instruction sets ----

# The CPU kernels are compiled once for each instruction set and element type, best first. Everything else is compiled for
# any processor of the architecture. ISA="v3 v2" selects instruction sets.
MACHINE := $(or $(shell $(CC) -dumpmachine 2>/dev/null),$(shell uname -m))
# Termux compiles for Android 7, whose C library lacks aligned_alloc(), getentropy() and posix_spawn(); Android 9 has them.
$(foreach machine,$(filter %-android24,$(MACHINE)),$(eval override CC += --target=$(machine:24=28)))
MACOS := $(or $(findstring -darwin,$(MACHINE)),$(findstring -macos,$(MACHINE)))
WINDOWS := $(findstring -mingw32,$(MACHINE))
X86 := $(filter x86_64%,$(MACHINE))
ARM := $(filter aarch64% arm64%,$(MACHINE))
ALL_CPU_BUILDS := $(if $(X86),v4 v4_bf16 v3 v3_bf16 v2) $(if $(ARM),dotprod dotprod_bf16 neon neon_bf16) generic generic_bf16
isa_of = $(firstword $(subst _, ,$(1)))
KNOWN_ISAS := $(filter-out %_bf16,$(ALL_CPU_BUILDS))
$(if $(filter-out $(KNOWN_ISAS),$(ISA)),$(error ISA is "$(ISA)": give one or several of $(KNOWN_ISAS)))
CPU_BUILDS := $(if $(ISA),$(filter $(ISA) $(ISA:%=%_bf16),$(ALL_CPU_BUILDS)),\
	$(filter-out $(if $(X86)$(ARM),generic%),$(ALL_CPU_BUILDS)))
# Floating-point exceptions need not be exact, so comparisons may become masks. Distributions set -O2; the kernels
# are compiled with -O3 all the same. gcc 12 uses MMX registers for 8 bytes and leaves them in use, which makes the next long
# double of the program NaN: -mno-mmx.
BUILD_FLAGS = $(if $(SANITIZE),$(if $(FUZZ),-O0 -fno-sanitize=all,-O2),$(if $(filter -O2,$(CFLAGS)),-O3)) \
	-DCPU_BUILD=$(1) -DCPU_ISA=$(isa_of) -DCPU_BF16=$(if $(filter %_bf16,$(1)),1,0) -fno-trapping-math \
	$(if $(filter v%,$(1)),-march=x86-64-$(isa_of) -mno-mmx) $(if $(filter v4%,$(1)),-mprefer-vector-width=512) \
	$(if $(filter dotprod%,$(1)),-march=armv8.2-a+dotprod) \
	$(if $(BF16_INSTRUCTIONS),$(if $(filter v4_bf16 dotprod_bf16,$(1)),-DHAVE_BF16_PRODUCTS))
# An old assembler lacks the instructions that multiply bf16.
BF16_INSTRUCTIONS := $(shell printf '$(if $(ARM),.arch armv8.2-a+bf16\nbfdot v0.4s$(comma) v1.8h$(comma) v2.8h\n,\
	tdpbf16ps %%tmm0$(comma) %%tmm1$(comma) %%tmm2\nvdpbf16ps %%zmm0$(comma) %%zmm1$(comma) %%zmm2\n)' | \
	$(CC) -x assembler -c -o /dev/null - 2>/dev/null && echo yes)
# For src/kernels/backends.c: the tables of kernels, best first, with the instruction set of each.
CPU_TABLES := $(if $(BF16_INSTRUCTIONS),$(if $(filter v4_bf16,$(CPU_BUILDS)),$(if $(WINDOWS),,amx) avx512bf16) \
	$(if $(filter dotprod_bf16,$(CPU_BUILDS)),bf16)) $(CPU_BUILDS)
BACKENDS_DEFINES = -D'CPU_TABLES(X)=$(foreach table,$(CPU_TABLES),X($(table),$(call isa_of,$(table))))' $(CUDA_DEFINES)

# ---- libraries ----

# jansson, PCRE2 and utf8proc are required. They are linked statically if their archives are installed, so that the programs
# run on other machines; NO_STATIC=1 links the shared libraries, as distributions need.
packages = $(foreach package,jansson libpcre2-8 libutf8proc,$(shell $(PKG_CONFIG) $(1) $(package) 2>/dev/null))
PACKAGE_CFLAGS := $(call packages,--cflags)
PACKAGE_LDFLAGS := $(call packages,--libs-only-L)
have_header = $(shell printf '$(2)$(HASH)include <$(1)>\n' | \
	$(CC) $(SEARCHED_CPPFLAGS) $(PACKAGE_CFLAGS) -E -x c - >/dev/null 2>&1 && echo yes)
archives = $(wildcard $(patsubst -L%,%/lib$(1).a,$(filter -L%,$(SEARCHED_LDFLAGS)))) \
	$(shell $(CC) -print-file-name=lib$(1).a 2>/dev/null | grep /)
static_or_shared = $(or $(if $(NO_STATIC),,$(firstword $(call archives,$(1)))),-l$(1))
HAVE_JANSSON := $(call have_header,jansson.h)
HAVE_PCRE2 := $(call have_header,pcre2.h,$(HASH)define PCRE2_CODE_UNIT_WIDTH 8\n)
HAVE_UTF8PROC := $(call have_header,utf8proc.h)
# libedit, for ./generate -i, is loaded at run time if it is installed. Without its header, ./generate reads plain lines.
DEFINES += $(if $(call have_header,histedit.h),-DINKLING_LIBEDIT)
LIBS := $(if $(COMPILED_LIBRARIES),$(BUILD)/libraries.a,\
	$(foreach library,jansson pcre2-8 utf8proc,$(call static_or_shared,$(library))))
ALL_LIBS = $(LIBS) $(CUDA_LIBS) -lm $(if $(WINDOWS),,-ldl)

missing = echo "make: $(1)" >&2; exit 1
.PHONY: check-libraries
check-libraries:
	@command -v $(firstword $(CC)) >/dev/null || \
		{ $(call missing,the compiler $(firstword $(CC)) is missing. Run scripts/install-deps.sh); }
	@$(if $(filter v%,$(CPU_BUILDS)),{ $(CC) -march=x86-64-v2 -E -x c /dev/null >/dev/null 2>&1; } || \
		{ $(call missing,$(CC) is too old: gcc 11 or clang 12 is needed; ISA=generic makes slow programs with this one); })
ifneq ($(HAVE_JANSSON),yes)
	@$(call missing,jansson is missing (its header jansson.h was not found). Run scripts/install-deps.sh)
endif
ifneq ($(HAVE_PCRE2),yes)
	@$(call missing,PCRE2 is missing (its header pcre2.h was not found). Run scripts/install-deps.sh)
endif
ifneq ($(HAVE_UTF8PROC),yes)
	@$(call missing,utf8proc is missing (its header utf8proc.h was not found). Run scripts/install-deps.sh)
endif

# ---- MPI ----

# Training in several processes (src/base/collective/mpi): a library beside the programs for each kind of MPI that is found.
# Fedora and openSUSE install it in directories that are not in PATH.
override MPICC := $(or $(MPICC),mpicc mpicc.openmpi mpicc.mpich \
	$(wildcard $(addprefix /usr/lib64/,openmpi/bin/mpicc mpich/bin/mpicc mpi/gcc/*/bin/mpicc)))
WITH_CC := OMPI_CC="$(CC)" MPICH_CC="$(CC)"
MPI_KIND_SOURCE := $(HASH)include <mpi.h>\n$(HASH)ifdef OPEN_MPI\nopenmpi\n$(HASH)else\nmpich\n$(HASH)endif\n
mpi_kind = $(shell printf '$(MPI_KIND_SOURCE)' | $(WITH_CC) $(1) -E -P -x c - 2>/dev/null | grep -x 'openmpi\|mpich')
$(if $(NO_MPI),,$(foreach compiler,$(MPICC),$(if $(shell command -v $(compiler)),\
	$(eval MPICC_$(call mpi_kind,$(compiler)) ?= $(compiler)))))
MPI_KINDS := $(foreach kind,openmpi mpich,$(if $(MPICC_$(kind)),$(kind)))
