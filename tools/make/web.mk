# The WebAssembly module and the other parts of a page (./generate --html), as strings in the program.

#? Page for browsers
#? make wasm | build the WebAssembly module that ./generate --html needs, and ./generate with it
WASM := $(BUILD)/wasm
WASM_CLANG ?= clang
WASM_CC := $(WASM_CLANG) --target=wasm32-wasi -msimd128
WASM_FILES := tools/web/module.c tools/web/platform.c model.c $(wildcard src/model/*.c) src/inference/generation.c src/inference/sampling.c \
	src/inference/token_rules.c src/files/formats/classes.c src/files/formats/config_json.c \
	$(filter-out src/text/tokenizer/%_train.c src/text/tokenizer/convert.c,$(wildcard src/text/tokenizer/*.c)) \
	$(addprefix src/base/,array.c error.c hash.c json.c path.c progress.c text.c utf8.c)
WASM_OBJECTS := $(WASM_FILES:%.c=$(WASM)/%.o) $(CPU_KERNELS:%.c=$(WASM)/%.o)
# The functions of the libraries that the module calls; the linker drops the others.
JANSSON_FILES := dump error hashtable load memory strbuffer strconv utf value
PCRE2_FILES := auto_possess chartables compile config context error extuni find_bracket jit_compile maketables match \
	match_data newline ord2utf pattern_info script_run string_utils study tables ucd valid_utf xclass
# Later versions have more.
PCRE2_FILES += $(patsubst $(LIBRARY_SOURCES)/pcre2/pcre2_%.c,%,\
	$(wildcard $(addprefix $(LIBRARY_SOURCES)/pcre2/pcre2_,compile_cgroup.c compile_class.c chkdint.c)))
WASM_LIBRARIES := $(JANSSON_FILES:%=$(WASM)/jansson/%.o) $(PCRE2_FILES:%=$(WASM)/pcre2/pcre2_%.o) \
	$(WASM)/utf8proc/utf8proc.o

LIBRARY_OPTIONS := -DNDEBUG -DHAVE_STDINT_H -DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 -DSUPPORT_UNICODE
WASM_SHARED_CFLAGS := -DNDEBUG -ffunction-sections -fdata-sections $(LIBRARY_HEADERS) $(LIBRARY_DEFINES)
WASM_CFLAGS := -std=c11 -D_XOPEN_SOURCE=700 $(ARITHMETIC) -fopenmp-simd -I. -Isrc $(WASM_SHARED_CFLAGS) -MMD -MP
WASM_LIBRARY_CFLAGS := -Os -w $(WASM_SHARED_CFLAGS) $(LIBRARY_OPTIONS)
WASM_KERNEL_CFLAGS := -O3 -fno-trapping-math -DCPU_BUILD=generic -DCPU_ISA=generic -DCPU_BF16=0 -DCPU_GENERATES
WASM_LDFLAGS := -mexec-model=reactor -Wl,--gc-sections -Wl,--strip-all -Wl,-z,stack-size=1048576

$(eval $(call remade_for,wasm/flags,$(strip $(WASM_CC) $(WASM_CFLAGS) $(WASM_LIBRARY_CFLAGS) $(WASM_KERNEL_CFLAGS))))

.PHONY: wasm
HAS_WASM := echo 'int main(void) { return 0; }' | $(WASM_CLANG) --target=wasm32-wasi -x c -o /dev/null - 2>/dev/null
CHECK_WASM = $(HAS_WASM) || { $(call missing,$(WASM_CLANG) has no WebAssembly; scripts/install-deps.sh wasm installs it); }
wasm:
	@$(CHECK_WASM)
	@scripts/library_sources.sh $(LIBRARY_SOURCES)
	@$(MAKE) --no-print-directory $(BIN)/generate
$(WASM)/%.o: $(LIBRARY_SOURCES)/%.c $(WASM)/flags
	@mkdir -p $(@D)
	$(call run,$(WASM_CC) $(WASM_LIBRARY_CFLAGS) -c $< -o $@)
$(WASM)/src/kernels/cpu/%.o: src/kernels/cpu/%.c $(WASM)/flags
	@mkdir -p $(@D)
	$(call run,$(WASM_CC) $(WASM_CFLAGS) $(WASM_KERNEL_CFLAGS) -c $< -o $@)
$(WASM)/%.o: %.c $(WASM)/flags
	@mkdir -p $(@D)
	$(call run,$(WASM_CC) $(WASM_CFLAGS) -Os -c $< -o $@)
$(WASM)/module.wasm: $(WASM_OBJECTS) $(WASM_LIBRARIES)
	$(call run,$(WASM_CC) $(WASM_LDFLAGS) $(filter %.o,$^) -o $@)

# A build without the sources, or on a machine that has no clang any more, has an empty module.
HAVE_WASM := $(if $(wildcard $(LIBRARY_SOURCES)/complete),$(shell $(HAS_WASM) && echo yes))
$(WASM)/module.gz: $(if $(HAVE_WASM),$(WASM)/module.wasm) tools/make/web.mk
	@mkdir -p $(@D)
	@$(if $(HAVE_WASM),gzip -9nc $(WASM)/module.wasm,true) >$@.new && mv $@.new $@
# An array of the bytes of FILE, and one more.
c_bytes = echo 'const unsigned char $(1)[] = {'; od -An -v -tu1 $(2) | sed 's/[0-9][0-9]*/&,/g'; echo '0};'; \
	echo 'const size_t $(1)_size = sizeof $(1) - 1;'
$(BUILD)/src/generate/parts.c: tools/web/page.css tools/web/page.js tools/web/worker.js $(WASM)/module.gz
	@mkdir -p $(@D)
	@(echo '#include "generate/parts.h"'; $(call c_string,web_style,tools/web/page.css); $(call c_string,web_page,tools/web/page.js); \
		$(call c_string,web_worker,tools/web/worker.js); $(call c_bytes,web_engine,$(WASM)/module.gz)) >$@.new && mv $@.new $@
$(BUILD)/src/generate/parts.o: $(BUILD)/src/generate/parts.c $(BUILD)/flags
	$(call run,$(CC) $(ALL_CFLAGS) -c $< -o $@)
