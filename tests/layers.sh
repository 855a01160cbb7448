#!/bin/sh
# Checks the include layers: layers.sh [BUILD]; layers.sh --self-test checks this script.
#
# A file may include, and an object may use, only what is in its own folder or in a lower layer;
# folders of one layer may not use each other. Every #include "..." gives a path from src/ or from the root of the source.
# With BUILD, a directory of objects, the symbols that the objects use are checked, too, and no symbol may be defined
# twice. Of tests/, bench/ is checked, and cuda_on_cpu/ may be included. Prints a line for each violation and, at the end, what was checked and
# how many lines of C and CUDA there are; exit status 1 if something is wrong.
set -u

# folder, layer, its files (a name that ends in / stands for everything below it)
folders='
base        0  src/base/
collective  1  src/base/collective/
windows     2  src/windows/
kernels     2  kernels.h kernels.cu src/kernels/ tests/cuda_on_cpu/
tokenizer   2  src/text/tokenizer/
model       3  model.h model.c src/model/
dataset     3  src/text/dataset/
doctor      4  src/text/doctor/
inference   4  src/inference/
formats     4  src/files/formats/
page        5  src/generate/pack.h src/generate/parts.h tools/web/
checkpoint  5  src/files/checkpoint/
cli         5  src/cli/
report      6  src/report/
train       7  src/train/
generate    7  src/generate/
sweep       8  src/train/sweep/
programs    9  train.c generate.c inkling.c tools/option_pages.c
texts       6  tools/stories/ tools/pairs/ tools/talks/ tools/output.c tools/output.h
bench       9  tests/bench/
'
export folders

cd "$(dirname "$0")/.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
build=
LC_ALL=C
export LC_ALL

# awk: what follows from the table
map='
BEGIN {
  lines = split(ENVIRON["folders"], line, "\n")
  for (i = 1; i <= lines; i++) {
    fields = split(line[i], field, " ")
    for (j = 3; j <= fields; j++) { owner[field[j]] = field[1]; layer[field[1]] = field[2] }
  }
}
function folder_of(file,  name) { # "" when it is in none; the innermost folder of the table
  for (name = file; name != ""; sub(/[^\/]*\/?$/, "", name)) if (name in owner) return owner[name]
  return ""
}
function may(from, to) { return from == to || layer[to] + 0 < layer[from] + 0 }
function shown(folder) { return folder ", layer " layer[folder] }
'

# The sources: all but what is hidden, built, a run, or not to be checked.
sources() {
  for tree in . ./tests/bench; do
    find "$tree" \( -name '.?*' -o -name '*.run' -o -path ./data -o -path ./tests -o -path ./build -o -path "./${build:-build}" \) \
      -prune -o -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) -print 2>/dev/null
  done | sed 's|^\./||' | sort
}

# The violations among the includes; at the end `= FILES INCLUDES`, how many were looked at.
check_includes() {
  sources >"$work/sources"
  xargs grep -nE '^[[:blank:]]*#[[:blank:]]*(include|import)' /dev/null <"$work/sources" >"$work/includes"
  awk "$map"'
    function there(file,  line) {
      if (!(file in known)) { known[file] = (getline line < file) >= 0; close(file) }
      return known[file]
    }
    function place(name) { return there(name) || !there("src/" name) ? name : "src/" name }
    FNR == NR { # a source
      if (folder_of($0) != "") files++
      else if (/\.(c|cu|cpp)$/) print $0 " is in no layer"
      next
    }
    { # FILE:LINE:#include "NAME"
      at = index($0, ":"); file = substr($0, 1, at - 1); rest = substr($0, at + 1)
      at = index(rest, ":"); where = file ":" substr(rest, 1, at - 1)
      name = substr(rest, at + 1); sub(/^[ \t]*#[ \t]*[a-z_]*[ \t]*/, "", name)
      from = folder_of(file)
      if (from == "") next
      kind = substr(name, 1, 1)
      if (kind != "\"" && kind != "<") { print where ": includes what a macro names"; next }
      name = substr(name, 2); sub(/[">].*/, "", name)
      name = place(name)
      if (kind == "<" && !there(name)) next # a library
      includes++
      to = folder_of(name)
      if (name ~ /^\// || ("/" name) ~ /\/\.\.?\//) print where ": includes " name ", which is not named from the root"
      else if (!there(name)) print where ": includes " name ", which is not there"
      else if (to == "") print where ": includes " name ", which is in no layer"
      else if (!may(from, to)) print where ": includes " name " (" shown(from) " -> " shown(to) ")"
    }
    END { print "= " files + 0 " " includes + 0 }' "$work/sources" "$work/includes"
}

# The violations among the symbols of the objects; at the end `= SYMBOLS`, how many references were looked at. Objects of
# benchmarks, texts, CUDA and Windows may be missing: they are not always built. MPI's are libraries, tools/web/ is a module.
check_symbols() {
  : >"$work/objects"
  while read -r source; do
    case $source in
      src/kernels/cpu/*.c) objects=$(ls "$build/${source%.c}".*.o "$build/${source%.c}.o" 2>/dev/null) ;; # one an instruction set
      *.c) objects=$(ls "$build/${source%.c}.o" 2>/dev/null) ;;
      *.cu) objects=$(ls "$build/$source.o" 2>/dev/null) ;;
      *) continue ;;
    esac
    if [ -n "$objects" ]; then echo "$objects" >>"$work/objects"
    elif case $source in *.cu | tests/bench/* | src/base/collective/mpi/* | src/windows/* | tools/*) false ;; esac then echo "$source has no object in $build"; fi
  done <"$work/sources"
  if [ -s "$work/objects" ]; then xargs "${NM:-nm}" -A -g -P <"$work/objects"; fi >"$work/symbols"
  awk -v build="$build" "$map"'
    { # OBJECT: SYMBOL TYPE ...
      at = index($0, ": "); object = substr($0, length(build) + 2, at - length(build) - 2)
      split(substr($0, at + 2), field, " "); symbol = field[1]; type = field[2]
      if (type ~ /^[Uwv]$/) { uses[++count] = object; used[count] = symbol; next }
      if (symbol == "main") next
      if (type !~ /^[WVu]$/) { # a weak one may be defined often
        if (symbol in strong) print symbol " is defined in " strong[symbol] " and in " object
        strong[symbol] = object
      }
      definers[symbol] = definers[symbol] " " object
    }
    function folder_of_object(object) {
      sub(/\.o$/, "", object)
      if (object !~ /\.cu$/) sub(/\.[a-z0-9]+$/, "", object)
      return folder_of(object ~ /\.cu$/ ? object : object ".c")
    }
    END {
      for (i = 1; i <= count; i++) {
        if (!(used[i] in definers)) continue # of a library
        symbols++
        n = split(definers[used[i]], definer, " ")
        allowed = 0
        for (j = 1; j <= n; j++) if (may(folder_of_object(uses[i]), folder_of_object(definer[j]))) allowed = 1
        if (!allowed) print uses[i] " -> " used[i] " (defined in " definer[1] ")"
      }
      print "= " symbols + 0
    }' "$work/symbols"
}

check() {
  check_includes >"$work/report"
  read -r _ files includes <<END
$(grep '^= ' "$work/report")
END
  checked="${includes:-0} includes"
  nothing=
  [ "${includes:-0}" -gt 0 ] || nothing="no includes were found"
  if [ -n "$build" ]; then
    check_symbols >"$work/report-symbols"
    symbols=$(sed -n 's/^= //p' "$work/report-symbols")
    cat "$work/report-symbols" >>"$work/report"
    checked="$checked and ${symbols:-0} symbols"
    [ "${symbols:-0}" -gt 0 ] || nothing="no symbols were found in $build"
  fi
  [ -z "$nothing" ] || echo "$nothing" >>"$work/report"
  violations=$(grep -vc '^= ' "$work/report")
  grep -v '^= ' "$work/report"
  if [ "$violations" -eq 0 ]; then
    echo "layers: $checked of $files files point downward"
  else
    echo "layers: $violations violations in $checked of ${files:-0} files"
    return 1
  fi
}

# ---- the test of the check ----

# plant DIR FILE LINE...: a file of these lines
plant() {
  mkdir -p "$(dirname "$1/$2")"
  planted=$1/$2
  shift 2
  printf '%s\n' "$@" >"$planted"
}

# expect WHAT: fails unless the violations in $work/got are exactly those on standard input
expect() {
  sort >"$work/expected"
  if diff "$work/expected" "$work/got" >"$work/diff"; then return; fi
  echo "layers: self-test: $1: < was planted, > was found"
  cat "$work/diff"
  exit 1
}

missed() { # WHAT
  echo "layers: self-test: status 0 for $1"
  exit 1
}

# Violations between files, planted among the sources as they are.
self_test_includes() {
  tree=$work/tree
  mkdir -p "$tree/tests"
  cp tests/layers.sh "$tree/tests/"
  cp -R tests/cuda_on_cpu "$tree/tests/"
  sources | while read -r source; do
    mkdir -p "$tree/$(dirname "$source")"
    cp "$source" "$tree/$source"
  done
  sh "$tree/tests/layers.sh" | grep -v '^layers: ' | sort >"$work/before"

  plant "$tree" src/cli/planted.h ''
  plant "$tree" src/kernels/planted.h ''
  plant "$tree" src/train/planted.h '#include "cli/planted.h"' '#include "train/planted.h"'
  plant "$tree" src/base/planted.c '#include "cli/planted.h"'
  plant "$tree" src/text/dataset/planted.c '' '  #  include <train/planted.h>'
  plant "$tree" src/text/tokenizer/planted.c '#include "kernels/planted.h"'
  plant "$tree" src/files/checkpoint/planted.c '#include "cli/planted.h" // why not?'
  plant "$tree" src/model/planted.c '#include "model/no_such_file.h"'
  plant "$tree" src/cli/planted.c '#include "planted.h"' '#include "../cli/planted.h"' '#include <planted.h>'
  plant "$tree" tests/bench/planted.c '#include "tests/layers.sh"' '#include PLANTED'
  plant "$tree" attic/planted.c ''
  if sh "$tree/tests/layers.sh" >"$work/after"; then missed "includes"; fi
  grep -v '^layers: ' "$work/after" | sort | comm -13 "$work/before" - >"$work/got"
  expect "includes" <<'END'
src/base/planted.c:1: includes src/cli/planted.h (base, layer 0 -> cli, layer 5)
src/text/dataset/planted.c:2: includes src/train/planted.h (dataset, layer 3 -> train, layer 7)
src/text/tokenizer/planted.c:1: includes src/kernels/planted.h (tokenizer, layer 2 -> kernels, layer 2)
src/files/checkpoint/planted.c:1: includes src/cli/planted.h (checkpoint, layer 5 -> cli, layer 5)
src/model/planted.c:1: includes model/no_such_file.h, which is not there
src/cli/planted.c:1: includes planted.h, which is not there
src/cli/planted.c:2: includes ../cli/planted.h, which is not named from the root
tests/bench/planted.c:1: includes tests/layers.sh, which is in no layer
tests/bench/planted.c:2: includes what a macro names
attic/planted.c is in no layer
END
}

# compile TREE: every C file of it, into its build/
compile() {
  (cd "$1" && find . -name '*.c' | while read -r source; do
    mkdir -p "build/$(dirname "$source")"
    "$cc" -I. -Isrc -c "$source" -o "build/${source%.c}.o" || exit 1
  done)
}

# Violations between objects, in a small tree.
self_test_symbols() {
  tree=$work/small
  mkdir -p "$tree/tests"
  cp tests/layers.sh "$tree/tests/"
  plant "$tree" src/base/low.h 'int low(void);'
  plant "$tree" src/base/low.c '#include "base/low.h"' 'int low(void) { return 1; }'
  plant "$tree" src/kernels/one.c 'int kernel(void) { return 1; }'
  plant "$tree" src/train/high.c '#include "base/low.h"' 'int high(void) { return low(); }'
  plant "$tree" train.c 'int high(void);' 'int main(void) { return high(); }'
  plant "$tree" generate.c 'int main(void) { return 0; }'
  compile "$tree" && sh "$tree/tests/layers.sh" build >"$work/got"
  expect "a tree without violations" <<'END'
layers: 2 includes and 2 symbols of 6 files point downward
lines of C and CUDA: 9 in the programs, 0 in tools and benchmarks
END

  plant "$tree" src/base/planted.c 'int high(void);' 'int planted(void) { return high(); }' 'int twice;'
  plant "$tree" src/text/tokenizer/planted.c 'int kernel(void);' 'int words(void) { return kernel(); }'
  plant "$tree" src/model/planted.c 'int twice = 1;'
  compile "$tree"
  plant "$tree" src/cli/planted.c ''
  if sh "$tree/tests/layers.sh" build >"$work/after"; then missed "symbols"; fi
  grep -v '^layers: ' "$work/after" | sort >"$work/got"
  expect "symbols" <<'END'
src/base/planted.o -> high (defined in src/train/high.o)
src/text/tokenizer/planted.o -> kernel (defined in src/kernels/one.o)
twice is defined in src/base/planted.o and in src/model/planted.o
src/cli/planted.c has no object in build
END
  rm -r "$tree/build"
  if sh "$tree/tests/layers.sh" build >"$work/after"; then missed "objects that are missing"; fi
}

case ${1-} in
  --self-test)
    self_test_includes
    cc=${CC:-cc}
    command -v "$cc" >/dev/null 2>&1 || cc=gcc
    if command -v "$cc" >/dev/null 2>&1; then
      self_test_symbols
      echo "layers: self-test: every planted include and symbol was found"
    else
      echo "layers: self-test: every planted include was found; symbols were not tried, for want of a C compiler"
    fi
    ;;
  -*)
    echo "usage: layers.sh [BUILD] | --self-test" >&2
    exit 2
    ;;
  *)
    build=${1-}
    build=${build%/}
    check || exit 1
    lines() { sources | grep -E "$1" | xargs cat /dev/null | wc -l; }
    echo "lines of C and CUDA: $(lines '^(src/|[^/]*$)') in the programs, $(lines '^(tools|tests)/') in tools and benchmarks"
    ;;
esac
