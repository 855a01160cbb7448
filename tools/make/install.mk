# make install and make uninstall: scripts/install.sh.

#? Install
#? make install [PREFIX=/usr/local] [DESTDIR=] | install inkling, man pages, the license, and completion for bash, zsh and fish
#? make uninstall [PREFIX=/usr/local] | remove what was installed there
PREFIX ?= /usr/local
OPTION_PAGES := $(BUILD)/option_pages
$(OPTION_PAGES): $(BUILD)/tools/option_pages.o $(LIBRARY_OBJECTS)
	$(call run,$(CC) $(ALL_LDFLAGS) $^ -o $@ $(ALL_LIBS))

.PHONY: install uninstall
INSTALL = PREFIX=$(call quoted,$(PREFIX)) DESTDIR=$(call quoted,$(DESTDIR)) BUILD="$(BUILD)" BIN="$(BIN)" \
	MPI_LIBRARIES="$(MPI_LIBRARIES)" scripts/install.sh
# `make inkling` builds all that is installed, so that `sudo make install` compiles nothing.
$(BIN)/inkling: | $(MPI_LIBRARIES) $(OPTION_PAGES)
install: $(BIN)/inkling
	@$(INSTALL)
uninstall:
	@$(INSTALL) uninstall
