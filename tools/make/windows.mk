# The command `inkling` as a program for Windows 10 and later on x86-64, compiled with mingw-w64 on Linux. It needs nothing
# but Windows. src/windows/ has what the sources use of POSIX and Windows lacks; nothing else is different, except that
# there are no GPUs, no MPI, no editing of typed lines, and no AMX, for which a program must ask Windows (not tested).

#? make windows | build build/windows/inkling.exe for Windows, a preview (mingw-w64; make test-windows runs it in wine)
WINDOWS_CC := x86_64-w64-mingw32-gcc-posix
WINDOWS_BUILD := $(BUILD)/windows
# Warnings: gcc takes formats of printf() for Microsoft's, and names like read and write are macros. Moves: some versions
# of gcc believe that the stack is aligned for AVX (GCC bug 54412).
WINDOWS_CPPFLAGS := -Isrc/windows/include -include src/windows/posix.h -D_FILE_OFFSET_BITS=64 \
	-D__USE_MINGW_ANSI_STDIO=1 -D_WIN32_WINNT=0x0A00
WINDOWS_CFLAGS := -O2 -std=gnu11 -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables \
	$(ALIGNMENTS:%=-fno-%) -Wa$(comma)-muse-unaligned-vector-move -Werror=implicit-function-declaration
WINDOWS_LDFLAGS := -static -s -municode -Wl$(comma)--gc-sections -Wl$(comma)--no-insert-timestamp -Wl$(comma)--stack$(comma)8388608
WINDOWS_SETTINGS = BUILD=$(WINDOWS_BUILD) BIN=$(WINDOWS_BUILD) BUILD_SETTINGS= LIBRARY_SOURCES=$(LIBRARY_SOURCES) \
	WASM=$(WASM) COMPILED_LIBRARIES=1 NO_CUDA=1 NO_MPI=1 CC=$(WINDOWS_CC) AR=$(WINDOWS_CC:gcc-posix=ar) \
	CPPFLAGS="$(WINDOWS_CPPFLAGS)" CFLAGS="$(WINDOWS_CFLAGS)" KERNEL_CFLAGS="$(ALIGNMENTS:%=-f%)" LDFLAGS="$(WINDOWS_LDFLAGS)" \
	WARNINGS="-Wall -Wextra -Wconversion -Wno-format $(if $(WERROR),-Werror)"
.PHONY: windows
windows: remember
	@command -v $(WINDOWS_CC) >/dev/null || { $(call missing,$(WINDOWS_CC) is missing. Run scripts/install-deps.sh windows); }
	@scripts/library_sources.sh $(LIBRARY_SOURCES)
	@$(MAKE) --no-print-directory $(NESTED) $(WASM)/module.gz
	@$(MAKE) --no-print-directory $(WINDOWS_SETTINGS) $(WINDOWS_BUILD)/inkling

# For the unit tests, which tests/windows.sh builds.
ifneq ($(WINDOWS),)
$(BUILD)/libcmocka.a: $(LIBRARY_SOURCES)/cmocka-source/src/cmocka.c
	@mkdir -p $(@D)
	$(call run,$(CC) -O2 -w -I$(<D)/../include -c $< -o $(BUILD)/cmocka.o && $(AR) rcsD $@ $(BUILD)/cmocka.o)
$(TESTS): $(BUILD)/libcmocka.a
$(BUILD)/tests/%.o: override CPPFLAGS += -isystem $(LIBRARY_SOURCES)/cmocka-source/include
$(TESTS): override LDFLAGS += -L$(BUILD)
endif
.PHONY: windows-tests
windows-tests:
	@$(MAKE) --no-print-directory $(WINDOWS_SETTINGS) $(WINDOWS_TESTS:%=$(WINDOWS_BUILD)/tests/%)
