# make install and make uninstall: scripts/install.sh.

#? Install
#? make install [PREFIX=/usr/local] [DESTDIR=] | install programs, man pages, and completion for bash, zsh and fish
#? make install PROGRAM_PREFIX=inkling- | install as inkling-train and inkling-generate
#? make uninstall [PREFIX=/usr/local] | remove what was installed there
PREFIX ?= /usr/local
OPTION_PAGES := $(BUILD)/option_pages
$(OPTION_PAGES): $(BUILD)/scripts/option_pages.o $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))

.PHONY: install uninstall
INSTALL = PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" PROGRAM_PREFIX="$(PROGRAM_PREFIX)" BUILD="$(BUILD)" BIN="$(BIN)" scripts/install.sh
install: all $(OPTION_PAGES)
	@$(INSTALL)
uninstall:
	@$(INSTALL) uninstall
