# Shows the progress of a build: a line for each file, rewritten in place on a terminal. V=1 prints the commands instead.

# $(call run,COMMAND): runs the command of a recipe. The compiler's messages begin on a new line.
run = $(if $(V),$(1),@$(if $(findstring s,$(short_flags)),$(1),$(step)))
STEPS :=
define step
$(eval STEPS += x)step() { $(1); }; number=$(words $(STEPS)) total=$(STEPS_ALL); \
	line=$$(printf '[ %*d/%d ] %s' $${$(HASH)total} $$number $$total $@); \
	if [ ! -t 1 ]; then echo "$$line"; step; exit; fi; \
	printf '\r\033[K%s' "$$line"; said=$$(step 2>&1); status=$$?; \
	if [ -n "$$said" ]; then printf '\r\033[K%s\n' "$$said"; elif [ $$number = $$total ]; then printf '\r\033[K'; fi; \
	exit $$status
endef

# The total comes from `make -n COUNTING=1`, which runs nothing. Nested builds do not count.
counted = $(MAKE_COMMAND) --no-print-directory -n$(short_flags) COUNTING=1 $(MAKECMDGOALS)
STEPS_ALL = $(eval STEPS_ALL := $(shell MAKEFLAGS=$(call quoted, -- $(MAKEOVERRIDES)) $(counted) 2>&1 | grep -c '^: step '))$(STEPS_ALL)
ifdef COUNTING
run = @: step $@
MAKE := :
# in recipes that begin with +, which make runs in spite of -n
SKIPPED := exit;
endif
