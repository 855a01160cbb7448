# The command `inkling` as a static program for Linux, linked with musl: it runs on any distribution. A static program
# loads no libraries, so it has no GPUs, no MPI and no editing of typed lines.

#? Release
#? make static [MACHINES="x86_64 aarch64"] | build static programs, build/static/MACHINE/inkling (where gcc is found)
#? make dist [URL=https://...] | pack it: tarballs, Debian package, wheel, container image, ... in build/dist
HOST := $(shell uname -m)
STATIC_MACHINES := x86_64 aarch64
MACHINES ?= $(foreach machine,$(STATIC_MACHINES),$(if $(shell command -v $(machine)-linux-gnu-gcc),$(machine)))
$(if $(filter-out $(STATIC_MACHINES),$(MACHINES)),$(error MACHINES is "$(MACHINES)": give one or both of $(STATIC_MACHINES)))
DIST := $(BUILD)/dist
STATIC = $(BUILD)/static/$(1)
MUSL = $(LIBRARY_SOURCES)/musl/$(1)/usr/lib/$(1)-linux-musl/musl-gcc.specs
# Alignment costs 40 kB and speeds up only the kernels.
ALIGNMENTS := align-functions align-jumps align-loops align-labels
STATIC_CFLAGS := -O2 -fno-pie -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables $(ALIGNMENTS:%=-fno-%)
# Without outline atomics: gcc's helpers for them need glibc.
STATIC_CFLAGS_aarch64 := -mno-outline-atomics
STATIC_LDFLAGS := -static -s -Wl$(comma)--gc-sections -Wl$(comma)-z$(comma)noseparate-code
STATIC_SETTINGS = BUILD=$(STATIC) BIN=$(STATIC) BUILD_SETTINGS= LIBRARY_SOURCES=$(LIBRARY_SOURCES) WASM=$(WASM) \
	COMPILED_LIBRARIES=1 NO_CUDA=1 NO_MPI=1 CC="$(1)-linux-gnu-gcc -specs=$(MUSL)" \
	CFLAGS="$(STATIC_CFLAGS) $(STATIC_CFLAGS_$(1))" KERNEL_CFLAGS="$(ALIGNMENTS:%=-f%)" LDFLAGS="$(STATIC_LDFLAGS)"
.PHONY: static dist
static: remember
	@for machine in $(or $(MACHINES),$(HOST)); do command -v $$machine-linux-gnu-gcc >/dev/null || \
		{ $(call missing,$$machine-linux-gnu-gcc is missing); }; done
	@$(CHECK_WASM)
	@scripts/library_sources.sh $(LIBRARY_SOURCES)
	@$(MAKE) --no-print-directory $(NESTED) $(WASM)/module.gz
	@$(foreach machine,$(MACHINES),$(MAKE) --no-print-directory $(call STATIC_SETTINGS,$(machine)) \
		$(call STATIC,$(machine))/inkling &&) true
dist:
	@scripts/release.sh check
	@$(MAKE) --no-print-directory $(NESTED) static
# The program for Windows, where its compiler is found.
	@! command -v $(WINDOWS_CC) >/dev/null || $(MAKE) --no-print-directory $(NESTED) windows
# The man pages come from a program of this machine.
	@$(MAKE) --no-print-directory $(call STATIC_SETTINGS,$(HOST)) $(call STATIC,$(HOST))/option_pages
	@BUILD="$(BUILD)" MACHINES="$(MACHINES)" URL=$(call quoted,$(URL)) scripts/release.sh $(call quoted,$(DIST))

# ---- the libraries, with COMPILED_LIBRARIES=1 ----

ifdef COMPILED_LIBRARIES
ARCHIVE := $(LIBS)
# The main build makes it.
$(WASM)/flags: ;
$(CPU_OBJECTS): override CFLAGS += $(KERNEL_CFLAGS)
# What runs once or waits for people is compiled for size.
COLD := train.c generate.c $(wildcard $(addsuffix /*.c,$(addprefix src/,cli files/* generate report text/doctor train train/sweep))) \
	$(wildcard src/text/tokenizer/json_*.c) $(addprefix src/,text/tokenizer/chat.c text/dataset/conversation.c base/html.c)
$(COLD:%.c=$(BUILD)/%.o) $(GENERATED): override CFLAGS += -Os
ARCHIVED := $(WASM_LIBRARIES:$(WASM)/%=$(BUILD)/libraries/%) \
	$(BUILD)/libraries/jansson/hashtable_seed.o $(BUILD)/libraries/jansson/pack_unpack.o
$(BIN)/inkling $(OPTION_PAGES): $(ARCHIVE)
$(ARCHIVE): $(ARCHIVED)
	$(call run,rm -f $@ && $(AR) rcsD $@ $^)
# for make -n static, before they are fetched
$(LIBRARY_SOURCES)/%.c:
	@$(call missing,$@ is missing)
$(BUILD)/libraries/%.o: $(LIBRARY_SOURCES)/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call run,$(CC) $(CFLAGS) -Os -w $(CPPFLAGS) $(LIBRARY_OPTIONS) -DSUPPORT_JIT -DUSE_URANDOM -DHAVE_ATOMIC_BUILTINS \
		$(addprefix -DHAVE_,FCNTL_H UNISTD_H SCHED_H SCHED_YIELD OPEN READ CLOSE GETPID) -c $< -o $@)
endif
