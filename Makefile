# Builds ./train and ./generate. `make help` lists the targets and settings: it prints the lines that begin with #? in this
# file and in the files that it includes.

$(if $(filter undefine,$(.FEATURES)),,$(error make $(MAKE_VERSION), which comes with macOS, is too old: \
brew install make, then type gmake instead of make))
.DEFAULT_GOAL := all
include tools/make/settings.mk tools/make/progress.mk tools/make/compiler.mk tools/make/cuda.mk

COMMIT := $(shell test -e .git && git describe --always --abbrev=12 --dirty --exclude='*' 2>/dev/null)
VERSION := $(shell cat VERSION)$(if $(COMMIT), ($(COMMIT)))
# Of the release, from its heading "## 1.0.0 (2026-11-30)".
DATE := $(shell sed -n 's/^\#\# $(firstword $(VERSION)) (\(.*\))$$/\1/p' CHANGELOG.md)

.PHONY: all demo demo-page demo-chat demo-pairs deps clean help
.DELETE_ON_ERROR:
#? Build
#? make | build ./train and ./generate, and a library for each MPI that is found
all: $(BUILD)/built

# ---- sources ----

CPU_KERNELS := $(wildcard src/kernels/cpu/*.c)
OTHER_SYSTEM := $(if $(WINDOWS),src/base/system.c src/base/collective/local.c,src/windows/%)
LIBRARY := model.c $(filter-out $(CPU_KERNELS) $(OTHER_SYSTEM),$(wildcard src/*/*.c src/*/*/*.c))
CPU_OBJECTS := $(foreach build,$(CPU_BUILDS),$(CPU_KERNELS:%.c=$(BUILD)/%.$(build).o))
GENERATED := $(BUILD)/src/base/style.o $(BUILD)/src/files/formats/modeling.o $(BUILD)/src/generate/parts.o
LIBRARY_OBJECTS := $(LIBRARY:%.c=$(BUILD)/%.o) $(GENERATED) $(CPU_OBJECTS) $(CUDA_OBJECTS) $(EMULATOR_OBJECTS)

# ---- programs ----

MPI_LIBRARIES := $(MPI_KINDS:%=$(BIN)/inkling-%.so)
$(BUILD)/built: $(BIN)/train $(BIN)/generate $(MPI_LIBRARIES)
	@touch $@
	@$(if $(filter-out all,$(MAKECMDGOALS)),,echo "built $(BIN)/train and $(BIN)/generate; try: make demo, or $(BIN)/train TEXT")
	@$(if $(CUDA_LEFT_OUT),echo "without the CUDA backend ($(strip $(CUDA_LEFT_OUT)))")
	@$(if $(CUDA_NOTE),echo "$(CUDA_NOTE)")

$(BIN)/train $(BIN)/generate: $(BIN)/%: $(BUILD)/%.o $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))
#? make inkling | build ./inkling, which contains both: inkling train, inkling generate
MAINS := $(BUILD)/mains/train.o $(BUILD)/mains/generate.o
$(BIN)/inkling: $(BUILD)/inkling.o $(MAINS) $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))
$(MAINS): $(BUILD)/mains/%.o: %.c $(BUILD)/flags | check-libraries
	@mkdir -p $(@D)
	$(call run,$(CC) $(ALL_CFLAGS) -Dmain=$*_main -c $< -o $@)
MPI_SOURCES := $(addprefix src/base/collective/,mpi/library.c messenger.h collective.h)
$(MPI_LIBRARIES): $(BIN)/inkling-%.so: $(MPI_SOURCES) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call run,$(WITH_CC) $(MPICC_$*) -std=c11 $(CPPFLAGS) -O2 -fPIC -shared -I. -Isrc $(WARNINGS) $< -o $@)

# Generators of training texts. Only build/talks, which reads JSON, needs an external library.
DATA_UTIL := $(filter-out src/base/json.c src/base/html.c,$(wildcard src/base/*.c))
DATA_PROGRAMS := $(BUILD)/stories $(BUILD)/pairs $(BUILD)/talks
$(DATA_PROGRAMS): $(patsubst %.c,$(BUILD)/%.o,tools/output.c $(wildcard src/cli/option*.c) src/cli/console.c $(DATA_UTIL))
$(BUILD)/stories: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/stories/*.c))
$(BUILD)/pairs: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/pairs/*.c))
$(BUILD)/talks: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/talks/*.c) $(addprefix tools/stories/,grammar.c writer.c check.c) src/text/dataset/line.c src/base/json.c)
$(BUILD)/talks: DATA_LIBS := $(ALL_LIBS)
$(DATA_PROGRAMS):
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ -lm $(DATA_LIBS))

# ---- objects ----

$(BUILD)/%.o: %.c $(BUILD)/flags | check-libraries
	@mkdir -p $(@D)
	$(call run,$(CC) $(ALL_CFLAGS) -c $< -o $@)
define compile_kernels
$(BUILD)/src/kernels/cpu/%.$(1).o: src/kernels/cpu/%.c $(BUILD)/flags | check-libraries
	@mkdir -p $$(@D)
	$$(call run,$$(CC) $$(ALL_CFLAGS) $(call BUILD_FLAGS,$(1)) -c $$< -o $$@)
endef
$(foreach build,$(CPU_BUILDS),$(eval $(call compile_kernels,$(build))))
$(BUILD)/%.cu.o: %.cu $(BUILD)/cuda-flags
	@mkdir -p $(@D)
	$(call run,$(COMPILE_CUDA))

# Prints how the kernels of the instruction set CPU_BUILD are compiled, for tests/vectorized.sh.
.PHONY: kernel-flags
kernel-flags:
	@echo '$(filter-out -MMD -MP,$(ALL_CFLAGS)) $(call BUILD_FLAGS,$(CPU_BUILD))'

VERSION_DEFINES = -DINKLING_VERSION='"$(VERSION)"' -DINKLING_DATE='"$(DATE)"' -DINKLING_COMMIT='"$(or $(COMMIT),unknown)"'
VERSIONED := $(MAINS) $(addprefix $(BUILD)/,inkling.o train.o generate.o tools/option_pages.o tests/bench/bench_kernels.o)
$(VERSIONED): private DEFINES += $(VERSION_DEFINES)
$(VERSIONED): $(BUILD)/version
$(BUILD)/tools/option_pages.o: CHANGELOG.md

# A file of lines as the C string NAME.
c_string = printf 'const char $(1)[] = ""\n'; sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' $(2); echo ';'

# The style sheet of pages.
$(BUILD)/src/base/style.c: src/base/html.css Makefile
	@mkdir -p $(@D)
	@(echo '#include "base/html.h"'; $(call c_string,html_style,$<)) >$@.new && mv $@.new $@
# The Python file that is saved with models of Inkling's own class.
$(BUILD)/src/files/formats/modeling.c: src/files/formats/modeling_inkling.py Makefile
	@mkdir -p $(@D)
	@(echo 'extern const char class_modeling[];'; $(call c_string,class_modeling,$<)) >$@.new && mv $@.new $@
$(BUILD)/src/base/style.o $(BUILD)/src/files/formats/modeling.o: %.o: %.c $(BUILD)/flags
	$(call run,$(CC) $(ALL_CFLAGS) -c $< -o $@)

# Each of these files is rewritten only when its content changes. New flags rebuild everything, a new version rebuilds the
# programs, and new instruction sets or CUDA settings rebuild the list of backends and link again.
$(BUILD)/src/kernels/backends.o: private DEFINES += $(BACKENDS_DEFINES)
$(BUILD)/src/kernels/backends.o: $(BUILD)/backends
define remade_for # FILE,CONTENT
$(BUILD)/$(1): $(if $(call differ,$(shell cat $(BUILD)/$(1) 2>/dev/null),$(2)),FORCE) | remember
	@mkdir -p $$(@D); printf '%s\n' $(call quoted,$(subst $$,$$$$,$(2))) > $$@
endef
KERNEL_FLAGS := $(foreach build,$(ALL_CPU_BUILDS),$(call BUILD_FLAGS,$(build)))
$(eval $(call remade_for,flags,$(strip $(CC) $(ALL_CFLAGS) $(KERNEL_FLAGS) $(LIBS))))
$(eval $(call remade_for,cuda-flags,$(strip $(CXX) $(COMPILE_CUDA))))
$(eval $(call remade_for,backends,$(strip $(BACKENDS_DEFINES) $(CUDA_LIBS))))
$(eval $(call remade_for,version,$(VERSION)))

# ---- demos ----

#? make demo [MINUTES=3] | train on a sample corpus (at most 1.5 minutes) and show what the model learned
#? make demo-page | train a small model on the corpus and write it as a page for browsers (0.6 MB, for a release)
#? make demo-chat [MINUTES=3] | train on generated conversations (at most 1.5 minutes) and count right answers
#? make demo-pairs | train an encoder-decoder to reverse strings (half a minute)
deps:
	@CC="$(CC)" CPPFLAGS="$(CPPFLAGS)" scripts/install-deps.sh $(DEPS)
demo: deps
	@$(MAKE) --no-print-directory train generate $(BUILD)/stories
	@scripts/demo.sh $(BUILD)/stories
	@echo "As a page for browsers: make wasm && ./generate demo/stories.run --html demo/stories.html --title Stories"
demo-page: deps
	@$(MAKE) --no-print-directory wasm train $(BUILD)/stories
	@scripts/demo.sh $(BUILD)/stories --layers 2 --dim 64 --vocab-size 512
	./generate demo/stories.run --html demo/stories.html --title Stories
demo-chat: deps
	@$(MAKE) --no-print-directory train generate $(BUILD)/talks
	@scripts/demo_chat.sh $(BUILD)/talks
demo-pairs: deps
	@$(MAKE) --no-print-directory train generate $(BUILD)/pairs
	@scripts/demo_pairs.sh $(BUILD)/pairs

#? make clean | remove everything that was built and the remembered settings
clean:
	@$(if $(wildcard $(BUILD)),$(if $(wildcard $(addprefix $(BUILD)/,flags settings.mk library-sources)),,\
		$(call missing,$(BUILD) is no build directory)))
	rm -rf $(BUILD) train generate inkling inkling-*.so

include tools/make/web.mk tools/make/install.mk tools/make/static.mk tests/tests.mk tools/make/windows.mk

HELP_FILES := Makefile tools/make/web.mk tools/make/install.mk tools/make/static.mk tools/make/windows.mk tests/tests.mk tools/make/settings.mk
help:
	@awk '/^#\? / { line[++n] = substr($$0, 4); at[n] = index(line[n], " | "); if (at[n] > width) width = at[n] } \
		END { for (i = 1; i <= n; i++) \
			if (at[i]) printf "  %-*s %s\n", width, substr(line[i], 1, at[i] - 1), substr(line[i], at[i] + 3); \
			else print (i > 1 ? "\n" : "") line[i] }' $(HELP_FILES)
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
