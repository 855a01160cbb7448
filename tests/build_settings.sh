#!/bin/sh
# Tests that a build directory remembers the settings of its last build. Nothing is compiled: `make -n` prints what
# would be. Prints `ok NAME` or `not ok NAME` for each check and `done` at the end.
# shellcheck disable=SC2013,SC2016 # one line of words; scripts in quotes
set -u
cd "$(dirname "$0")/.." || exit 2
unset MAKEFLAGS MAKELEVEL MFLAGS BUILD_SETTINGS CFLAGS CPPFLAGS CUDA CUDA_ARCH NVCC NO_CUDA NO_MPI
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$work/build

make_in() { # make_in DIRECTORY ARGUMENTS...
  directory=$1
  shift
  make --no-print-directory BUILD="$directory" "$@" 2>&1
}
check() { # check NAME COMMAND...
  name=$1
  shift
  if "$@"; then echo "ok $name"; else echo "not ok $name"; fi
}
# has FLAG ARGUMENTS...: whether the compiler would get the flag
has() {
  flag=$1
  shift
  make_in "$build" "$@" kernel-flags | grep -q -e " $flag "
}
lacks() { ! has "$@"; }
said() { make_in "$build" remember "$@" | grep -c '^settings of the last build: '; }

check "nothing is said of a first build" [ "$(said CPPFLAGS='-DA="b c" -DB=#d' NO_CUDA=1)" = 0 ]
check "a setting holds" has '-DA="b c" -DB=#d'
check "it is said once" [ "$(said)" = 1 ]
make_in "$build" remember >"$work/log"
check "it is said with its value" grep -q 'CPPFLAGS=.* NO_CUDA=1 ' "$work/log"
check "nothing is said where the output is read" [ "$(make_in "$build" kernel-flags | wc -l)" = 1 ]
check "a question changes nothing" lacks -DB=#d CPPFLAGS=-DC
check "and so it still holds" has -DB=#d
export CPPFLAGS=-DE
check "the environment wins" has -DE
unset CPPFLAGS
make_in "$build" remember CPPFLAGS=-DC >"$work/log"
check "another value takes its place" has -DC
make_in "$build" remember CPPFLAGS= >"$work/log"
check "an empty one is the default" lacks -DC
check "the others stay" grep -qx 'NO_CUDA ?= 1' "$build/settings.mk"
# what the CUDA backend is compiled by, on a machine without a GPU or with one
cuda_by() { make -n --no-print-directory BUILD="$work/cuda" "$@" train 2>&1 | grep -c -e '-DINKLING_CUDA ' -e 'nvcc was not found'; }
if ! nvidia-smi -L >/dev/null 2>&1; then
  check "CUDA= does not ask for CUDA" [ "$(cuda_by CUDA=) $(cuda_by CUDA=0)" = "0 0" ]
fi
check "CUDA=1 does" [ "$(cuda_by CUDA=1)" -gt 0 ]
check "an empty CFLAGS is the default" has -O3 CFLAGS=
check "the kernels of a package have -O3" has -O3 CFLAGS='-g -O2'
check "-O0 is left alone" lacks -O3 CFLAGS=-O0
check "shared libraries" sh -c '! make -n --no-print-directory BUILD="$0" NO_STATIC=1 train 2>&1 | grep -q "lib[a-z0-9-]*\.a"' "$build"

# The CUDA emulator is built the same with or without CUDA and MPI.
emulator_flags() { # emulator_flags FILE ARGUMENTS...
  file=$1
  shift
  set -- "$@" "$work/emulator/flags" "$work/emulator/cuda-flags"
  make_in "$work/emulator" CUDA_ON_CPU=1 BUILD_SETTINGS="$build/settings.mk" "$@" >"$work/log" || cat "$work/log"
  cat "$work/emulator/flags" "$work/emulator/cuda-flags" >"$file"
}
make_in "$build" remember NO_CUDA= >"$work/log"
emulator_flags "$work/with"
make_in "$build" remember NO_CUDA=1 NO_MPI=1 CUDA_ARCH=80 >"$work/log"
emulator_flags "$work/remembered"
emulator_flags "$work/given" NO_CUDA=1 NO_MPI=1 CUDA_ARCH=90
check "the emulator is not built again without CUDA" cmp "$work/with" "$work/remembered"
check "nor with other settings given to it" cmp "$work/with" "$work/given"

# A nested make inherits the settings and saves none; without a name, nothing is read or saved.
make_in "$build" remember CPPFLAGS=-DC >"$work/log"
make_below() { make_in "$build/below" BUILD_SETTINGS="$build/settings.mk" "$@"; }
make_below remember CPPFLAGS=-DD >"$work/log"
check "a build below keeps nothing" [ ! -e "$build/below/settings.mk" ]
check "nor in the directory above" has -DC
make_below kernel-flags >"$work/log"
check "a build below takes them" grep -q ' -DC ' "$work/log"
check "without a name none are read" lacks -DC BUILD_SETTINGS=
cat Makefile tools/make/*.mk tests/tests.mk | sed ':a; /\\$/ { N; s/\\\n//; ba }' | grep '(MAKE).* BUILD=' >"$work/nested"
check "every make for a build below names them" [ "$(wc -l <"$work/nested")" = "$(grep -c '(NESTED)' "$work/nested")" ]

# make help lists every setting and only existing targets.
make_in "$work/help" help >"$work/help.txt"
missing=$(for name in $(sed -n 's/^SETTINGS := //p' tools/make/settings.mk); do grep -qw "$name" "$work/help.txt" || echo "$name"; done)
check "help has every setting" [ -z "$missing" ]
missing=$(grep -o '^  make [a-z][-a-z0-9]*' "$work/help.txt" | while read -r _ name; do
  make_in "$work/help" BUILD_SETTINGS= NO_MPI=1 NO_CUDA=1 -n "$name" 2>&1 | grep "No rule to make target '$name'"
done)
check "help has targets that there are" [ -z "$missing" ]
check "help is aligned" awk '/^  / { match(substr($0, 3), /  +/); n++; if (n > 1 && RSTART + RLENGTH != column) bad = 1; column = RSTART + RLENGTH }
  END { exit bad || n < 20 }' "$work/help.txt"

# Instruction sets: what is compiled, and what src/kernels/backends.c gets.
kernels_of() { make_in "$work/isa" BUILD_SETTINGS= NO_MPI=1 NO_CUDA=1 V=1 -n "$@" all; }
kernels_of ISA=generic >"$work/log"
check "one instruction set" [ "$(grep -e ' -c ' "$work/log" | grep -o 'DCPU_BUILD=[a-z0-9_]*' | sort -u | tr '\n' ' ')" = "DCPU_BUILD=generic DCPU_BUILD=generic_bf16 " ]
check "its tables" grep -q "CPU_TABLES(X)= *X(generic,generic) X(generic_bf16,generic)'" "$work/log"
kernels_of ISA=v9 >"$work/log"
check "one that is none" [ "$(wc -l <"$work/log")" = 1 -a "$(grep -c 'ISA is "v9": give one or several of' "$work/log")" = 1 ]

# ONLY: selects tests.
make_in "$work/only" BUILD_SETTINGS= -n run-tests ONLY=pol >"$work/log"
check "no such test: one line with those that are near" [ "$(wc -l <"$work/log")" = 1 -a "$(grep -c 'pol; did you mean test_pool?' "$work/log")" = 1 ]
make_in "$work/only" BUILD_SETTINGS= NO_MPI=1 NO_CUDA=1 V=1 -n run-tests ONLY="pool tests/test_quantiles.c" >"$work/log"
check "two tests: their programs" [ "$(grep -o -- "-o $work/only/tests/test_[a-z]* " "$work/log" | wc -l)" = 2 ]
check "and no others" [ "$(grep -c bench_kernels "$work/log")" = 0 ]
check "their names in full" [ "$(tests/run.sh --check pool programs formats.py | tr '\n' ' ')" = "test_pool programs.sh formats.py " ]

# Progress: the announced number of lines, for a full build and after a change.
lines_of() { make_in "$work/count" BUILD_SETTINGS= NO_MPI=1 NO_CUDA=1 "$@" | grep '^\[' | tail -n 1; }
check "all steps are counted" [ "$(lines_of -j1 CFLAGS=-O0 "$work/count/stories" | cut -d ' ' -f 2-3)" = "$(make_in "$work/count2" BUILD_SETTINGS= NO_MPI=1 NO_CUDA=1 V=1 -n "$work/count2/stories" | grep -c '^gcc ' | sed 's|.*|&/& ]|')" ]
touch "$work/count/tools/output.o"
check "and those of a change" [ "$(lines_of -j1 CFLAGS=-O0 "$work/count/stories" | cut -d ' ' -f 2-3)" = "1/1 ]" ]

# A deleted program is rebuilt, although the last build is newer than all sources.
mkdir -p "$work/whole" && touch "$work/whole/built"
check "a program that is missing is built" sh -c 'make --no-print-directory BUILD="$1" BIN="$1/bin" -n all 2>&1 | grep -q "bin/train"' - "$work/whole"

# Version: with the commit if git knows it; without git, only the number.
make_in "$build" "$build/version" >"$work/log"
check "the version has a commit" grep -Eqx "$(cat VERSION)( [(][0-9a-f]+(-dirty)?[)])?" "$build/version"
if [ -e .git ]; then check "where there is one" grep -q '(' "$build/version"; fi
mkdir "$work/archive"
cp -r Makefile tools VERSION tests "$work/archive"
(cd "$work/archive" && make_in build build/version) >"$work/log"
check "without git it has none" cmp "$work/archive/build/version" VERSION
echo "done"
