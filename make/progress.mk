# Commands and how far the build is: a line for each file, rewritten in place on a terminal; with V=1 the commands instead.

# $(call run,COMMAND): the command of a recipe. What a compiler has to say begins on a line of its own.
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

# How many there will be is asked of another make, which runs nothing: make -n COUNTING=1. Its own builds below do not count.
counted = $(MAKE_COMMAND) --no-print-directory -n$(short_flags) COUNTING=1 $(MAKECMDGOALS)
STEPS_ALL = $(eval STEPS_ALL := $(shell MAKEFLAGS=$(call quoted, -- $(MAKEOVERRIDES)) $(counted) 2>&1 | grep -c '^: step '))$(STEPS_ALL)
ifdef COUNTING
run = @: step $@
MAKE := :
endif
