# The command `inkling` as a static program for Linux, linked with musl: it runs on any distribution. A static program loads
# no libraries, so it has no GPUs, no MPI and no editing of typed lines.

#? Release
#? make static [MACHINES="x86_64 aarch64"] | build build/static/MACHINE/inkling, a static program (this machine's)
HOST := $(shell uname -m)
MACHINES ?= $(HOST)
STATIC = $(BUILD)/static/$(1)
MUSL = $(LIBRARY_SOURCES)/musl/$(1)/usr/lib/$(1)-linux-musl/musl-gcc.specs
STATIC_CFLAGS := -O2 -fno-pie -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables
# Without outline atomics: gcc's helpers for them need glibc. The threads of musl have small stacks unless the program asks.
STATIC_SETTINGS = BUILD=$(call STATIC,$(1)) BIN=$(call STATIC,$(1)) BUILD_SETTINGS= NO_CUDA=1 NO_MPI=1 PKG_CONFIG=false \
	LIBRARY_SOURCES=$(LIBRARY_SOURCES) WASM=$(WASM) LIBS=$(call STATIC,$(1))/libraries.a \
	CC="$(1)-linux-gnu-gcc -specs=$(call MUSL,$(1))" CFLAGS="$(STATIC_CFLAGS) $(if $(filter aarch64,$(1)),-mno-outline-atomics)" \
	CPPFLAGS="$(LIBRARY_HEADERS) $(LIBRARY_DEFINES)" LDFLAGS="-static -s -Wl$(comma)--gc-sections$(comma)-z$(comma)stack-size=8388608"
.PHONY: static
static: remember
	@scripts/library_sources.sh $(LIBRARY_SOURCES)
	@$(MAKE) --no-print-directory $(NESTED) $(WASM)/module.base64
	@$(foreach machine,$(MACHINES),$(MAKE) --no-print-directory $(call STATIC_SETTINGS,$(machine)) \
		$(call STATIC,$(machine))/inkling $(if $(filter $(HOST),$(machine)),$(call STATIC,$(machine))/option_pages) &&) true

# ---- the libraries, in the make of a static program ----

ARCHIVE := $(BUILD)/libraries.a
ifeq ($(LIBS),$(ARCHIVE))
$(CPU_OBJECTS): override CFLAGS += -O3
ARCHIVED := $(WASM_LIBRARIES:$(WASM)/%=$(BUILD)/libraries/%) \
	$(BUILD)/libraries/jansson/hashtable_seed.o $(BUILD)/libraries/jansson/pack_unpack.o
$(BIN)/inkling $(OPTION_PAGES): $(ARCHIVE)
$(ARCHIVE): $(ARCHIVED)
	$(call run,rm -f $@ && $(AR) rcsD $@ $^)
$(BUILD)/libraries/%.o: $(LIBRARY_SOURCES)/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call run,$(CC) $(CFLAGS) -Os -w $(CPPFLAGS) $(LIBRARY_OPTIONS) -DSUPPORT_JIT -DUSE_URANDOM -DHAVE_ATOMIC_BUILTINS \
		$(addprefix -DHAVE_,FCNTL_H UNISTD_H SCHED_YIELD OPEN READ CLOSE GETPID) -c $< -o $@)
endif
